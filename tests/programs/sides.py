"""The sides that are compared: natively, under userswap, on the kernel's swap."""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile

import catalog
import measure
import outcome

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
TARGET = os.environ.get("CARGO_TARGET_DIR", os.path.join(ROOT, "target"))
BUDGET_SHARE = 4
BUDGET_LEAST = 16 << 20
# A run may take so many times as long as natively, and so many seconds on top.
LIMIT_TIMES, LIMIT_SECONDS = 20, 180
NATIVE_SECONDS = 300
ORDINARY = "65534"
SETPRIV = ["setpriv", f"--reuid={ORDINARY}", f"--regid={ORDINARY}", "--clear-groups"]
SWAP_SPARE = 256 << 20
# Each process of a run writes its own, in the working directory.
STATS = ".userswap.%p"


class Sides:
    """Where runs happen, and as whom."""

    def __init__(self, directory, keeps, profile):
        self.directory, self.keeps, self.profile = directory, keeps, profile
        self.userswap_path = os.path.join(directory, "userswap")
        self.kernel_swap = os.path.join(TARGET, profile, "examples", "kernel_swap")
        self.build()
        self.as_user = SETPRIV if os.geteuid() == 0 and shutil.which("setpriv") else None
        if os.geteuid() != 0:
            self.as_user = []

    def build(self):
        """The command, where an ordinary user reaches it; for timing also what runs a program on the kernel's swap."""
        command = os.environ.get("USERSWAP_PROGRAMS_COMMAND")
        parts = [] if command else [["--package", "userswap-cli"]]
        if self.profile == "release":
            parts = [*parts, ["--package", "userswap-bench", "--example", "kernel_swap"]]
        for part in parts:
            profile = ["--release"] if self.profile == "release" else []
            subprocess.run(["cargo", "build", "--quiet", *part, *profile], cwd=ROOT, check=True)
        shutil.copy(command or os.path.join(TARGET, self.profile, "userswap"), self.userswap_path)
        os.chmod(self.userswap_path, 0o755)

    def prepare(self, workload):
        problem = catalog.prepare(workload, self.built(workload))
        return problem and f"does not build: {problem}"

    def built(self, workload):
        return os.path.join(self.directory, "built", os.path.basename(workload.file))

    def budget(self, native):
        return max(BUDGET_LEAST, native.peak_bytes // BUDGET_SHARE)

    def native(self, row, user):
        return self.run(row, user, [], NATIVE_SECONDS, measure.Sampler)

    def userswap(self, row, user, fault, native):
        budget = self.budget(native)
        before = self.before(fault, budget)

        def sampler(run):
            # Until its mappings pass the budget a process has no engine, and data of its libraries comes on top.
            return measure.ShareSampler(run, self.userswap_path, dict(os.environ), 2 * budget)

        return self.run(row, user, before, self.limit(native), sampler)

    def before(self, fault, budget):
        return [self.userswap_path, "run", "--ram", str(budget), "--fault", fault, "--stats", STATS, "--"]

    def limit(self, native):
        return native.seconds * LIMIT_TIMES + LIMIT_SECONDS

    def run(self, row, user, before, limit, sampler):
        """A run in a directory of its own, which is gone afterwards."""
        with tempfile.TemporaryDirectory(dir=self.directory, ignore_cleanup_errors=True) as scratch:
            become = []
            if user == "user" and os.geteuid() == 0:
                os.chown(scratch, int(ORDINARY), int(ORDINARY))
                become = self.as_user
            os.chmod(scratch, 0o755)
            line = row.shell_line(self.built(row.workload))
            command = [*become, *before, "bash", "-c", f"exec {line}"]
            if before and row.workload.refused:
                command = [*become, *before, *line.split()]
            run = measure.execute(command, scratch, self.environment(scratch), limit, sampler)
            run.stats = read_stats(scratch)
            return run

    def environment(self, scratch):
        return {"PATH": catalog.search_path(), "LC_ALL": "C", "HOME": scratch, "TMPDIR": scratch}

    def times(self, row, rounds):
        """What all sides take, in turns: see `middle`."""
        user = row.workload.users[0]
        native = self.native(row, user)
        if native.status or row.workload.refused or user != "root":
            return {}
        budget, limit = self.budget(native), self.limit(native)
        seconds = {"native": [], "thread": [], "signal": [], "kernel": []}
        for _ in range(rounds):
            for side, found in seconds.items():
                found.append(self.timed(row, side, native, budget, limit))
        return {side: middle(found) for side, found in seconds.items()}

    def timed(self, row, side, native, budget, limit):
        """None where a run did not end as the native one does: a shell goes on where what it started was ended."""
        if side == "kernel":
            before = [self.kernel_swap, str(budget), str(budget * BUDGET_SHARE * 2 + SWAP_SPARE), self.directory]
        else:
            before = [] if side == "native" else self.before(side, budget)
        run = self.run(row, "root", before, limit, measure.Idle)
        if outcome.unlike(native, run):
            return None
        return float(run.stderr.split()[-1]) if side == "kernel" else run.seconds

    def keep(self, row, user, side, run):
        """What a failed run said, for reading."""
        if not self.keeps:
            return
        words = "".join(letter if letter.isalnum() else "-" for letter in f"{row.name} {user} {side}")
        place = os.path.join(TARGET, "programs")
        os.makedirs(place, exist_ok=True)
        with open(os.path.join(place, words + ".err"), "w", encoding="utf-8") as file:
            file.write(run.stderr)
        print(f"    kept: {file.name}", file=sys.stderr)


def read_stats(scratch):
    """Of the processes that had an engine and wrote what it did; one that dies writes nothing."""
    found = []
    for name in os.listdir(scratch):
        if name.startswith(STATS[:-2]):
            try:
                with open(os.path.join(scratch, name), encoding="utf-8") as file:
                    found.append(json.load(file))
            except (OSError, ValueError):
                pass
    return [stats for stats in found if stats.get("engaged")]


def middle(found):
    """The median of the seconds of runs that ended well, None if none did, and how many of how many did not."""
    ended = [seconds for seconds in found if seconds is not None]
    median = statistics.median(ended) if ended else None
    return {"median": median, "failed": len(found) - len(ended), "runs": len(found)}
