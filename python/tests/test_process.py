"""Signals, forks, and the end of a process."""
import os
import subprocess
import sys
import textwrap
import unittest

from support import TestCase, run

# What every program below begins with: a pool, and an array of four budgets.
BEGIN = """
import os, sys, signal, threading, numpy as np, userswap
fault = sys.argv[1]
pool = userswap.Pool("16M", "mem:512M", fault=fault)
values = np.random.default_rng(1).integers(0, 1 << 62, 8 << 20, np.int64)
with pool.numpy():
    a = values.copy()
b = pool.empty(1 << 20, np.int64)
b[...] = values[: 1 << 20]
def check():
    assert (a == values).all() and (b == values[: 1 << 20]).all()
    counters = pool.counters
    assert counters["pswpout"] > 4096 and counters["pswpin"] > 4096, counters
def wait(child):
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
"""


def run_both(program, **options):
    return [run(BEGIN + textwrap.dedent(program), fault, **options) for fault in ("thread", "signal")]


class Fork(TestCase):
    def test_a_child_has_an_exact_copy_and_both_go_on(self):
        run_both(
            """
            child = os.fork()
            if child == 0:
                check()
                a += 1
                assert (a == values + 1).all() and pool.ram == 16 << 20
                c = pool.full(3 << 20, 2.5)
                del a
                assert (c == 2.5).all() and (b == values[: 1 << 20]).all()
                wait(os.fork() or os._exit(int((b != values[: 1 << 20]).any())))
                os._exit(0)
            a -= 1
            wait(child)
            assert (a == values - 1).all()
            a += 1
            check()
            """,
            PYTHONWARNINGS="ignore",
        )

    def test_threads_that_use_memory_meanwhile_are_not_disturbed(self):
        run_both(
            """
            import logging
            logging.basicConfig(stream=open(os.devnull, "w"))
            stop, turns, wrong = threading.Event(), [0] * 3, []
            def work(number):
                part = a[number << 20 : number + 1 << 20]
                while not stop.is_set():
                    part += 1
                    # A lock that os.register_at_fork's handlers take, held while memory is used.
                    logging.warning("%s %s", part[::1000], b[::5000])
                    part -= 1
                    with pool.numpy():
                        c = part * 2
                    pool.discard(c)
                    turns[number] += 1
                if (part != values[number << 20 : number + 1 << 20]).any():
                    wrong.append(number)
            threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
            [thread.start() for thread in threads]
            for _ in range(6):
                before = list(turns)
                child = os.fork()
                if child == 0:
                    ok = (a[4 << 20 :] == values[4 << 20 :]).all() and (b == values[: 1 << 20]).all()
                    d = pool.full(1 << 20, 1.0)
                    os._exit(0 if ok and d.sum() == 1 << 20 else 1)
                wait(child)
                while any(now == then for now, then in zip(turns, before)):
                    os.sched_yield()
            stop.set()
            [thread.join() for thread in threads]
            assert not wrong
            check()
            """,
            PYTHONWARNINGS="ignore",
        )

    def test_requests_under_way_on_other_threads_go_on(self):
        run_both(
            """
            slow = "/var/tmp"
            pool.swapon(f"{slow}:256M,pri=9,throttle=32")
            a += 0
            told, stop = [], threading.Event()
            def swapoff():
                pool._engine.swapoff(slow, lambda left, total: told.append(left))
            def prefetch():
                while not stop.is_set():
                    pool.prefetch(b)
                    pool.page_out(b)
                    pool.discard(c)
            c = pool.zeros(1 << 20)
            threads = [threading.Thread(target=work) for work in (swapoff, prefetch)]
            [thread.start() for thread in threads]
            while not told:
                os.sched_yield()
            for _ in range(3):
                child = os.fork()
                if child == 0:
                    ok = (a == values).all() and (b == values[: 1 << 20]).all() and pool.usage.swap > 700 << 20
                    os._exit(0 if ok else 1)
                wait(child)
            stop.set()
            [thread.join() for thread in threads]
            assert told[0] > told[-1] and pool.usage.swap < 700 << 20
            check()
            """,
            PYTHONWARNINGS="ignore",
        )

    def test_a_swapoff_gives_way_to_a_fault_that_holds_the_interpreter(self):
        run_both(
            """
            slow = "/var/tmp"
            full = userswap.Pool("16M", [f"{slow}:64M,pri=9,throttle=16", "mem:40M"], fault=fault)
            kept = full.full(5 << 20, 7)
            before = full.counters["pswpin"]
            late = full.zeros(6 << 20)
            def fill():
                while full.counters["pswpin"] == before:
                    os.sched_yield()
                # An item at a time: numpy lets go of the interpreter for longer work only.
                for first in range(0, len(late), 512):
                    late[first] = first
            thread = threading.Thread(target=fill, daemon=True)
            thread.start()
            try:
                full.swapoff(slow, progress=False)
                raise SystemExit("there was room")
            except userswap.Error as error:
                assert "stays in use" in str(error), error
            thread.join()
            assert (late[::512] == np.arange(0, len(late), 512)).all() and (kept == 7).all()
            assert full.counters["budget_exceeded"] == 0, full.counters
            check()
            """,
        )

    def test_several_pools_come_along_and_closed_ones_with_arrays(self):
        run_both(
            """
            others = [userswap.Pool("16M", "mem:64M") for _ in range(3)]
            arrays = [other.full(3 << 20, seed) for seed, other in enumerate(others)]
            [each.close() for each in others]
            del others[1]
            child = os.fork()
            ok = all((array == seed).all() for seed, array in enumerate(arrays))
            if child == 0:
                os._exit(0 if ok else 1)
            wait(child)
            assert ok
            check()
            """,
            PYTHONWARNINGS="ignore",
        )

    def test_multiprocessing_works_by_fork_and_by_spawn(self):
        run_both(
            """
            import multiprocessing
            def total(first):
                return int(a[first : first + (1 << 20)].sum())
            with multiprocessing.get_context("fork").Pool(3) as workers:
                totals = workers.map(total, range(0, 8 << 20, 1 << 20))
            assert totals == [int(values[first : first + (1 << 20)].sum()) for first in range(0, 8 << 20, 1 << 20)]
            with multiprocessing.get_context("spawn").Pool(1) as workers:
                assert workers.apply(np.sum, (b,)) == values[: 1 << 20].sum()
                copy = workers.apply(np.sort, (b,))
            assert (copy == np.sort(values[: 1 << 20])).all()
            check()
            """,
            PYTHONWARNINGS="ignore",
        )

    def test_programs_that_are_started_have_nothing_of_it(self):
        run_both(
            """
            import subprocess
            for options in ({}, {"preexec_fn": lambda: None}):
                assert subprocess.run(["echo", "1"], capture_output=True, **options).stdout == b"1\\n"
            check()
            """,
        )


