"""What was found: lines on the terminal, results that later runs add to, and docs/programs.md."""
import fcntl
import json
import os

import outcome
from sides import ROOT, TARGET

PLACE = os.path.join(TARGET, "programs", "results.json")
DOCUMENT = os.path.join(ROOT, "docs", "programs.md")
COLUMNS = [("root", "thread"), ("root", "signal"), ("user", "thread"), ("user", "signal")]


class Found:
    """What was found about one row."""

    def __init__(self, row):
        self.row = row
        self.data = {"cells": {}, "notes": {}, "peak": 0, "share": None, "seconds": None, "times": {}}

    def note(self, user, text):
        self.data["notes"][user] = text

    def native(self, run):
        self.data["peak"] = max(self.data["peak"], run.peak_bytes)

    def cell(self, user, fault, verdict, run):
        known = self.row.workload.known.get(f"{user}/{fault}")
        self.data["cells"][f"{user}/{fault}"] = {
            "word": verdict.word, "bad": verdict.is_bad, "detail": verdict.detail, "known": known}
        part = outcome.share(run)
        if self.data["share"] is None:
            self.data["share"] = part

    def times(self, seconds):
        self.data["times"] = seconds

    def show(self):
        """Prints the row, and counts what failed."""
        data, failed = self.data, 0
        words = [f"{key} {cell['word']}" for key, cell in data["cells"].items()]
        part = "" if data["share"] is None else f", {data['share']:.0%} managed"
        size = f": {data['peak'] >> 20} MiB{part}: {'; '.join(words)}" if words else ""
        print(f"{self.row.name}{size}", flush=True)
        for user, text in data["notes"].items():
            if user != "all":
                print(f"    {user}: {text}")
        for key, cell in data["cells"].items():
            if cell["bad"]:
                failed += cell["known"] is None
                print(f"    {key}: {cell['word']}: {cell['detail']}" + (" (known)" if cell["known"] else ""))
            elif cell["known"]:
                print(f"    {key}: works now: remove its line \"known {key}\" from {self.row.workload.file}")
        if data["times"]:
            print("    seconds: " + ", ".join(f"{side} {seconds(value)}" for side, value in data["times"].items()))
        return failed


def seconds(found):
    if found is None:
        return "–"
    words = [] if found["median"] is None else [f"{found['median']:.2f}"]
    if found["failed"]:
        words.append(f"{found['failed']} of {found['runs']} died")
    return ", ".join(words)


class Results:
    """All rows that were run, by name."""

    def __init__(self, rows):
        self.rows = rows

    @classmethod
    def load(cls):
        try:
            with open(PLACE, encoding="utf-8") as file:
                return cls(json.load(file))
        except (OSError, ValueError):
            return cls({})

    def begin(self, row):
        found = Found(row)
        before = self.rows.get(row.name)
        if before:
            found.data["times"] = before["times"]
        self.rows[row.name] = found.data
        return found

    def save(self, row):
        """Puts one row beside what is there by now: several of these may run."""
        os.makedirs(os.path.dirname(PLACE), exist_ok=True)
        with open(PLACE + ".lock", "w", encoding="utf-8") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            self.rows = {**Results.load().rows, row.name: self.rows[row.name]}
            with open(PLACE, "w", encoding="utf-8") as file:
                json.dump(self.rows, file, indent=1)


def write(results, rows):
    """The table between the two marks of docs/programs.md: what was not run now stays as it stands there."""
    head = ["program", "memory", "managed", *("/".join(column) for column in COLUMNS),
            "native s", "thread", "signal", "kernel's swap"]
    with open(DOCUMENT, encoding="utf-8") as file:
        text = file.read()
    before, begin, rest = text.partition("<!-- table -->\n")
    table, end, after = rest.partition("<!-- end of table -->")
    known = {line.split(" | ")[0].removeprefix("| "): line for line in table.splitlines()}
    lines = ["| " + " | ".join(head) + " |", "|---" * len(head) + "|"]
    lines += filter(None, (line(row, results.rows.get(row.name), known.get(row.name)) for row in rows))
    with open(DOCUMENT, "w", encoding="utf-8") as file:
        file.write(before + begin + "\n".join(lines) + "\n" + end + after)


def line(row, data, known):
    """A row of the table; `known` is how it stands there."""
    if data is None:
        return known
    times = [seconds(data["times"].get(side)) for side in ("native", "thread", "signal", "kernel")]
    if not data["cells"] and not data["notes"] and known:
        return " | ".join([*known.split(" | ")[:-len(times)], *times]) + " |"
    cells = [cell_text(data, user, fault) for user, fault in COLUMNS]
    part = "–" if data["share"] is None else f"{data['share']:.0%}"
    size = f"{data['peak'] >> 20} MiB" if data["peak"] else "–"
    return "| " + " | ".join([row.name, size, part, *cells, *times]) + " |"


def cell_text(data, user, fault):
    cell = data["cells"].get(f"{user}/{fault}")
    if cell is None:
        return data["notes"].get(user) or data["notes"].get("all") or "–"
    return f"**{cell['word']}**" if cell["bad"] else cell["word"]
