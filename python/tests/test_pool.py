"""What a pool says and refuses, and what can be changed while it runs."""
import contextlib
import gc
import os
import sys
import tempfile
import threading

import numpy as np
import userswap
from support import RAM, TestCase, numbers, pool


class Refusals(TestCase):
    def test_options_that_cannot_be_used_are_named(self):
        for options, kind, named in (
            ({"ram": -1}, ValueError, "ram=-1"),
            ({"ram": 0}, ValueError, "ram=0"),
            ({"ram": "much"}, ValueError, "much"),
            ({"ram": 4096}, ValueError, "budget of 4K is too small"),
            ({"ram": "900T"}, ValueError, "too large"),
            ({"ram": None}, TypeError, "None"),
            ({"ram": True}, TypeError, "True"),
            ({"ram": 2.5e9}, TypeError, "2500000000.0"),
            ({"swap": "mem"}, ValueError, "mem"),
            ({"swap": ["mem:64M", "/var/tmp:1Q"]}, ValueError, "1Q"),
            ({"swap": "/no/such/directory"}, userswap.Error, "/no/such/directory"),
            ({"swap": 5}, TypeError, "int"),
            ({"fault": "fast"}, ValueError, "fast"),
            ({"fault": None}, TypeError, "fault=None"),
            ({"io": "quick"}, ValueError, "quick"),
            ({"readahead": "all"}, ValueError, "all"),
            ({"readahead": None}, TypeError, "readahead=None"),
            ({"arena": -5}, ValueError, "arena=-5"),
            ({"compress": "1M"}, ValueError, "\"1M\" is no amount of compressed memory: use a size"),
            ({"compress": True}, TypeError, "compress=True"),
            ({"compress": -1}, ValueError, "compress=-1"),
            ({"compress": "auto", "swap": "zram:64M"}, ValueError, "zram:64M"),
            ({"encrypt": "no"}, TypeError, "encrypt='no' is neither True nor False"),
            ({"ram_max": "big"}, ValueError, "ram_max: \"big\" is not a size"),
            ({"ram_max": 0}, ValueError, "ram_max=0"),
            ({"ram_max": "900T"}, ValueError, "too large"),
        ):
            with self.subTest(options=options), self.assertRaisesRegex(kind, named):
                pool(**options)
        with self.assertRaises(TypeError):
            pool(budget=5)

    def test_shapes_and_dtypes_that_cannot_be_are_named(self):
        of = pool()
        for arguments, kind, named in (
            ((-1,), ValueError, "-1"),
            (((3, -2),), ValueError, r"\(3, -2\)"),
            (("wide",), TypeError, "wide"),
            ((2.5,), TypeError, "2.5"),
            ((None,), TypeError, "None"),
            ((3, "no such type"), TypeError, "no such type"),
            ((3, object), TypeError, "object"),
            ((3, [("a", "O")]), TypeError, "O"),
            ((3, "f8", "K"), ValueError, "'K'"),
            ((1 << 60,), MemoryError, str(1 << 60)),
            ((1 << 39,), MemoryError, "no address space"),
        ):
            with self.subTest(arguments=arguments), self.assertRaisesRegex(kind, named):
                of.empty(*arguments)

    def test_arrays_of_others_are_refused(self):
        of, other = pool(), pool()
        theirs, native = other.zeros(10), np.zeros(10)
        for request in (of.prefetch, of.page_out, of.pin, of.unpin, of.discard):
            for array in (theirs, native, native[::2], np.ones(())):
                with self.assertRaisesRegex(ValueError, "at 0x[0-9a-f]+ is not of this pool"):
                    request(array)
            for thing in ([1, 2], None, "text"):
                with self.assertRaisesRegex(TypeError, type(thing).__name__):
                    request(thing)
        self.assertEqual(native.sum(), 0)

    def test_views_that_reach_outside_are_refused(self):
        of = pool()
        a = of.full(1000, 1, "u1")
        for shape, strides in (((2, 2), (1 << 40, 1)), ((2,), (-1 << 40,)), ((1 << 45,), (1,)), ((1 << 40, 9), (1 << 40, 1))):
            beyond = np.lib.stride_tricks.as_strided(a, shape, strides)
            for request in (of.prefetch, of.page_out, of.pin, of.unpin, of.discard):
                with self.assertRaisesRegex(ValueError, "not of this pool"):
                    request(beyond)
        self.assertEqual(a.sum(), 1000)

    def test_a_closed_pool_says_so(self):
        of = pool()
        a = of.full(10, 1.0)
        of.close()
        of.close()
        for act in (
            lambda: of.empty(3),
            lambda: of.prefetch(a),
            lambda: of.discard(a),
            lambda: of.usage,
            lambda: of.counters,
            lambda: of.numpy(),
            lambda: of.ram,
            lambda: setattr(of, "ram", "1G"),
            lambda: of.swapon("mem:64M"),
        ):
            with self.assertRaisesRegex(ValueError, "closed"):
                act()
        self.assertIn("closed", repr(of))
        self.assertIn("closed", of._repr_html_())
        self.assertEqual(a.sum(), 10)


