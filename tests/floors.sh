#!/usr/bin/env bash
# Holds the rooms of the engine and of the simulator to their floors: a folder uses itself and what is below it.
#
# floors.sh            names each use that goes up, as FILE:LINE, and fails if there is one
# floors.sh --self-test
#
# What a file uses is what follows `crate::`, or as many `super::` as lead out of its folder: in imports, also in groups
# over several lines, and in the code itself. Comments, strings and tests do not count, nor does lib.rs.
set -euo pipefail

# From the top to the bottom.
FLOORS='api control process request swapoff demotion fault reclaim transfer state job device base list_lru sys'
SIM_FLOORS='scenario report memory machine clock'

# The arrows that go up, and what has no floor, in the Rust files below $1, where the floors are those of $2.
arrows_up() {
    (
        cd "$1"
        find . -name '*.rs' ! -name tests.rs ! -path '*/tests/*' ! -path ./lib.rs -print |
            sed 's#^\./##' | sort | xargs -r awk -v floors="$2" -v prefix="$1/" "$PARSER"
    )
}

# For awk. `state` says what the next token is: "" nothing of ours, "path" what follows `crate::` or `super::`, "super" what
# follows a further `super`, "group" a part of `crate::{`.
PARSER=$(cat <<'AWK'
BEGIN {
    count = split(floors, names, " ")
    for (i = 1; i <= count; i++) floor[names[i]] = i
}

FNR == 1 { begin_file() }

in_tests { if ($0 == "}") in_tests = 0; next }
code == "" && /^#\[cfg\(test\)\]/ { test_next = 1; next }
test_next && /^#\[/ { next }
test_next && /^(pub(\([a-z]+\))? )?mod [a-z_]+ \{/ { in_tests = 1; test_next = 0; next }
{ test_next = 0; read_line(strip($0)) }

function begin_file(    parts) {
    in_tests = 0; test_next = 0; code = ""; state = ""; pending = ""; supers = 0
    depth = split(FILENAME, parts, "/")
    if (parts[depth] == "mod.rs") depth--
    room = parts[1]
    sub(/\.rs$/, "", room)
    if (!(room in floor) && !(room in reported)) {
        reported[room] = 1
        print prefix FILENAME ": " room " is no room with a floor: give it a place in FLOORS, or its code to a room"
    }
}

# A line without comments and strings; `code` says what the next line begins in.
function strip(line,    out, at, rest) {
    out = ""
    while (line != "") {
        if (code == "comment") {
            at = index(line, "*/")
            if (!at) return out
            line = substr(line, at + 2); code = ""
        } else if (code == "string") {
            if (!match(line, /["\\]/)) return out
            if (substr(line, RSTART, 1) == "\"") { line = substr(line, RSTART + 1); code = "" }
            else line = substr(line, RSTART + 2)
        } else if (code != "") {                               # a raw string: `code` is its end
            at = index(line, code)
            if (!at) return out
            line = substr(line, at + length(code)); code = ""
        } else if (match(line, /r#+"|"|'"'|'\\.'|\/\/|\/\*/)) {
            out = out substr(line, 1, RSTART - 1) " "
            rest = substr(line, RSTART, RLENGTH)
            line = substr(line, RSTART + RLENGTH)
            if (rest == "//") return out
            if (rest == "/*") code = "comment"
            else if (rest == "\"") code = "string"
            else if (rest ~ /^r/) { code = substr(rest, 2); sub(/"$/, "", code); code = "\"" code }
        } else return out line
    }
    return out
}

function read_line(line,    token) {
    while (match(line, /[A-Za-z_][A-Za-z0-9_]*|::|[{},*]|[^ \t]/)) {
        token = substr(line, RSTART, RLENGTH)
        line = substr(line, RSTART + RLENGTH)
        take(token)
    }
}

function take(token) {
    if (state == "path") take_in_path(token)
    else if (state == "super") state = token == "::" ? "path" : ""
    else if (state == "group") take_in_group(token)
    else if (token == "::" && (pending == "crate" || pending == "super")) {
        supers = pending == "super"
        state = "path"
    }
    pending = token
}

function take_in_path(token) {
    if (token == "super" && supers) { supers++; state = "super"; return }
    state = ""
    if (supers && supers < depth) return
    if (token == "{") { state = "group"; nesting = 1; first = 1 }
    else arrow(token)
}

function take_in_group(token) {
    if (token == "{") nesting++
    else if (token == "}") { if (--nesting == 0) state = "" }
    else if (token == ",") { if (nesting == 1) first = 1 }
    else if (first) { arrow(token); first = 0 }
}

function arrow(to) {
    if (to == room || supers && !(to in floor)) return
    if (!(to in floor)) up("crate::" to ", which is no room: name the room that it is in")
    else if (room in floor && floor[to] < floor[room]) up(to ", which is above it")
}

function up(what) { print prefix FILENAME ":" FNR ": " room " uses " what }
AWK
)

# A small house with every way to go up, and every way to name a room without going there.
self_test() {
    local house
    house=$(mktemp -d)
    trap "rm -r '$house'" EXIT
    mkdir -p "$house"/{fault,state/page,sys}
    echo 'pub use api::Engine; use crate::api::Engine;' >"$house/lib.rs"
    cat >"$house/fault/server.rs" <<'RUST'
//! See [`crate::api::Engine`].
use crate::state::{gate, page::Page};
use crate::{
    device::Queue, // crate::api::A
    process::{fork, probe},
    state::core,
};
fn serve() {
    let url = "http://crate::api"; let quote = '"'; crate::control::collect();
    super::zero(); super::super::state::open(); super::super::request::pin();
    let text = "over two lines \
        crate::api"; let raw = r#"crate::api "quoted" "#;
    /* crate::api
       crate::api */ crate::Error::new();
}
pub(crate) fn helper() {}
#[cfg(test)]
#[allow(dead_code)]
mod tests {
    use crate::api::Engine;
}
RUST
    echo 'use super::super::sys; use super::fault;' >"$house/state/page.rs"
    echo 'use super::fault; use super::page; use super::super::x;' >"$house/state/mod.rs"
    echo 'use crate::api::Engine;' >"$house/state/tests.rs"
    echo 'use crate::sys::lock;' >"$house/attic.rs"
    local expected found
    expected=$(cat <<'FOUND'
attic.rs: attic is no room with a floor: give it a place in FLOORS, or its code to a room
fault/server.rs:5: fault uses process, which is above it
fault/server.rs:9: fault uses control, which is above it
fault/server.rs:10: fault uses request, which is above it
fault/server.rs:14: fault uses crate::Error, which is no room: name the room that it is in
state/mod.rs:1: state uses fault, which is above it
FOUND
    )
    found=$(arrows_up "$house" "$FLOORS" | sed "s#^$house/##")
    diff <(echo "$expected") <(echo "$found") || {
        echo 'floors.sh: the self-test found something else than was hidden (< hidden, > found)' >&2
        exit 1
    }
}

case ${1:-} in
    --self-test) self_test ;;
    *)
        found=$(arrows_up engine/src "$FLOORS"; arrows_up sim/src "$SIM_FLOORS")
        [ -z "$found" ] || { printf '%s\n' "$found" >&2; exit 1; }
        ;;
esac
