"""Requests for arrays and views touch the bytes that they name, and no others."""
import random

import numpy as np
import userswap
from support import PAGE, RAM, TestCase, numbers, pool


def some_view(a, choose):
    """A view of an array of bytes, as people make them: slices, steps, axes turned around, windows."""
    view = a[choose.randrange(len(a)) :]
    for length in choose.sample([2, 3, 5, 64, 512, 1000, 4096, 5000], 2):
        if choose.random() < 0.6 and view.shape[-1] >= length:
            last = view.shape[-1]
            view = view[..., : last // length * length].reshape(*view.shape[:-1], last // length, length)
    for axis in range(view.ndim):
        first, last = sorted(choose.sample(range(view.shape[axis] + 1), 2)) if view.shape[axis] else (0, 0)
        step = choose.choice([1, 1, 1, 2, 3, 7]) * choose.choice([1, -1])
        part = slice(first, last)
        view = view[(slice(None),) * axis + (part,)][(slice(None),) * axis + (slice(None, None, step),)]
    if choose.random() < 0.3:
        view = view.transpose(choose.sample(range(view.ndim), view.ndim))
    return view


def spans(a):
    """How many pages an array without gaps touches."""
    first = a.__array_interface__["data"][0]
    return (first + a.nbytes - 1) // PAGE - first // PAGE + 1


class Discard(TestCase):
    def test_zeroes_what_numpy_would(self):
        of = pool()
        seed = random.randrange(1 << 32)
        choose = random.Random(seed)
        a = of.empty(96 * PAGE + 77, np.uint8)
        native = np.empty_like(a)
        for turn in range(400):
            with self.subTest(seed=seed, turn=turn):
                native[...] = numbers(len(a) // 8 + 1, turn).view("u1")[: len(a)]
                a[...] = native
                state = choose.getstate()
                view = some_view(a, choose)
                choose.setstate(state)
                some_view(native, choose)[...] = 0
                of.discard(view)
                np.testing.assert_array_equal(a, native)
        self.assertGreater(of.counters["pgdrop"], 0)

    def test_forgets_whole_pages_without_reading_them(self):
        of = pool()
        a = of.empty(4 * RAM, np.uint8)
        a[...] = 7
        before = of.counters
        of.discard(a[1:])
        self.eventually(lambda: of.usage.swapped <= PAGE)
        self.assertLessEqual(of.counters["pswpin"] - before["pswpin"], 8)
        self.assertEqual((a[0], a[1:].any()), (7, False))

    def test_leaves_read_only_arrays_alone(self):
        of = pool()
        a = of.full(10, 3)
        a.flags.writeable = False
        with self.assertRaisesRegex(ValueError, r"\(10,\) is read-only"):
            of.discard(a)
        self.assertEqual(a.sum(), 30)


class PageOut(TestCase):
    def test_takes_pages_that_are_the_views_alone(self):
        of = pool()
        a = of.full((512, 1024), 1.5)
        for view, pages in (
            (a, 1024),
            (a[3], 2),
            (a[::2], 512),
            (a[:, :512], 512),
            (a[:, 1:], 512),
            (a.T, 1024),
            (a[::-1], 1024),
            (a[:, 0], 0),
            (a[5, 1:600], 0),
            (a[5, 1:1023], 0),
            (a[5:7, :].ravel()[1:], 3),
            (a[:0], 0),
        ):
            self.assertEqual(of.page_out(view), pages * PAGE)
        self.assertEqual(of.page_out(of.zeros(5 * PAGE + 1, "u1")), 5 * PAGE)
        np.testing.assert_array_equal(a, 1.5)

    def test_pages_leave_and_come_back(self):
        of = pool()
        a = of.empty(RAM // 16, np.int64)
        a[...] = numbers(len(a))
        of.page_out(a)
        self.assertLess(of.usage.resident, RAM // 8)
        self.eventually(lambda: of.usage.in_ram < RAM // 8)
        before = of.counters
        of.prefetch(a)
        self.assertGreater(of.counters["pswpin"] - before["pswpin"], a.nbytes // PAGE * 3 // 4)
        np.testing.assert_array_equal(a, numbers(len(a)))
        self.assertLess(of.counters["pgmajfault"] - before["pgmajfault"], a.nbytes // PAGE // 16)


class Pin(TestCase):
    def test_pinned_rows_stay(self):
        of = pool()
        a = of.empty((64, 1 << 17), np.int64)  # 64 MiB in rows of 1 MiB
        a[...] = numbers(a.size).reshape(a.shape)
        of.pin(a[2:5])
        a[10:] += 1
        before = of.counters["pgmajfault"]
        np.testing.assert_array_equal(a[2:5], numbers(a.size).reshape(a.shape)[2:5])
        self.assertEqual(of.counters["pgmajfault"], before)
        of.unpin(a[2:5])
        a[10:] -= 1
        np.testing.assert_array_equal(a, numbers(a.size).reshape(a.shape))
        self.assertSwapped(of)

    def test_too_much_is_refused_and_nothing_is_pinned(self):
        of = pool()
        a = of.zeros(2 * RAM, "u1")
        for view, pages in ((a, 8192), (a.reshape(-1, 2 * PAGE)[:, 0], 4096), (a.reshape(-1, 65536), 8192)):
            with self.assertRaisesRegex(userswap.Error, f"cannot pin {pages} pages: .* room for 3072 more"):
                of.pin(view)
        of.pin(a[: RAM * 3 // 4 - PAGE])
        of.unpin(a[: RAM * 3 // 4 - PAGE])

    def test_pins_go_with_the_memory(self):
        of = pool()
        for _ in range(3):
            a = of.full(RAM // 2, 1, "u1")
            of.pin(a)
            del a
        self.eventually(lambda: of.usage.in_ram == 0)

    def test_pins_of_small_arrays_go_with_them_and_leave_their_neighbours(self):
        of = pool()
        most = RAM // PAGE * 3 // 4

        def small(number):
            with of.numpy():
                return np.full(100, number)

        for make in (lambda number: of.full(100, number), small):
            # Those that stay are in every page.
            arrays = [make(number) for number in range(2000)]
            for array in arrays[1::2]:
                of.pin(array)
                of.pin(array)
                of.pin(array[5:50])
                of.unpin(array)
            for array in arrays[::2]:
                of.unpin(array)
            kept = arrays[1:4:2] + arrays[::2]
            del arrays, array
            held = sum(spans(array) + spans(array[5:50]) for array in kept[:2])
            with self.assertRaisesRegex(userswap.Error, f"room for {most - held} more"):
                of.pin(of.zeros(2 * RAM, "u1"))
            self.assertEqual([int(array.sum()) for array in kept[:4]], [100, 300, 0, 200])
            del kept
            whole = of.zeros(most * PAGE, "u1")
            of.pin(whole)
            del whole

    def test_views_of_one_column_pin_its_pages(self):
        of = pool()
        a = of.full((256, 2048), 1.0)  # 4 pages in a row
        of.pin(a[:, 0])
        for _ in range(2):
            of.full(2 * RAM, 1, "u1")
        before = of.counters
        self.assertEqual(a[:, :512].sum(), 256 * 512)
        self.assertEqual(of.counters["pgfault"], before["pgfault"])
        a.sum()
        self.assertGreater(of.counters["pgfault"], before["pgfault"])


class Prefetch(TestCase):
    def test_tells_its_progress(self):
        of = pool()
        a = of.full(RAM, 1, "u1")
        done = []
        of._engine.prefetch((a.ctypes.data, 1, a.shape, a.strides), done.append)
        self.assertEqual(sum(done), a.nbytes)
        of.prefetch(a, progress=True)

    def test_brings_in_what_there_is_room_for(self):
        of = pool()
        a = of.empty((4 * RAM // PAGE, PAGE), "u1")
        a[...] = numbers(a.size // 8).view("u1").reshape(a.shape)
        of.page_out(a)
        before = of.counters["pswpin"]
        of.prefetch(a[:, 5])
        self.assertGreater(of.counters["pswpin"], before)
        self.eventually(lambda: of.usage.in_ram <= RAM)
        np.testing.assert_array_equal(a.ravel().view(np.int64), numbers(a.size // 8))