class Running(TestCase):
    def test_the_budget_changes_and_content_stays(self):
        of = pool(ram="64M")
        a = of.empty(6 << 20, np.int64)
        a[...] = numbers(len(a))
        for ram in ("16M", 48 << 20, "32M"):
            of.ram = ram
            np.testing.assert_array_equal(a, numbers(len(a)))
        self.assertEqual((of.ram, of.usage.ram), (32 << 20, 32 << 20))
        self.assertSwapped(of)
        with self.assertRaisesRegex(ValueError, "ram=-3"):
            of.ram = -3
        with self.assertRaises(ValueError):
            of.ram = "1K"
        self.assertEqual(of.ram, 32 << 20)

    def test_compressed_memory_is_in_front_and_in_the_budget(self):
        of = pool(compress="8M")
        a = of.empty(4 * RAM // 8, np.int64)
        a[...] = np.arange(len(a))
        usage = of.usage
        self.assertGreater(of.counters["zswpout"], 0)
        self.assertTrue(0 < usage.compressed <= 8 << 20, usage)
        self.assertLessEqual(usage.in_ram + usage.compressed, usage.ram + usage.debt)
        self.assertIn("compressed", of._repr_html_())
        np.testing.assert_array_equal(a, np.arange(len(a)))
        self.assertGreater(of.counters["zswpin"], 0)
        self.assertEqual(pool(compress=8 << 20).usage.compressed, 0)

    def test_what_is_encrypted_cannot_be_read(self):
        for encrypt in (False, True):
            with self.subTest(encrypt=encrypt), tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
                path = os.path.join(directory, "swap")
                of = pool(swap=f"{path}:64M", encrypt=encrypt)
                a = of.empty(1 << 19, np.int64)
                a[...] = numbers(len(a))
                self.assertEqual(of.page_out(a), a.nbytes)
                self.eventually(lambda: of.usage.writing == 0)
                with open(path, "rb") as file:
                    self.assertEqual(numbers(len(a))[:512].tobytes() in file.read(), not encrypt)
                np.testing.assert_array_equal(a, numbers(len(a)))

    def test_the_budget_can_grow_to_what_was_said(self):
        of = pool(ram_max="512M")
        a = of.empty(3 * RAM // 8, np.int64)
        a[...] = numbers(len(a))
        of.ram = "512M"
        np.testing.assert_array_equal(a, numbers(len(a)))
        reads = of.counters["pswpin"]
        np.testing.assert_array_equal(a, numbers(len(a)))
        self.assertEqual((of.ram, of.counters["pswpin"]), (512 << 20, reads))
        with self.assertRaisesRegex(ValueError, "64G is too large"):
            pool().ram = "64G"

    def test_devices_come_and_go(self):
        with tempfile.TemporaryDirectory(dir="/var/tmp") as directory:
            first, second = (os.path.join(directory, name) for name in ("first", "second"))
            of = pool(swap=f"{first}:256M")
            a = of.empty(3 * RAM // 8, np.int64)
            a[...] = numbers(len(a))
            self.assertGreater(of.usage.swapped, 0)
            of.swapon(f"{second}:256M")
            of.swapoff(first, progress=False)
            self.assertEqual(of.usage.swap < 300 << 20, True)
            np.testing.assert_array_equal(a, numbers(len(a)))
            with self.assertRaisesRegex(ValueError, "nothing-here"):
                of.swapoff("nothing-here")
            with self.assertRaisesRegex(userswap.Error, "room"):
                of.swapoff(second)
            np.testing.assert_array_equal(a, numbers(len(a)))
            with self.assertRaises(ValueError):
                of.swapon("mem:")
            self.assertSwapped(of)

    def test_settings_are_those_of_the_command(self):
        of = pool()
        self.assertEqual(of.set("swap_ra_policy", "off"), "off")
        with self.assertRaisesRegex(ValueError, "no_such_key"):
            of.set("no_such_key", 1)

    def test_a_pool_shows_itself(self):
        of = pool(ram="32M")
        a = of.full(5 << 20, 1.0)
        self.assertRegex(repr(of), r"^<userswap.Pool ram=32M in use=[\d.]+M swapped=[\d.]+M>$")
        html = of._repr_html_()
        for word in ("userswap.Pool", "in RAM", "swapped", "faults", "</table>"):
            self.assertIn(word, html)
        self.assertEqual(of.usage._asdict().keys(), userswap.Usage._fields and dict.fromkeys(userswap.Usage._fields).keys())
        self.assertEqual(a.sum(), 5 << 20)

    def test_engines_end_with_their_last_array(self):
        def threads():
            return len(os.listdir("/proc/self/task"))

        gc.collect()
        before = threads()
        with contextlib.ExitStack() as stack:
            arrays = [stack.enter_context(pool()).full(1 << 20, 1.0)[5:] for _ in range(3)]
        self.assertGreater(threads(), before)
        del arrays, stack
        gc.collect()
        self.assertEqual(threads(), before)

    def test_threads_call_one_pool_at_once_and_one_closes_it(self):
        of = pool(ram="32M")
        a = of.empty((8, 1 << 20), np.int64)
        failures, closed, start = [], [], threading.Barrier(9)

        def call(row):
            part, stamp = a[row], 0
            start.wait()
            try:
                while True:
                    stamp += 1
                    part[...] = np.arange(len(part)) + stamp
                    of.pin(part[:1000])
                    of.prefetch(a[(row + 1) % 8, : 1 << 17])
                    of.page_out(part)
                    of.unpin(part[:1000])
                    of.usage, of.counters, repr(of), of._repr_html_()
                    with of.numpy():
                        b = part * 2
                    of.discard(b[::2])
                    of.ram = (24 + row) << 20
                    if (part != np.arange(len(part)) + stamp).any() or b[::2].any() or (b[1::2] != part[1::2] * 2).any():
                        raise AssertionError(f"wrong content in row {row}, turn {stamp}")
                    turns[row] += 1
            except ValueError as error:
                closed.append(str(error))
            except BaseException as error:
                failures.append(error)
                turns[row] = 3

        turns = [0] * 8
        threads = [threading.Thread(target=call, args=(row,)) for row in range(8)]
        interval = sys.getswitchinterval()
        self.addCleanup(sys.setswitchinterval, interval)
        sys.setswitchinterval(1e-5)
        for thread in threads:
            thread.start()
        start.wait()
        self.eventually(lambda: min(turns) >= 3)
        of.close()
        for thread in threads:
            thread.join()
        self.assertEqual(failures, [])
        self.assertEqual(set(closed), {"this pool is closed: make another one"})
        self.assertEqual(len(closed), 8)

    def test_a_control_socket_is_there_if_wanted_as_long_as_the_engine(self):
        from support import run

        for lets_go in ("pass", "del pool; gc.collect()", "pool.close()"):
            with self.subTest(lets_go=lets_go), tempfile.TemporaryDirectory() as directory:
                run(
                    f"""
                    import gc, os, userswap
                    def sockets():
                        files = (file for _, _, files in os.walk(os.environ["XDG_RUNTIME_DIR"]) for file in files)
                        return [file for file in files if file.split(".")[0] == str(os.getpid())]
                    pool = userswap.Pool("16M", "mem:64M", control=True)
                    a = pool.full(3 << 20, 1.5)
                    assert len(sockets()) == 1
                    {lets_go}
                    assert len(sockets()) == 1
                    # In the child it is its own that goes.
                    child = os.fork()
                    if child == 0:
                        assert len(sockets()) == 1
                        raise SystemExit(0)
                    assert os.waitpid(child, 0)[1] == 0 and len(sockets()) == 1 and a.sum() == 4.5 * (1 << 20)
                    """,
                    XDG_RUNTIME_DIR=directory,
                    PYTHONWARNINGS="ignore",
                )
                self.assertEqual([name for _, _, files in os.walk(directory) for name in files], [])
