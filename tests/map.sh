#!/usr/bin/env bash
# Holds the map in ARCHITECTURE.md against the files, and what the documents name and link to against what exists.
#
# map.sh [ROOT]        says of every difference which side lacks what, and fails if there is one
# map.sh --self-test
#
# The map is the tree below "## Map". An entry begins with the names of what it is about (`lru/`, `page.rs gate.rs`);
# also what its text names like that counts. It must have every folder and document at the top, every folder directly in
# a crate's src, every folder of policy/src and engine/src that holds more than tests, every file directly in these two, and
# every file directly in a folder of engine/src. Two names of one thing (`lru.rs` and `lru/`) need one entry. The rooms of
# engine/src stand in the order of tests/floors.sh.
set -euo pipefail

# Prints "LINE|FOLDER|PARENT|NAME" for every name in the map: the folder that its entry is about, and the one above.
names_in_map() {
    awk '
        /^## / { in_map = $0 == "## Map" }
        in_map && /^```/ { in_tree = !in_tree }
        !in_map || !in_tree { next }
        match($0, /(├|└)── /) {
            text = substr($0, RSTART + RLENGTH)
            before = substr($0, 1, RSTART - 1)
            gsub(/│/, "|", before)
            depth = length(before) / 4
            parent = depth ? folder_at[depth - 1] : ""
            split(text, word, " ")
            folder = word[1] ~ /\/$/ ? parent word[1] : parent
            folder_at[depth] = folder
            print_names(text)
            next
        }
        { print_names($0) }

        function print_names(text,    name) {
            while (match(text, /[A-Za-z0-9_.\/-]+/)) {
                name = substr(text, RSTART, RLENGTH)
                text = substr(text, RSTART + RLENGTH)
                if (name ~ /[A-Za-z0-9_-](\/|\.rs|\.md|\.sh)$/ || name ~ /^\.[a-z]+\//)
                    print FNR "|" folder "|" parent "|" name
            }
        }
    ' "$1" | grep -v '|userswap/$'
}

# Ours, as git has it: what is ignored is not.
all_files() { git -C "$root" ls-files --cached --others --exclude-standard | sort -u; }

# What the map must have, a folder with a slash at its end.
required() {
    all_files | awk -F/ '
        { if (NF > 1) print $1 "/"; else if ($1 ~ /\.(md|sh)$/) print }
        $2 != "src" || !/\.rs$/ { next }
        {
            folder = $1 "/" $2 "/"
            last = $NF == "tests.rs" ? NF - 1 : NF
            if ($1 !~ /^(policy|engine)$/ && last > 4) last = 4
            for (i = 3; i < last && $i != "tests"; i++) { folder = folder $i "/"; print folder }
            if ($1 !~ /^(policy|engine)$/ || i < NF || $NF ~ /^(lib|mod|tests)\.rs$/) next
            if (NF == 3 || NF == 4 && $1 == "engine") print
        }
    ' | sort -u
}

# The first of the folders $2, $3 … in which the name $1 exists, and the name; nothing where there is none.
find_name() {
    local name=$1 folder
    shift
    for folder in "$@"; do
        [ ! -e "$root/$folder$name" ] || { echo "$folder$name"; return; }
    done
}

differences_of_map() {
    local line folder parent name found
    local -A named=()
    while IFS='|' read -r line folder parent name; do
        found=$(find_name "$name" "$folder" "$parent" '' policy/src/ engine/src/)
        [ -n "$found" ] ||
            echo "ARCHITECTURE.md:$line: the map names $name, which does not exist in ${folder:-the top folder}"
        found=${found%/} name=${name%/}
        # policy/src/ names policy/ as well.
        while [ -n "$found" ]; do
            named[$found]=1
            [[ $name == */* ]] || break
            found=${found%/*} name=${name%/*}
        done
    done < <(names_in_map "$root/ARCHITECTURE.md")
    while read -r name; do
        # A file and the folder with its parts have one entry.
        found=${name%/}
        [ -n "${named[$found]:-}${named[${found%.rs}]:-}${named[$found.rs]:-}" ] ||
            echo "$name exists, but is not in the map of ARCHITECTURE.md"
    done < <(required)
}

# Where the rooms of the map begin to stand otherwise than their floors.
differences_of_order() {
    local floors=$root/tests/floors.sh
    [ -e "$floors" ] || return 0
    diff <(sed -n "s/^FLOORS='\(.*\)'/\1/p" "$floors" | tr ' ' '\n') \
        <(names_in_map "$root/ARCHITECTURE.md" | awk -F'|' '$2 == "engine/src/" $4 && $3 == "engine/src/" { print $4 }' | tr -d /) |
        sed -n 's/^< /tests\/floors.sh has in another place than the map: /p'
}

# What a link to a heading of the document $1 can name.
anchors_of() { sed -nE 's/^#+ //p' "$1" | tr A-Z a-z | tr -cd 'a-z0-9 \n_-' | tr ' ' '-'; }

# A document names files and folders of the code in backquotes, by the end of their path, and links to files and headings.
differences_of_documents() {
    local document line name files target
    files=$(all_files | sed 's#^#/#')
    while IFS=: read -r document line name; do
        name=${name//\`/}
        [[ $name == */ ]] || name+=$'\n'
        [[ $files$'\n' == *"/$name"* ]] || echo "$document:$line: ${name%$'\n'} does not exist"
    done < <(cd "$root" && grep -noE '`[a-z_-][a-z_/-]*(\.(rs|sh)|/)`' /dev/null *.md docs/*.md)
    while IFS=: read -r document line name; do
        name=${name#](} name=${name%)}
        target=$root/$(dirname "$document")/${name%%#*}
        [ "${name%%#*}" ] || target=$root/$document
        if [ ! -e "$target" ]; then
            echo "$document:$line: links to $name, which does not exist"
        elif [[ $name == *#* ]] && ! grep -qxF -- "${name#*#}" < <(anchors_of "$target"); then
            echo "$document:$line: links to $name, a heading which does not exist"
        fi
    done < <(cd "$root" && grep -noE '\]\([A-Za-z0-9_.#][^):]*\)' /dev/null *.md docs/*.md)
}

self_test() {
    root=$(mktemp -d)
    trap "rm -r '$root'" EXIT
    mkdir -p "$root"/{docs,policy/src/lru,policy/src/frames,engine/src/fault/deep/tests,engine/src/sys,attic,cli/src/ask/deep}
    touch "$root"/{policy/src/{lib,frames,slots,lru}.rs,policy/src/lru/walk.rs,attic/old.txt,check.sh,docs/a.md}
    touch "$root"/policy/src/frames/tests.rs "$root"/cli/src/{main,ask/{mod,deep/a}}.rs
    echo '## Ask: what, and whom?' >"$root/docs/a.md"
    touch "$root"/engine/src/{lib.rs,log.rs,fault/{mod,server,zero}.rs,fault/deep/{a,tests/b}.rs,sys/uffd.rs}
    cat >"$root/ARCHITECTURE.md" <<'MAP'
## Map
```
userswap/
├── policy/src/     decides and/or counts
│   ├── frames.rs gone.rs   lru/: lists
├── engine/src/     acts
│   ├── fault/      server.rs waits, lost.rs is lost
│   │               deep/ is deep
│   └── sys/
├── cli/
├── docs/  tests/  check.sh
```
In `fault/zero.rs` and `fault/one.rs`, `fault/` and `policy/lru/`: [here](docs/a.md#top), [or](docs/a.md#ask-what-and-whom),
[there](docs/b.md), [below](#map), [far](https://example.org).
MAP
    mkdir "$root/tests"
    echo "FLOORS='sys fault'" >"$root/tests/floors.sh"
    git -C "$root" init -q
    local expected
    expected=$(cat <<'FOUND'
ARCHITECTURE.md:5: the map names gone.rs, which does not exist in policy/src/
ARCHITECTURE.md:7: the map names lost.rs, which does not exist in engine/src/fault/
ARCHITECTURE.md exists, but is not in the map of ARCHITECTURE.md
attic/ exists, but is not in the map of ARCHITECTURE.md
cli/src/ask/ exists, but is not in the map of ARCHITECTURE.md
engine/src/fault/zero.rs exists, but is not in the map of ARCHITECTURE.md
engine/src/log.rs exists, but is not in the map of ARCHITECTURE.md
engine/src/sys/uffd.rs exists, but is not in the map of ARCHITECTURE.md
policy/src/slots.rs exists, but is not in the map of ARCHITECTURE.md
tests/floors.sh has in another place than the map: sys
ARCHITECTURE.md:13: fault/one.rs does not exist
ARCHITECTURE.md:13: policy/lru/ does not exist
ARCHITECTURE.md:13: links to docs/a.md#top, a heading which does not exist
ARCHITECTURE.md:14: links to docs/b.md, which does not exist
FOUND
    )
    diff <(echo "$expected") <(differences) || {
        echo 'map.sh: the self-test found something else than was hidden (< hidden, > found)' >&2
        exit 1
    }
}

differences() {
    differences_of_map
    differences_of_order
    differences_of_documents
}

case ${1:-.} in
    --self-test) self_test ;;
    *)
        root=${1:-.}
        found=$(differences)
        [ -z "$found" ] || { printf '%s\n' "$found" >&2; exit 1; }
        ;;
esac
