"""Arrays of a pool are numpy's own, hold what was written, and give their memory back."""
import gc
import os
import pickle
import tempfile
import threading
import warnings

import numpy as np
from support import RAM, TestCase, numbers, pool

FOUR_BUDGETS = 4 * RAM // 8


class Arrays(TestCase):
    def test_four_times_the_budget_is_written_sorted_and_read(self):
        for fault in ("thread", "signal"):
            with self.subTest(fault=fault), pool(fault=fault) as of:
                a = of.empty(FOUR_BUDGETS, np.int64)
                self.assertIs(type(a), np.ndarray)
                a[...] = numbers(len(a))
                np.testing.assert_array_equal(a, numbers(len(a)))
                a.sort()
                np.testing.assert_array_equal(a, np.sort(numbers(len(a))))
                self.assertSwapped(of, 3 * RAM // 4096)
                self.eventually(lambda: of.usage.in_ram <= RAM)

    def test_shapes_dtypes_and_orders_are_numpys(self):
        of = pool()
        for shape in ((), 0, 5, (3, 4), (2, 0, 3), (2, 3, 4), np.int64(7), [2, 2]):
            for dtype in ("u1", "f8", "c16", "U5", "M8[ns]", "?", [("a", "i4"), ("b", "f8", 2)]):
                for order in "CF":
                    a, native = of.zeros(shape, dtype, order), np.zeros(shape, dtype, order)
                    self.assertEqual((a.shape, a.dtype), (native.shape, native.dtype))
                    self.assertTrue(a.strides == native.strides or a.size == 0)
                    np.testing.assert_array_equal(a, native)
                    self.assertTrue(a.flags.writeable)
        np.testing.assert_array_equal(of.full((2, 3), 1.5), np.full((2, 3), 1.5))
        self.assertEqual(of.full(2, 3).dtype, np.full(2, 3).dtype)
        self.assertEqual(of.full(2, "word").tolist(), ["word", "word"])

    def test_memory_goes_with_the_last_view(self):
        of = pool()
        a = of.empty(FOUR_BUDGETS, np.int64)
        a[...] = numbers(len(a))
        view = a.reshape(8, -1)[3].view("u1")[5::2]
        content = bytes(view[:1000])
        del a
        gc.collect()
        self.assertGreater(of.usage.swapped, RAM)
        self.assertEqual(bytes(view[:1000]), content)
        del view
        gc.collect()
        self.eventually(lambda: (of.usage.in_ram, of.usage.swapped) == (0, 0))

    def test_arrays_outlive_their_pool(self):
        with pool() as of:
            a = of.empty(FOUR_BUDGETS, np.int64)
            a[...] = numbers(len(a))
        del of
        gc.collect()
        np.testing.assert_array_equal(a, numbers(len(a)))
        a += 1
        self.assertEqual(int(a[-1]), int(numbers(len(a))[-1]) + 1)

    def test_pickles_as_a_plain_array(self):
        a = pool().full((300, 7), 2.5)
        for protocol in (2, 5):
            copy = pickle.loads(pickle.dumps(a[::3], protocol))
            self.assertIs(type(copy), np.ndarray)
            np.testing.assert_array_equal(copy, a[::3])
            self.assertNotIn(b"userswap", pickle.dumps(a, protocol))

    def test_ufuncs_products_and_copies_agree_with_native(self):
        of = pool()
        a = of.empty((1000, 2100))
        native = np.random.default_rng(3).random((1000, 2100))
        a[...] = native
        np.testing.assert_array_equal(np.sin(a)[::7], np.sin(native)[::7])
        np.testing.assert_allclose(a @ a[:300].T, native @ native[:300].T)
        np.testing.assert_array_equal(a.T.copy(), native.T)
        np.testing.assert_array_equal(np.argsort(a, axis=1), np.argsort(native, axis=1))

    def test_threads_share_an_array(self):
        of = pool()
        a = of.empty(FOUR_BUDGETS, np.int64)
        parts = np.array_split(a, 4)

        def work(part, seed):
            part[...] = numbers(len(part), seed)
            part.sort()

        threads = [threading.Thread(target=work, args=(part, seed)) for seed, part in enumerate(parts)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        for seed, part in enumerate(parts):
            np.testing.assert_array_equal(part, np.sort(numbers(len(part), seed)))
        self.assertSwapped(of)


class Files(TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = os.path.join(directory.name, "values")

    def test_plain_values_are_read_from_an_offset(self):
        values = numbers(5 << 20)
        values.tofile(self.path)
        for fault in ("thread", "signal"):
            of = pool(fault=fault)
            a = of.from_file(self.path, np.int64)
            np.testing.assert_array_equal(a, values)
            self.assertSwapped(of)
        np.testing.assert_array_equal(of.from_file(self.path, "<i8", (2, 3), offset=16), values[2:8].reshape(2, 3))

    def test_npy_files_say_what_they_are(self):
        of = pool()
        for native in (np.arange(24.0).reshape(2, 3, 4), np.asfortranarray(np.ones((3, 5), "i2")), np.zeros((0, 2))):
            with open(self.path, "wb") as file:
                np.save(file, native)
            a = of.from_file(self.path)
            self.assertEqual((a.dtype, a.flags.f_contiguous), (native.dtype, native.flags.f_contiguous))
            np.testing.assert_array_equal(a, native)

    def test_names_of_npy_files_are_of_any_letters(self):
        for name in ("plain", "café", "漢", "\\漢'", "a\U0001f600"):
            native = np.zeros(3, [(name, "i4"), ("other", "f8")])
            native[name] = (1, 2, 3)
            with open(self.path, "wb") as file, warnings.catch_warnings():
                warnings.simplefilter("ignore", UserWarning)
                np.save(file, native)
            a = pool().from_file(self.path)
            self.assertEqual(a.dtype.names, (name, "other"))
            np.testing.assert_array_equal(a, native)

    def test_what_cannot_be_read_is_refused(self):
        with open(self.path, "wb") as file:
            file.write(b"abc")
        of = pool()
        for arguments, named in (
            ((self.path, "i8", 4), "3 bytes"),
            ((self.path, "i8", None, -1), "-1"),
            ((self.path,), "no .npy file"),
            ((self.path, None, 3), "shape"),
        ):
            with self.assertRaisesRegex(ValueError, named):
                of.from_file(*arguments)
        with self.assertRaises(FileNotFoundError):
            of.from_file(self.path + ".none", "i8")
        with self.assertRaises(TypeError):
            of.from_file(self.path, object)
