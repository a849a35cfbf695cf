# row rustc: bash {file} {build}
# needs: rustc
# build: cp -r $(dirname {file})/../../../policy/src $PWD/policy; chmod -R a+rX $PWD
# The room of policies of this project as one crate, twice over: once checked, once made.
cd "$1" || exit 1
rustc --edition 2024 --crate-type lib --crate-name policy -O -C codegen-units=4 --emit=obj -o "$TMPDIR/policy.o" policy/lib.rs &&
    sha256sum <"$TMPDIR/policy.o"