class Signals(TestCase):
    def test_an_interrupt_ends_a_long_wait_and_leaves_all_as_it_was(self):
        for request in ("prefetch(a)", "pin(a[: 5 << 20])", "discard(a[::2])", "swapoff(slow)"):
            with self.subTest(request=request):
                run_both(INTERRUPT.replace("REQUEST", request))

    def test_what_a_progress_callback_raises_ends_the_wait(self):
        run_both(
            """
            def tell(done):
                raise LookupError(done)
            pool.page_out(a)
            try:
                pool._engine.prefetch((a.ctypes.data, 8, a.shape, a.strides), tell)
                raise SystemExit("not ended")
            except LookupError as error:
                assert error.args == (16 << 20,), error
            check()
            """,
        )

    def test_faulthandler_and_a_pool_do_not_disturb_each_other(self):
        for first in ("faulthandler.enable()", "pass"):
            for fault in ("thread", "signal"):
                if (first, fault) == ("pass", "signal"):
                    continue
                said = run(
                    f"import faulthandler\n{first}\n{BEGIN}\n"
                    + ("" if "enable" in first else "faulthandler.enable()\n")
                    + "check()\nos.kill(os.getpid(), signal.SIGSEGV)\n",
                    fault,
                    status=-11,
                )
                self.assertIn("Fatal Python error: Segmentation fault", said)


class End(TestCase):
    def test_a_process_ends_with_arrays_blocks_and_threads_under_way(self):
        run_both(
            "check()\n"
            "block = pool.numpy().__enter__()\n"
            "c = np.ones(1 << 20)\n"
            "threading.Thread(target=a.sort, daemon=True).start()\n"
        )

    def test_a_pool_under_userswap_run_is_refused(self):
        binary = os.environ.get("USERSWAP_BINARY")
        if not binary:
            print("not tested: a pool under `userswap run`, whose binary is not built", file=sys.__stdout__)
            return
        pool_there = "import userswap; userswap.Pool('16M', 'mem:64M')"
        for ram in ("16M", "1G"):
            ended = subprocess.run(
                [binary, "run", "--ram", ram, "--swap", "mem:1G", "--", sys.executable, "-c", pool_there],
                capture_output=True,
                text=True,
            )
            self.assertIn("userswap.Error: this process runs under `userswap run`", ended.stderr)

    def test_an_error_is_one_line(self):
        said = run(
            """
            import userswap
            try:
                userswap.Pool("16M", "/proc/nothing")
            except userswap.Error as error:
                print(str(error).count("\\n"), error)
            """
        )
        self.assertRegex(said, "^0 /proc: .*name a directory")


# A device so slow that the request takes seconds, and a thread that interrupts it once it has read something.
INTERRUPT = """
# A shell's background job inherits that it is ignored.
signal.signal(signal.SIGINT, signal.default_int_handler)
pool.ram = "64M"
slow = "/var/tmp"
pool.swapon(f"{slow}:256M,pri=9,throttle=16")
a += 0
pool.page_out(a)
before, device_bytes = pool.counters["pswpin"], pool.usage.swap
def interrupt():
    while pool.counters["pswpin"] == before:
        os.sched_yield()
    signal.raise_signal(signal.SIGINT)
thread = threading.Thread(target=interrupt)
thread.start()
try:
    pool.REQUEST
    raise SystemExit("not interrupted")
except KeyboardInterrupt:
    pass
# Three quarters of what the shortest request reads.
assert pool.counters["pswpin"] - before < 7680, pool.counters["pswpin"] - before
assert pool.usage.swap == device_bytes
thread.join()
pool.swapoff(slow)
pool.pin(a[-(5 << 20) :])
"""

if __name__ == "__main__":
    unittest.main()
