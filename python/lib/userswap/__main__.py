"""`python -m userswap`: an array of four times its RAM is written, sorted and verified; then a short report."""
from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator

import numpy as np

from . import Error, Pool
from ._native import parse_size
from ._show import size

# Blocks that are made and checked one by one, so that the check needs no second array.
BLOCK = 1 << 17
BUDGETS = 4


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m userswap", description=__doc__)
    parser.add_argument("--ram", default="64M", metavar="SIZE", help="budget (64M); the array has four times as much")
    parser.add_argument("--swap", action="append", default=[], metavar="DEVICE", help="PATH[:SIZE] or mem:SIZE")
    parser.add_argument("--fault", default="thread", help="thread or signal")
    args = parser.parse_args()
    try:
        with Pool(args.ram, args.swap, fault=args.fault) as pool:
            return demo(pool, parse_size(args.ram) * BUDGETS // (8 * BLOCK) * BLOCK)
    except (Error, ValueError) as error:
        print(f"userswap: {error}", file=sys.stderr)
        return 1


def demo(pool: Pool, length: int) -> int:
    print(f"{size(length * 8)} of uint64 with {size(pool.ram)} of RAM: {pool!r}")
    array = pool.empty(length, dtype=np.uint64)
    begin = time.perf_counter()
    for first, block in blocks(length):
        array[first : first + BLOCK] = block
    report("written", array.nbytes, begin)
    begin = time.perf_counter()
    wrong = sum(int(np.count_nonzero(array[first : first + BLOCK] != block)) for first, block in blocks(length))
    report("verified", array.nbytes, begin)
    begin = time.perf_counter()
    array.sort()
    report("sorted", array.nbytes, begin)
    wrong += wrong_after_sort(array)
    counters = pool.counters
    print(f"pages read {counters['pswpin']:,}, written {counters['pswpout']:,}, faults {counters['pgfault']:,}; {pool!r}")
    print(f"FAILED: {wrong} values are wrong" if wrong else "every value is right")
    return 1 if wrong else 0


def blocks(length: int) -> Iterator[tuple[int, np.ndarray]]:
    """The same values each time: the first positions of blocks, and random numbers."""
    for first in range(0, length, BLOCK):
        yield first, np.random.default_rng(first).integers(0, 1 << 64, BLOCK, np.uint64)


def wrong_after_sort(array: np.ndarray) -> int:
    """Values out of order, and one if the sum is another one."""
    wrong, last, total = 0, np.uint64(0), np.uint64(0)
    for first in range(0, len(array), BLOCK):
        block = array[first : first + BLOCK]
        wrong += int(block[0] < last) + int(np.count_nonzero(block[1:] < block[:-1]))
        last = block[-1]
        total += block.sum(dtype=np.uint64)
    right = np.uint64(0)
    for _, block in blocks(len(array)):
        right += block.sum(dtype=np.uint64)
    return wrong + int(total != right)


def report(what: str, done: int, begin: float) -> None:
    seconds = time.perf_counter() - begin
    print(f"{what:>9} in {seconds:5.1f} s, {done / seconds / 1e6:7,.0f} MB/s", flush=True)


if __name__ == "__main__":
    # Sums of uint64 are taken modulo 2^64 on purpose.
    with np.errstate(over="ignore"):
        sys.exit(main())
