"""pandas and scikit-learn on top of pool.numpy(): the same results as natively, with a quarter of the memory."""
import unittest

import numpy as np
import pandas as pd
from support import RAM, TestCase, numbers, pool

# 64 columns, each of which fits the budget: the sort of a table that is taller than RAM takes every row by a fault, minutes.
COLUMNS = 64
ROWS = 4 * RAM // 8 // COLUMNS


def table():
    values = numbers(ROWS * COLUMNS).astype(np.float64).reshape(ROWS, COLUMNS, order="F")
    rows = pd.DataFrame(values, columns=[f"value{number}" for number in range(COLUMNS)])
    return rows.assign(key=numbers(ROWS, 2) % 5000, order=numbers(ROWS, 3))


def small():
    return pd.DataFrame({"key": np.arange(5000), "weight": np.linspace(0, 1, 5000)})


class Pandas(TestCase):
    def same(self, work, equal=pd.testing.assert_frame_equal):
        native = work(table())
        for fault in ("thread", "signal"):
            of = pool(fault=fault)
            with of.numpy():
                managed = work(table())
            equal(managed, native)
            self.assertSwapped(of, RAM // 4096)

    def test_groupby(self):
        self.same(lambda rows: rows.groupby("key").agg(["sum", "std", "min", "count"]))

    def test_merge(self):
        self.same(lambda rows: rows.merge(small(), on="key", how="left"))

    def test_sort_values(self):
        self.same(lambda rows: rows.sort_values(["key", "order"], kind="stable"))

    def test_columns_are_of_the_pool(self):
        of = pool()
        with of.numpy():
            rows = table()
        of.pin(rows["key"].to_numpy()[:1000])
        with self.assertRaisesRegex(TypeError, "DataFrame is not a numpy.ndarray"):
            of.prefetch(rows)


class ScikitLearn(TestCase):
    def test_a_scaled_regression(self):
        from sklearn.linear_model import Ridge
        from sklearn.preprocessing import StandardScaler

        def work():
            x = np.random.default_rng(1).random((ROWS * COLUMNS // 48, 12))
            y = x @ np.arange(12.0)
            return Ridge(solver="cholesky").fit(StandardScaler().fit_transform(x), y).coef_

        native = work()
        of = pool()
        with of.numpy():
            managed = work()
        np.testing.assert_allclose(managed, native)
        self.assertSwapped(of)


if __name__ == "__main__":
    unittest.main()
