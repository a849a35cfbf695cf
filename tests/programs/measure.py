"""One run of one program: its output, how it ended, what it took, and what memory its processes had.

This process is the subreaper of all that a run starts, daemons too: memory is counted over all of them, and none outlives
the run. A run that takes too long is ended, and that is its result.
"""
import ctypes
import dataclasses
import json
import os
import re
import signal
import subprocess
import tempfile
import threading
import time

PR_SET_CHILD_SUBREAPER = 36
SAMPLE_SECONDS = 0.02
# Reading smaps takes the program's mmap lock, and the engine has to be asked: less often.
SHARE_SECONDS = 0.15
PAGE = 4096


@dataclasses.dataclass
class Run:
    """How a run ended."""
    stdout: bytes
    stderr: str
    status: int
    seconds: float
    timed_out: bool
    peak_bytes: int = 0        # the most anonymous memory of one process
    peak_tree_bytes: int = 0   # of all together
    managed: int = 0           # bytes that engines managed, in RAM and in swap, when there were most
    unmanaged: int = 0         # anonymous bytes beside them then
    shared: int = 0            # the most shared memory of one process, such as a heap that is mapped several times
    engaged: bool = False      # whether a process had an engine
    left: list = dataclasses.field(default_factory=list)
    stats: list = dataclasses.field(default_factory=list)


def become_subreaper():
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl(PR_SET_CHILD_SUBREAPER)")


def descendants(pid):
    """All processes below `pid`."""
    found, queue = [], [pid]
    while queue:
        above = queue.pop()
        try:
            tasks = os.listdir(f"/proc/{above}/task")
        except OSError:
            continue
        for task in tasks:
            children = slurp(f"/proc/{above}/task/{task}/children")
            below = [int(child) for child in children.split()]
            found += below
            queue += below
    return found


def slurp(path):
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def anonymous_bytes(pid):
    """Resident and swapped memory of a process that is not of files."""
    return status_bytes(pid, "RssAnon|VmSwap")


def shared_bytes(pid):
    """Resident shared memory of a process, which no engine manages."""
    return status_bytes(pid, "RssShmem")


def status_bytes(pid, fields):
    """The sum of some fields of a process's status."""
    found = re.findall(rf"^(?:{fields}):\s+(\d+) kB", slurp(f"/proc/{pid}/status"), re.M)
    return sum(int(number) << 10 for number in found)


def unmanaged_bytes(pid):
    """Anonymous bytes outside the arena, and whether there is one that is served; an arena has userfaultfd's flag."""
    outside = size = 0
    is_engaged = False
    for line in slurp(f"/proc/{pid}/smaps").splitlines():
        if line.startswith("Anonymous:"):
            size = int(line.split()[1]) << 10
        elif line.startswith("VmFlags:"):
            is_served = " um" in line
            is_engaged |= is_served
            outside += 0 if is_served else size
    return outside, is_engaged


def managed_bytes(userswap, pid, environment):
    """What the engine of a process manages, in RAM and in swap; nothing if it does not answer."""
    asked = subprocess.run([userswap, "status", str(pid), "--json"], capture_output=True, text=True,
                           env=environment, check=False)
    try:
        status = json.loads(asked.stdout)
    except ValueError:
        return 0
    pages = sum(node["resident_pages"] + node["cached_pages"] for node in status["nodes"])
    return pages * PAGE + sum(device["used_bytes"] for device in status["devices"])


class Sampler(threading.Thread):
    """Looks at the memory of all processes of a run while it runs."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.run_, self.over = run, threading.Event()

    def run(self):
        while not self.over.wait(SAMPLE_SECONDS):
            sizes = [anonymous_bytes(pid) for pid in descendants(os.getpid())]
            self.run_.peak_bytes = max([self.run_.peak_bytes, *sizes])
            self.run_.peak_tree_bytes = max(self.run_.peak_tree_bytes, sum(sizes))


class Idle:
    """Looks at nothing: for runs that are timed."""

    def __init__(self, run):
        self.over = threading.Event()

    def start(self):
        pass

    def join(self):
        pass


class ShareSampler(Sampler):
    """Looks at what part of it is managed, in processes that have an engine, or should: with `least_bytes` outside."""

    def __init__(self, run, userswap, environment, least_bytes):
        super().__init__(run)
        self.userswap, self.environment, self.least_bytes = userswap, environment, least_bytes

    def run(self):
        while not self.over.wait(SHARE_SECONDS):
            managed = unmanaged = 0
            # Before the children of a status command join them.
            for pid in descendants(os.getpid()):
                outside, is_engaged = unmanaged_bytes(pid)
                self.run_.shared = max(self.run_.shared, shared_bytes(pid))
                if is_engaged:
                    self.run_.engaged = True
                    managed += managed_bytes(self.userswap, pid, self.environment)
                if is_engaged or outside >= self.least_bytes:
                    unmanaged += outside
            if managed + unmanaged > self.run_.managed + self.run_.unmanaged:
                self.run_.managed, self.run_.unmanaged = managed, unmanaged


def is_alive(pid):
    return not slurp(f"/proc/{pid}/stat").rpartition(")")[2].startswith((" Z", " X"))


# Named so by engine/src/sys/bench/cleaner.rs.
CLEANER = "userswap-clean"


def end_all():
    """Ends what is left of a run, and returns the names of it. What switches the kernel's swap off is waited for."""
    names, until = [], time.monotonic() + 120
    while time.monotonic() < until:
        living = [pid for pid in descendants(os.getpid()) if is_alive(pid)]
        if not living:
            break
        ended = [pid for pid in living if slurp(f"/proc/{pid}/comm").strip() != CLEANER]
        names += [slurp(f"/proc/{pid}/comm").strip() for pid in ended if not names]
        for pid in ended:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        time.sleep(0.01)
    return names


def reap_orphans():
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def execute(command, directory, environment, limit, sampler=Sampler):
    """Runs `command` in `directory`, for at most `limit` seconds; `sampler` makes what looks at it meanwhile."""
    run = Run(b"", "", 0, 0.0, False)

    def stop():
        run.timed_out = True
        run.left = end_all()

    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as errors:
        started = time.monotonic()
        child = subprocess.Popen(command, cwd=directory, env=environment, stdin=subprocess.DEVNULL,
                                 stdout=out, stderr=errors, start_new_session=True)
        looking, clock = sampler(run), threading.Timer(limit, stop)
        looking.start()
        clock.start()
        try:
            run.status = child.wait()
        finally:
            run.seconds = time.monotonic() - started
            looking.over.set()
            clock.cancel()
            looking.join()
            clock.join()
            run.left += end_all()
            reap_orphans()
        out.seek(0)
        errors.seek(0)
        run.stdout = out.read()
        run.stderr = errors.read().decode("utf-8", "replace")
    return run
