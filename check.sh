#!/usr/bin/env bash
# What every commit passes: format, layout rules, clippy, tests, documentation.
#
#   ./check.sh          minutes
#   ./check.sh --long   the same with the long forms of all that has one, such as tests with many more rounds
#
# Stops at the first step that fails, with a line that says which. What this machine cannot test is an
# error where it should exist, and is listed as NOT TESTED at the end where it may be absent.
set -euo pipefail
cd "$(dirname "$0")"

FILE_LINES_MAX=500
# What is built and tested: all that a build may have. The default one, without it, is what `cargo run` and the packages build.
# The same words everywhere, and always something that is for tests: with others cargo chooses other features of what all use,
# and builds that again.
WHOLE=(--workspace --features userswap-cli/s3)
not_tested=()

# Whatever has a long form looks at this variable.
case "$*" in
    '') unset USERSWAP_TEST_LONG ;;
    # A minute of each target that is fed with what nobody would write.
    --long) export USERSWAP_TEST_LONG=1 USERSWAP_FUZZ_SECONDS="${USERSWAP_FUZZ_SECONDS:-60}" ;;
    *)
        printf 'usage: check.sh [--long]\n' >&2
        exit 2
        ;;
esac
is_long() { [ "${USERSWAP_TEST_LONG:-}" = 1 ]; }

step() { printf '\n== %s (at %s s)\n' "$1" "$SECONDS"; }
note() { not_tested+=("$1"); }
fail() {
    printf 'check.sh: FAILED: %s\n' "$1" >&2
    exit 1
}

# All Rust files of ours.
rust_files() { find . \( -name target -o -name '.?*' \) -prune -o -name '*.rs' -print | sort; }

