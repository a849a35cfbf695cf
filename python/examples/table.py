#!/usr/bin/env python3
"""Sort, group and join a table of four times its RAM budget; with a plot of RAM and swap over time.

  table.py [--size 16G] [--ram 4G] [--swap DEVICE] [--plot table.png]

By default the table has 256 MiB and a budget of 64 MiB: 32 columns of numbers, and one of keys. `--plot` needs matplotlib,
and pandas does the work.
"""
import argparse
import threading
import time

import numpy as np
import pandas as pd

import userswap
from userswap._native import parse_size

COLUMNS = 32


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--size", default="256M", help="of the table (256M)")
    parser.add_argument("--ram", help="budget (a quarter of the table)")
    parser.add_argument("--swap", default=(), help="swap device (a temporary file)")
    parser.add_argument("--plot", help="file to draw RAM and swap over time in")
    args = parser.parse_args()
    size = parse_size(args.size)
    with userswap.Pool(args.ram or size // 4, args.swap) as pool, Recorder(pool) as recorder, pool.numpy():
        jobs(pool, size // 8 // (COLUMNS + 1), recorder)
    print(f"{recorder.pages_in:,} pages were read back")
    if args.plot:
        recorder.draw(args.plot)


def jobs(pool, rows, recorder):
    random = np.random.default_rng(1)
    keys = random.integers(0, 1000, rows)
    with recorder.step(f"make {rows:,} rows"):
        table = pd.DataFrame(random.random((COLUMNS, rows)).T, columns=[f"value{n}" for n in range(COLUMNS)])
        table["key"] = keys
    weights = pd.DataFrame({"key": np.arange(1000), "weight": np.linspace(0, 1, 1000)})
    with recorder.step("group"):
        means = table.groupby("key").mean()
    np.testing.assert_allclose(means["value0"].iloc[7], table["value0"].to_numpy()[keys == 7].mean())
    with recorder.step("join"):
        joined = table.merge(weights, on="key")
    np.testing.assert_array_equal(joined["weight"].to_numpy(), np.linspace(0, 1, 1000)[keys])
    del joined
    with recorder.step("sort"):
        ordered = table.sort_values("value0")
    assert ordered["value0"].is_monotonic_increasing and len(ordered) == rows
    print(pool)


class Recorder:
    """Looks at a pool ten times a second, in a thread of its own."""

    def __init__(self, pool):
        self.pool, self.begin, self.samples, self.steps = pool, time.perf_counter(), [], []
        self.over, self.pages_in = threading.Event(), 0
        self.thread = threading.Thread(target=self.look)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.pages_in = self.pool.counters["pswpin"]

    def look(self):
        while True:
            usage = self.pool.usage
            self.samples.append((time.perf_counter() - self.begin, usage.in_ram, usage.swapped))
            if self.over.wait(0.1):
                return

    def step(self, name):
        recorder = self

        class Step:
            def __enter__(self):
                self.begin = time.perf_counter()

            def __exit__(self, *_):
                now = time.perf_counter()
                recorder.steps.append((self.begin - recorder.begin, name))
                print(f"{name:>20} {now - self.begin:6.1f} s")

        return Step()

    def draw(self, path):
        import matplotlib

        matplotlib.use("Agg")
        from matplotlib import pyplot

        seconds, in_ram, swapped = np.array(self.samples).T
        pyplot.figure(figsize=(8, 4))
        pyplot.stackplot(seconds, in_ram / 2**20, swapped / 2**20, labels=["in RAM", "swapped"])
        for begin, name in self.steps:
            pyplot.axvline(begin, color="black", linewidth=0.5)
            pyplot.text(begin, 0, f" {name}", rotation=90, verticalalignment="bottom", fontsize=8)
        pyplot.xlabel("seconds")
        pyplot.ylabel("MiB")
        pyplot.legend(loc="upper left")
        pyplot.savefig(path)
        print(f"drawn in {path}")


if __name__ == "__main__":
    main()
