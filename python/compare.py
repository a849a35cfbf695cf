#!/usr/bin/env python3
"""Jobs on arrays of four times their RAM: a pool, numpy.memmap in a memory cgroup, and `userswap run`, in turns.

  sudo python/compare.py [--ram 256M] [--runs 3] [--jobs sum sort …] [--dir /var/tmp] [--userswap BINARY]

Every side runs the same code, in a process of its own, and must come to the same result. Each has `--ram` for its arrays and
64 MiB for the interpreter, which a pool does not count: memmap's cgroup and `run` have both together. `native` has all the
RAM it wants. Prints a table with medians and ranges of seconds, for docs/python.md.
"""
import argparse
import json
import mmap
import os
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import numpy as np

from userswap._native import parse_size

INTERPRETER = 64 << 20
CHUNK = 1 << 20
SIDES = ["native", "pool", "pool-signal", "run", "memmap"]


class Memory:
    """Where a side's arrays come from, and what it does with a hint."""

    def __init__(self, side, ram, directory):
        self.side, self.directory, self.pool = side, directory, None
        if side.startswith("pool"):
            import userswap

            self.pool = userswap.Pool(ram, directory, fault="signal" if side == "pool-signal" else "thread")

    def empty(self, shape, dtype):
        if self.pool:
            return self.pool.empty(shape, dtype)
        if self.side != "memmap":
            return np.empty(shape, dtype)
        file = tempfile.TemporaryFile(dir=self.directory)
        file.truncate(int(np.prod(shape)) * np.dtype(dtype).itemsize)
        return np.memmap(file, dtype, "r+", shape=shape)

    def prefetch(self, array):
        """In a thread, so that the work goes on meanwhile."""
        if self.pool:
            thread = threading.Thread(target=self.pool.prefetch, args=(array,))
            thread.start()
            return thread
        if self.side == "memmap":
            base = array.base if isinstance(array.base, np.memmap) else array
            first = (array.ctypes.data - base.ctypes.data) // mmap.PAGESIZE * mmap.PAGESIZE
            base._mmap.madvise(mmap.MADV_WILLNEED, first, array.nbytes)
        return None


def filled(memory, length, seed=0):
    """Values that do not compress, in no order."""
    array = memory.empty(length, np.uint64)
    for first in range(0, length, CHUNK):
        part = array[first : first + CHUNK]
        part[...] = np.arange(first, first + len(part), dtype=np.uint64)
        part *= np.uint64(0x9E3779B97F4A7C15)
        part ^= part >> np.uint64(29 + seed)
    return array


