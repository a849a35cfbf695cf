# row rustc: bash {file} {build}
# needs: rustc
# build: bash {file} copy $PWD
# The room of policies of this project as one crate. An ordinary user cannot read the compiler below the home of another:
# it is copied, without its documents.
if [ "$1" = copy ]; then
    set -e
    compiler=$(rustc --print sysroot) host=$(rustc -vV | sed -n 's/^host: //p')
    mkdir -p "$2"/rust/{bin,lib/rustlib}
    cp "$compiler/bin/rustc" "$2/rust/bin"
    cp -a "$compiler"/lib/lib* "$2/rust/lib"
    cp -r "$compiler/lib/rustlib/$host" "$2/rust/lib/rustlib"
    cp -r "$(dirname "$0")/../../../policy/src" "$2/policy"
    chmod -R a+rX "$2"
    exit
fi
cd "$1" || exit 1
rust/bin/rustc --edition 2024 --crate-type lib --crate-name policy -O -C codegen-units=4 --emit=obj -o "$TMPDIR/policy.o" policy/lib.rs &&
    sha256sum <"$TMPDIR/policy.o"
