"""Within pool.numpy() numpy allocates from the pool, for whoever calls it, and the arrays outlive everything."""
import gc
import threading

import numpy as np
from support import RAM, TestCase, numbers, pool

FOUR_BUDGETS = 4 * RAM // 8
LARGE = 1 << 20
# What small arrays of numpy's own may hold, in bytes.
SLABS = 1 << 20


def is_managed(of, array):
    try:
        of.prefetch(array)
    except ValueError:
        return False
    return True


class Numpy(TestCase):
    def test_what_is_computed_is_managed_and_right(self):
        for fault in ("thread", "signal"):
            of = pool(fault=fault)
            native = numbers(FOUR_BUDGETS)
            with of.numpy():
                a = native.copy()
                b = np.concatenate([a, a[::-1]]).reshape(2, -1)
                c = np.sort(b, axis=1) + np.ones(b.shape, np.int64)
            for array in (a, b, c):
                self.assertTrue(is_managed(of, array))
            np.testing.assert_array_equal(c[0], np.sort(native) + 1)
            np.testing.assert_array_equal(c[0], c[1])
            self.assertFalse(is_managed(of, native + 1))
            self.assertSwapped(of)

    def test_arrays_outlive_the_block_and_the_pool(self):
        with pool() as of, of.numpy():
            a = numbers(FOUR_BUDGETS)
        del of
        gc.collect()
        np.testing.assert_array_equal(a, numbers(FOUR_BUDGETS))
        a.resize(FOUR_BUDGETS // 2, refcheck=False)
        np.testing.assert_array_equal(a, numbers(FOUR_BUDGETS)[: len(a)])

    def test_memory_is_given_back(self):
        of = pool()
        with of.numpy():
            a = np.ones(LARGE)
            empty = of.usage.in_ram
            for _ in range(5):
                a = a * 1.5
            del a
            gc.collect()
        self.assertGreater(empty, 0)
        self.eventually(lambda: of.usage.in_ram < SLABS)

    def test_temporary_arrays_take_no_faults(self):
        of = pool()
        with of.numpy():
            a = np.ones(20_000)
            b = a + 1
            before = of.counters["pgfault"]
            for _ in range(100):
                b = a + 1
            self.assertLess(of.counters["pgfault"] - before, 100)
            np.testing.assert_array_equal(b, 2)
            for length in (20_000, 19_000, 16_000, 5_000, 120_000):
                np.full(length, 7)
                self.assertFalse(np.zeros(length).any())

    def test_what_is_kept_is_little_whatever_the_sizes(self):
        of = pool(ram="64M")
        with of.numpy():
            for length in range(20_000, 500_000, 1_000):
                np.ones(length)
            for length in [70_000] * 100:
                arrays = [np.ones(length) for _ in range(60)]
            del arrays
        self.eventually(lambda: of.usage.in_ram < (64 << 20) // 16 + SLABS)
        of.ram = "16M"
        with of.numpy():
            np.ones(20_000)
        self.eventually(lambda: of.usage.in_ram < RAM // 16 + SLABS)

    def test_pins_go_with_arrays_that_numpy_made(self):
        of = pool()
        with of.numpy():
            for length in (3_000, 20_000, 80_000, 40_000):
                a = np.ones(length)
                del a
                a = np.ones(length)
                of.pin(a)
                del a
        large = of.zeros(RAM, "u1")
        of.pin(large[: RAM * 3 // 4 - 32 * 4096])

    def test_arrays_grow_and_shrink_in_place(self):
        of = pool()
        lengths = [10, 5000, 20_000, 40_000, LARGE, 2 * LARGE, 700_000, 16_385, 16_384, 16_383, 1, 0, 30_000]
        with of.numpy():
            a = np.zeros(10, np.int64)
        native = np.zeros(10, np.int64)
        for seed, length in enumerate(lengths):
            for array in (a, native):
                array[:] = numbers(len(array), seed)
                array.resize(length, refcheck=False)
            np.testing.assert_array_equal(a, native)
            self.assertTrue(is_managed(of, a))
        with of.numpy():
            np.testing.assert_array_equal(np.fromiter(range(300_000), np.int64), np.arange(300_000))

    def test_blocks_nest_also_of_other_pools(self):
        first, second = pool(), pool()
        with first.numpy():
            with second.numpy():
                with first.numpy():
                    a = np.ones(LARGE)
                b = np.ones(LARGE)
            c = np.ones(LARGE)
        d = np.ones(LARGE)
        with first.numpy(), first.numpy():
            e = np.ones(LARGE)
        f = np.ones(LARGE)
        for array, owner in ((a, first), (b, second), (c, first), (d, None), (e, first), (f, None)):
            self.assertEqual([is_managed(of, array) for of in (first, second)], [owner is first, owner is second])

    def test_an_exception_ends_the_block(self):
        of = pool()
        with self.assertRaises(ZeroDivisionError), of.numpy():
            1 // 0
        self.assertFalse(is_managed(of, np.ones(LARGE)))

    def test_other_threads_choose_for_themselves(self):
        of = pool()
        made = {}

        def plain():
            made["plain"] = np.ones(LARGE)

        def managed(seed):
            with of.numpy():
                made[seed] = np.sort(numbers(LARGE, seed))

        with of.numpy():
            threads = [threading.Thread(target=plain)]
            threads += [threading.Thread(target=managed, args=(seed,)) for seed in range(4)]
            [thread.start() for thread in threads]
            [thread.join() for thread in threads]
        self.assertFalse(is_managed(of, made["plain"]))
        for seed in range(4):
            self.assertTrue(is_managed(of, made[seed]))
            np.testing.assert_array_equal(made[seed], np.sort(numbers(LARGE, seed)))
        self.assertSwapped(of)

    def test_arrays_end_on_other_threads(self):
        of = pool()
        with of.numpy():
            arrays = [np.full(LARGE, seed) for seed in range(8)]

        def end():
            while arrays:
                arrays.pop()

        threads = [threading.Thread(target=end) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        gc.collect()
        self.eventually(lambda: of.usage.in_ram + of.usage.swapped < SLABS)

    def test_objects_live_on_managed_memory(self):
        of = pool()
        with of.numpy():
            a = np.array([str(number) for number in range(100_000)], dtype=object)
        of.full(2 * RAM, 1, "u1")
        gc.collect()
        self.assertEqual("".join(a[::9999]), "".join(str(number) for number in range(0, 100_000, 9999)))
        with self.assertRaisesRegex(TypeError, "object"):
            of.discard(a)

    def test_what_is_too_large_is_a_memory_error(self):
        of = pool(arena="64M")
        with of.numpy():
            with self.assertRaises(MemoryError):
                np.zeros(1 << 28)
            a = np.ones(LARGE)
            with self.assertRaises(MemoryError):
                a.resize(1 << 28, refcheck=False)
        self.assertEqual(a.sum(), LARGE)