def job_write(memory, size):
    yield "write"
    array = filled(memory, size // 8)
    yield int(array[-1])


def job_sum(memory, size):
    array = filled(memory, size // 8)
    yield "sequential sum"
    yield int(array.sum())


def job_gather(memory, size):
    array = filled(memory, size // 8)
    order = np.random.default_rng(1).integers(0, len(array), 200_000)
    yield "random gather, 200,000 values"
    yield int(array[order].sum())


def job_update(memory, size):
    array = filled(memory, size // 8)
    yield "three passes of a += 1"
    for _ in range(3):
        array += np.uint64(1)
    yield int(array[::1000].sum())


def job_sort(memory, size):
    array = filled(memory, size // 8)
    yield "sort in place"
    array.sort()
    yield int((array[1::4097] >= array[:-1:4097]).sum())


def job_join(memory, size):
    """Of two sorted columns: both are walked through once, and what matches is written to a third."""
    rows = size // 8 // 5 * 2
    left, right = memory.empty(rows, np.int64), memory.empty(rows, np.int64)
    for first in range(0, rows, CHUNK):
        left[first : first + CHUNK] = np.arange(first, min(first + CHUNK, rows)) * 2
        right[first : first + CHUNK] = np.arange(first, min(first + CHUNK, rows)) * 3
    yield "merge join of two sorted columns"
    matches, used, low = memory.empty(rows // 2, np.int64), 0, 0
    for first in range(0, rows, CHUNK):
        keys = left[first : first + CHUNK]
        high = low + int(np.searchsorted(right[low : low + CHUNK + 1], keys[-1], "right"))
        found = keys[np.isin(keys, right[low:high], assume_unique=True)]
        matches[used : used + len(found)] = found
        used, low = used + len(found), high
    yield int(matches[:used].sum())


def job_matmul(memory, size):
    """Three square matrices that are the size together, by rows of blocks, with the next block fetched during this one."""
    length = int((size / 8 / 3) ** 0.5) // 512 * 512
    block = 512
    a, b, c = (memory.empty((length, length), np.float64) for _ in range(3))
    for first in range(0, length, block):
        rows = np.arange(first, first + block)[:, None] % 7
        a[first : first + block] = rows + np.arange(length) % 5
        b[first : first + block] = rows - np.arange(length) % 3
    yield f"matrix product, {length} x {length}, with hints"
    for row in range(0, length, block):
        part, fetched = np.zeros((block, length)), memory.prefetch(b[:block])
        for inner in range(0, length, block):
            if fetched:
                fetched.join()
            if inner + block < length:
                fetched = memory.prefetch(b[inner + block : inner + 2 * block])
            part += a[row : row + block, inner : inner + block] @ b[inner : inner + block]
        c[row : row + block] = part
    yield float(c[::97, ::89].sum())


JOBS = {name[4:]: job for name, job in list(globals().items()) if name.startswith("job_")}


def one(job, side, ram, directory):
    """In the process that is measured: what the job is called, seconds, result."""
    steps = JOBS[job](Memory(side, ram, directory), 4 * ram)
    if job == "write":
        # Making the arrays is what is measured.
        label, begin = next(steps), time.perf_counter()
    else:
        label = next(steps)
        begin = time.perf_counter()
    result = next(steps)
    print(json.dumps([label, time.perf_counter() - begin, result]))


class Cgroup:
    """A limit of memory without the kernel's swap, which numpy.memmap's pages in the page cache count toward."""

    def __init__(self, limit):
        v1 = "/sys/fs/cgroup/memory"
        self.is_v1 = os.path.exists(f"{v1}/memory.limit_in_bytes")
        self.path = f"{v1 if self.is_v1 else '/sys/fs/cgroup'}/userswap-compare-{os.getpid()}"
        os.mkdir(self.path)
        self.write("memory.limit_in_bytes" if self.is_v1 else "memory.max", limit)

    def write(self, name, value):
        with open(f"{self.path}/{name}", "w") as file:
            file.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def remove(self):
        os.rmdir(self.path)


def measure(args, job, side):
    ram = parse_size(args.ram)
    command = [sys.executable, __file__, "--one", job, side, "--ram", args.ram, "--dir", args.dir]
    group = Cgroup(ram + INTERPRETER) if side == "memmap" else None
    if side == "run":
        command = [args.userswap, "run", "--ram", str(ram + INTERPRETER), "--swap", args.dir, "--", *command]
    try:
        ended = subprocess.run(command, capture_output=True, text=True, preexec_fn=group and group.enter, timeout=args.limit)
        return json.loads(ended.stdout) if ended.returncode == 0 else [job, None, ended.stderr.strip()[-200:]]
    except subprocess.TimeoutExpired:
        return [job, None, f"more than {args.limit} s"]
    finally:
        if group:
            group.remove()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ram", default="256M")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--jobs", nargs="+", default=list(JOBS), choices=list(JOBS))
    parser.add_argument("--sides", nargs="+", default=SIDES, choices=SIDES)
    parser.add_argument("--dir", default="/var/tmp", help="on the disk that all swap and map files are on")
    parser.add_argument("--userswap", default="userswap")
    parser.add_argument("--limit", type=int, default=600, help="seconds for a run")
    parser.add_argument("--one", nargs=2, metavar=("JOB", "SIDE"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        return one(*args.one, parse_size(args.ram), args.dir)
    print("| job | " + " | ".join(args.sides) + " |\n|" + "---|" * (len(args.sides) + 1))
    for job in args.jobs:
        seconds, results, label = {side: [] for side in args.sides}, set(), job
        for _ in range(args.runs):
            for side in args.sides:
                named, taken, result = measure(args, job, side)
                if taken is None:
                    print(f"{job}, {side}: {result}", file=sys.stderr)
                else:
                    label = named
                    seconds[side].append(taken)
                    results.add(result)
        assert len(results) <= 1, f"{job}: the sides differ: {results}"
        print(f"| {label} | " + " | ".join(cell(seconds[side]) for side in args.sides) + " |", flush=True)


def cell(seconds):
    if not seconds:
        return "–"
    return f"{statistics.median(seconds):.3g} ({min(seconds):.3g}–{max(seconds):.3g})"


if __name__ == "__main__":
    main()