# Prints "file:line: code" without comments and without test modules.
code_of() {
    awk '
        FNR == 1 { in_tests = 0; is_test = 0 }
        in_tests { if ($0 == "}") in_tests = 0; next }
        /^#\[cfg\(test\)\]/ { is_test = 1; next }
        is_test && /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{/ { in_tests = 1; is_test = 0; next }
        { is_test = 0; sub(/\/\/.*/, ""); if ($0 ~ /[^ \t]/) print FILENAME ":" FNR ": " $0 }
    ' "$@"
}

# Fails with the lines of $2 that match the extended regular expression $3.
refuse() {
    local found
    found=$(grep -E "$3" <<<"$2" || true)
    [ -z "$found" ] || { printf '%s\n' "$found" >&2; fail "$1"; }
}

check_format() {
    step 'format: cargo fmt'
    cargo fmt --all --check || fail 'some files are not formatted: run cargo fmt --all'
    cargo fmt --manifest-path tests/bare-policy/Cargo.toml --check ||
        fail 'tests/bare-policy is not formatted: run cargo fmt there'
    cargo fmt --manifest-path python/Cargo.toml --check || fail 'python is not formatted: run cargo fmt there'
}

# A crate without std takes policy in (tests/bare-policy): where policy needs std, that does not build.
check_policy() {
    step 'policy: no std, no unsafe'
    grep -qxF '#![forbid(unsafe_code)]' policy/src/lib.rs ||
        fail 'policy/src/lib.rs does not forbid unsafe code'
    local bare=x86_64-unknown-none
    local build=(cargo build --quiet --manifest-path tests/bare-policy/Cargo.toml
        --target-dir "${CARGO_TARGET_DIR:-target}/bare-policy")
    "${build[@]}" || fail 'policy needs std: see tests/bare-policy/src/lib.rs'
    [ ! -d "$(rustc --print target-libdir --target "$bare")" ] || "${build[@]}" --target "$bare" ||
        fail "policy does not build for $bare, which has no std"
}

check_unsafe() {
    step 'unsafe: only in engine/src/sys, preload, capi, the edges of python, and tests'
    local files code
    mapfile -t files < <(rust_files |
        grep -Ev '^\./(engine/src/sys/|preload/|capi/src/|python/src/(numpy|fork)\.rs)|/tests/|/tests\.rs$')
    code=$(code_of "${files[@]}")
    [ -n "$code" ] || fail 'no code to look at'
    refuse 'unsafe code in the wrong place' "$code" '\bunsafe\b'
}

check_sizes() {
    step "size: no file over $FILE_LINES_MAX lines"
    local file lines too_long=()
    while read -r file; do
        lines=$(wc -l <"$file")
        [ "$lines" -le "$FILE_LINES_MAX" ] || too_long+=("$file has $lines lines")
    done < <(rust_files)
    [ "${#too_long[@]}" = 0 ] || {
        printf '%s\n' "${too_long[@]}" >&2
        fail 'files that are too long: split them by concepts'
    }
}

# A folder of the engine uses only those below it.
check_floors() {
    step 'floors: no room of the engine uses one above it'
    tests/floors.sh --self-test || fail 'tests/floors.sh does not see what it must see'
    tests/floors.sh || fail 'a room uses one above it: the order is in tests/floors.sh'
    python3 tests/calls.py --self-test || fail 'tests/calls.py does not see what it must see'
    python3 tests/calls.py || fail 'an act is called from below its room'
}

check_map() {
    step 'map: ARCHITECTURE.md and the files name each other'
    tests/map.sh --self-test || fail 'tests/map.sh does not see what it must see'
    tests/map.sh || fail 'the map, a document and the files differ'
}

# The commands of the binary $1 below the command that the others name, one line each.
commands_of() {
    local binary=$1 name
    shift
    while read -r name; do
        echo "$*${1:+ }$name"
        commands_of "$binary" "$@" "$name"
    done < <("$binary" "$@" --help | sed -n '/^Commands:/,/^$/s/^  \([a-z-]*\) .*/\1/p' | grep -vx help)
}

# The options that the section of docs/options.md about the command $1 has in its tables.
options_documented() {
    awk -v heading="\`userswap $1\`" '
        /^#/ { ours = substr($0, index($0, " ") + 1) == heading }
        ours && /^\| `-/ { split($0, cell, "|"); print cell[2] }
    ' docs/options.md | grep -oE -- '--[a-z-]+'
}

# Fails unless the lines $2 and $3 are the same: what is in `--help`, and what in docs/options.md.
same_names() {
    local extra
    extra=$(comm -23 <(sort -u <<<"$2") <(sort -u <<<"$3") | tr '\n' ' ')
    [ -z "${extra// /}" ] || fail "$1: docs/options.md lacks $extra"
    extra=$(comm -13 <(sort -u <<<"$2") <(sort -u <<<"$3") | tr '\n' ' ')
    [ -z "${extra// /}" ] || fail "$1: docs/options.md has $extra, --help has not"
}

# All that the checks run, once. The library that programs get is that of the tests' profile: with its assertions, and the
# engine in it is built already.
check_build() {
    step 'build: cargo build'
    local target=${CARGO_TARGET_DIR:-$PWD/target} library
    library=$target/checked/libuserswap_preload.so
    cargo build "${WHOLE[@]}" --lib --examples || fail 'the libraries do not build'
    mkdir -p "${library%/*}"
    # Every start of a program reads the whole file.
    [ "$library" -nt "$target/debug/${library##*/}" ] ||
        strip --strip-debug -o "$library" "$target/debug/${library##*/}" || fail 'the library that programs get cannot be stripped'
    export LIBUSERSWAP_PRELOAD=$library
    cargo build "${WHOLE[@]}" --bins --tests || fail 'the command, the programs of the NUMA guest or the tests do not build'
}

# The commands of the binary, and the options of each, are those of docs/options.md.
check_options() {
    step 'options: docs/options.md has what --help has'
    local binary=${CARGO_TARGET_DIR:-target}/debug/userswap commands command words in_help documented
    commands=$(commands_of "$binary")
    documented=$(sed -nE 's/^#+ `userswap ([a-z -]+)`$/\1/p' docs/options.md)
    same_names 'userswap' "$(tr ' ' _ <<<"$commands")" "$(tr ' ' _ <<<"$documented")"
    while read -r command; do
        read -ra words <<<"$command"
        in_help=$("$binary" "${words[@]}" --help | sed -nE 's/^ +(-., )?(--[a-z-]+).*/\2/p')
        in_help=$(grep -vx -- --help <<<"$in_help" || true)
        documented=$(options_documented "$command" || true)
        same_names "userswap $command" "$in_help" "$documented"
    done <<<"$commands"
}

# A program that has outgrown its budget lists its own settings: they are those of docs/control.md.
check_settings() {
    step 'settings: docs/control.md has what `userswap set` has'
    local binary=${CARGO_TARGET_DIR:-target}/debug/userswap listed documented
    listed=$("$binary" run --ram 16M --swap mem:64M -- python3 -c '
import os, subprocess, sys
outgrown = bytearray(32 << 20)
subprocess.run([sys.argv[1], "set", str(os.getpid())], check=True)' "$binary" |
        sed -nE 's/^([a-z_]+) .*/\1/p' | sort) || fail 'a program cannot list its own settings'
    documented=$(sed -nE '/^\| setting /,/^$/s/^\| `([a-z_]+)` .*/\1/p' docs/control.md | sort)
    [ -n "$listed" ] || fail 'userswap set lists no settings'
    diff <(echo "$documented") <(echo "$listed") >&2 ||
        fail 'settings differ: < only docs/control.md has it, > only `userswap set` has it'
}

check_clippy() {
    step 'lints: cargo clippy'
    cargo clippy "${WHOLE[@]}" --all-targets -- -D warnings || fail 'clippy has something to say'
    cargo clippy --package userswap --lib -- -D warnings || fail 'clippy has something to say about a library without buckets'
}

# What the tests need. Programs and userfaultfd must exist; the rest depends on the machine.
check_machine() {
    step 'machine: what the tests need'
    local program
    for program in cc gcc g++ ld objcopy nm strip make python3 sqlite3 xz gzip sort bash unshare dpkg-deb chromium tmux zsh fish \
        prometheus promtool; do
        command -v "$program" >/dev/null ||
            fail "$program is missing, and the tests run it: install it, or run .ci/run, which does"
    done
    if [ "$(id -u)" != 0 ]; then
        [ "${CI:-}" != true ] || fail 'CI=true, but not root: the kernel side of bench needs root'
        note "the kernel's own swap beside ours (bench/tests/kernel.rs): needs root"
    fi
    local line
    while read -r line; do
        case $line in
            'fail '*) fail "${line#fail }" ;;
            'note '*) note "${line#note }" ;;
            *) echo "$line" ;;
        esac
    done < <(probe_kernel || echo 'fail cannot ask the kernel for userfaultfd: is python3 whole?')
}

# Prints "fail …" for what must exist, "note …" for what may be absent, else what there is.
probe_kernel() {
    python3 - <<'PYTHON'
import ctypes, fcntl, os, struct

libc = ctypes.CDLL(None, use_errno=True)
USERFAULTFD = 323 if os.uname().machine == "x86_64" else 282
IO_URING_SETUP = 425
FLAGS = os.O_CLOEXEC | os.O_NONBLOCK
USER_MODE_ONLY = 1
API, FEATURE_MOVE = 0xC018AA3F, 1 << 16


def through_device():
    try:
        device = os.open("/dev/userfaultfd", os.O_RDWR | os.O_CLOEXEC)
        return fcntl.ioctl(device, 0xAA00, FLAGS)
    except OSError:
        return -1


fd = libc.syscall(USERFAULTFD, FLAGS)
reason = os.strerror(ctypes.get_errno())
if fd < 0:
    fd = through_device()
if fd < 0:
    print("note faults of system calls by message: this user may serve only its own faults")
    fd = libc.syscall(USERFAULTFD, FLAGS | USER_MODE_ONLY)
if fd < 0:
    print(f"fail userfaultfd is not allowed here ({reason}): run as root, or set "
          "vm.unprivileged_userfaultfd=1, or permit it in the container's seccomp profile")
    raise SystemExit
features = struct.unpack("QQQ", fcntl.ioctl(fd, API, struct.pack("QQQ", 0xAA, 0, 0)))[1]
if features & FEATURE_MOVE:
    print("userfaultfd with MOVE")
else:
    print("note the MOVE path: this kernel has no UFFDIO_MOVE (Linux 6.8)")
ring = libc.syscall(IO_URING_SETUP, 1, ctypes.create_string_buffer(256))
print("io_uring" if ring >= 0 else "note io_uring: it is forbidden here, threads stand in for it")
PYTHON
}

# What comes from the network, while all is built: a store of objects, and the environment of the Python package.
prepare() {
    tests/s3-server --prepare &
    store=$!
    python/test --prepare >/dev/null &
}

# In this workspace, which has no package at its top, the same as the README's plain `cargo test`, with buckets in addition.
check_tests() {
    step "tests: cargo test$(is_long && echo ', in the long form')"
    local chosen=()
    if ! wait "$store"; then
        [ "${CI:-}" != true ] || fail 'CI=true, but pip cannot install moto: is there a network?'
        note 'objects of a store (engine/tests/engine/s3.rs, cli/tests/programs/s3.rs): pip cannot install moto'
        # By names: those of the modules.
        chosen=(-- --skip s3)
    fi
    # Many wait for a device, a server or the clock.
    RUST_TEST_THREADS=${RUST_TEST_THREADS:-$((2 * $(nproc)))} cargo test "${WHOLE[@]}" "${chosen[@]}" || fail 'a test fails'
    # The README's other command means this program: what a plain `cargo run` runs.
    cargo metadata --no-deps --format-version 1 | python3 -c '
import json, sys
print(*{package["default_run"] for package in json.load(sys.stdin)["packages"]} - {None})' |
        grep -qx userswap || fail 'cargo run does not run userswap'
}

# Verified loads while everything changes that can, on devices that fail, too.
check_stress() {
    local minutes=1
    ! is_long || minutes=10
    step "stress: $minutes min of it"
    "${CARGO_TARGET_DIR:-target}/debug/userswap" stress --minutes "$minutes" ||
        fail 'stress has found something: its seed is above'
}

# A wire between policy and engine that is cut fails a test: looked at in the long form, which builds each cut.
check_wires() {
    step 'wires: the engine does what policy decides'
    python3 tests/mutants.py --check || fail 'tests/mutants.py does not know the wires of the engine any more'
    ! is_long || python3 tests/mutants.py || fail 'no test notices that a wire is cut'
}

# Real programs against themselves without us: those that .ci/run installs, in the long form all that are there.
check_programs() {
    step "programs: the same as natively, as root and as an ordinary user"
    local form=--short target=${CARGO_TARGET_DIR:-target} found line
    found=$target/programs/found
    ! is_long || form=--long
    mkdir -p "${found%/*}"
    # The one that is there: to build it otherwise would replace it under those who use it.
    USERSWAP_PROGRAMS_COMMAND=$target/debug/userswap tests/programs/run "$form" | tee "$found" || fail 'a program does not do under userswap what it does natively'
    while read -r line; do note "a program (tests/programs): ${line#NOT TESTED: }"; done < <(grep '^NOT TESTED: ' "$found")
}

# Which device fills on an emulated machine with four nodes: ours held against the kernel's own swap.
check_numa_guest() {
    step "numa guest: four emulated nodes, beside the kernel's own swap"
    local status=0 reason
    local guest=("${CARGO_TARGET_DIR:-target}/debug/numa-guest")
    { reason=$("${guest[@]}" 2>&1 >&3) || status=$?; } 3>&1
    [ -z "$reason" ] || printf '%s\n' "$reason" >&2
    case $status in
        0) ;;
        3)
            [ "${CI:-}" != true ] || fail 'CI=true, but the NUMA guest cannot be run: .ci/run installs it'
            note "the RFC's four-node machine (tests/numa-guest): ${reason#numa-guest: }"
            ;;
        *) fail 'userswap and the kernel differ on the four-node machine' ;;
    esac
}

# The Python package as its users get it. Its crate is outside the workspace: an extension module needs a Python.
check_python() {
    step 'python: lints, and the package in a fresh environment'
    local status=0 found=${CARGO_TARGET_DIR:-target}/python-found
    mkdir -p "${found%/*}"
    # In the profile that pip builds, so that what is made in C is made once; what it does is looked at here, not how fast: less is optimised.
    export CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off
    PYO3_NO_PYTHON=1 cargo clippy --release --manifest-path python/Cargo.toml --all-targets \
        --target-dir "${CARGO_TARGET_DIR:-target}/python" -- -D warnings || fail 'clippy has something to say about python'
    # What PyO3 takes for such an interpreter, where none is installed.
    PYO3_CONFIG_FILE=$PWD/python/free-threaded.cfg cargo clippy --release --manifest-path python/Cargo.toml \
        --target-dir "${CARGO_TARGET_DIR:-target}/python" -- -D warnings ||
        fail 'python does not build for a Python without the GIL'
    python/test | tee "$found" || status=$?
    case $status in
        0) ;;
        3)
            [ "${CI:-}" != true ] || fail 'CI=true, but the Python package cannot be tested: .ci/run installs what it needs'
            note "$(sed -n 's/^NOT TESTED: //p' "$found")"
            ;;
        *) fail 'the Python package does not do what its tests say' ;;
    esac
}

# Runs checks that wait more than they compute beside each other. What one prints comes when it has ended.
together() {
    local logs check line pids=() failed=0 index=0
    logs=$(mktemp -d)
    for check; do
        (
            not_tested=()
            "$check"
            printf '%s\n' "${not_tested[@]}" >"$logs/$check.notes"
        ) >"$logs/$check" 2>&1 &
        pids+=("$!")
    done
    for check; do
        wait "${pids[index]}" || failed=1
        index=$((index + 1))
        cat "$logs/$check"
        [ -e "$logs/$check.notes" ] || continue
        while read -r line; do [ -z "$line" ] || note "$line"; done <"$logs/$check.notes"
    done
    rm -r "$logs"
    [ "$failed" = 0 ] || exit 1
}

# The command has no pages: it is called as the library is.
check_docs() {
    step 'documentation: cargo doc'
    RUSTDOCFLAGS='-D warnings' cargo doc "${WHOLE[@]}" --no-deps --lib --examples || fail 'the documentation has errors'
}

check_format
check_policy
check_unsafe
check_sizes
check_floors
check_map
check_machine
prepare
check_build
check_clippy
check_options
check_settings
check_docs
check_tests
check_wires
together check_stress check_programs check_python
# Its loads last for so many seconds, and it is emulated: beside others it gets too little done to be compared.
check_numa_guest

echo
for what in "${not_tested[@]}"; do
    echo "NOT TESTED: $what"
done
echo "check.sh: passed in $SECONDS s"
