"""What the tests share: pools small enough that their arrays do not fit, and programs of their own process."""
import os
import subprocess
import sys
import textwrap
import time
import unittest

import numpy as np

import userswap

RAM = 16 << 20
PAGE = 4096


def pool(**options):
    """A pool of the smallest budget, with swap in memory."""
    return userswap.Pool(**{"ram": RAM, "swap": "mem:512M", **options})


def numbers(length, seed=1):
    """Values that do not compress, and are the same each time."""
    return np.random.default_rng(seed).integers(0, 1 << 62, length, np.int64)


def run(program, *arguments, status=0, timeout=120, **environment):
    """The output of a Python program of its own process, which must end with the status named."""
    ended = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), *arguments],
        capture_output=True,
        text=True,
        timeout=timeout,
        env={**os.environ, **environment},
        cwd="/",
    )
    if ended.returncode != status:
        raise AssertionError(f"status {ended.returncode}, not {status}:\n{ended.stdout}{ended.stderr}")
    return ended.stdout + ended.stderr


class TestCase(unittest.TestCase):
    def eventually(self, condition):
        """Writes that are under way hold their pages until they have ended."""
        end = time.monotonic() + 60
        while not condition():
            self.assertLess(time.monotonic(), end, "it never came true")
            os.sched_yield()

    def assertSwapped(self, of, pages=1):
        """Content really went to a device and came back."""
        counters = of.counters
        self.assertGreaterEqual(counters["pswpout"], pages)
        self.assertGreaterEqual(counters["pswpin"], pages)
