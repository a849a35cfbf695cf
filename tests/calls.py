#!/usr/bin/env python3
"""Holds the acts of the engine to their floors: a method of Core is called only from its own room and those above it.

calls.py [DIR]       names each call that goes up, as FILE:LINE, and fails if there is one
calls.py --self-test

Such a call needs no import, so floors.sh cannot see it. The order of the rooms is the one in floors.sh.
"""
import pathlib
import re
import sys
import tempfile

HERE = pathlib.Path(__file__).parent
ORDER = re.search(r"^FLOORS='([^']+)'", (HERE / "floors.sh").read_text(), re.M).group(1).split()
FLOOR = {room: floor for floor, room in enumerate(ORDER)}


def code_of(path):
    """The code of a file without comments and without its tests; lines keep their numbers."""
    text = re.sub(r"//[^\n]*", "", path.read_text())
    return text.split("#[cfg(test)]\nmod tests", 1)[0]


def calls_up(source):
    rooms = lambda path: path.relative_to(source).parts[0]
    files = {path: code_of(path) for path in sorted(source.rglob("*.rs")) if rooms(path) in FLOOR}
    home = {}
    for path, code in files.items():
        for block in re.findall(r"^impl Core \{\n(.*?)^\}", code, re.S | re.M):
            for name in re.findall(r"^    (?:pub(?:\([a-z]+\))? )?fn (\w+)", block, re.M):
                home[name] = path
    found = []
    for path, code in files.items():
        if not re.search(r"\bCore\b", code):
            continue
        own = set(re.findall(r"\bfn (\w+)", code))
        for call in re.finditer(r"\b(?:self|core|self\.core|shared\.core)\s*\.(\w+)\(", code):
            name = call.group(1)
            if name in home and name not in own and FLOOR[rooms(path)] > FLOOR[rooms(home[name])]:
                line = code[: call.start()].count("\n") + 1
                found.append(f"{path}:{line}: {name} is an act of {home[name].relative_to(source)}, above")
    return found


def self_test():
    with tempfile.TemporaryDirectory() as directory:
        source = pathlib.Path(directory)
        for name, code in {
            "fault/serve.rs": "impl Core {\n    fn serve(&self) {\n        self.unmap();\n    }\n}\n",
            "transfer/unmap.rs": "impl Core {\n    fn unmap(&self) {\n        self.serve();\n    }\n}\n",
        }.items():
            (source / name).parent.mkdir()
            (source / name).write_text(code)
        found = calls_up(source)
    assert len(found) == 1 and "transfer/unmap.rs:3: serve" in found[0], found


if sys.argv[1:] == ["--self-test"]:
    self_test()
else:
    upward = calls_up(pathlib.Path(sys.argv[1] if len(sys.argv) > 1 else "engine/src"))
    print("\n".join(upward), end="\n" if upward else "")
    sys.exit(bool(upward))
