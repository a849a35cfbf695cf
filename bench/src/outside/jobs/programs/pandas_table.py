"""A table of numbers: groups, a merge, a stable sort. Argument: rows."""
import sys
import zlib

import numpy as np
import pandas as pd
from parts import part

count = int(sys.argv[1])


def show(name, table):
    sums = [zlib.crc32(np.ascontiguousarray(table[column])) for column in table]
    print(name, table.shape, *(f"{column:08x}" for column in sums))


rng = np.random.default_rng(1)
table = pd.DataFrame({"key": rng.integers(0, 1000, count), "value": rng.integers(0, 1 << 40, count),
                      "other": np.arange(count)})
part("create")
show("groups", table.groupby("key").value.agg(["sum", "min", "max", "count"]))
part("groupby")
names = pd.DataFrame({"key": np.arange(1000), "weight": rng.integers(0, 100, 1000)})
merged = table.merge(names, on="key")
show("merged", merged)
part("merge")
del table
show("sorted", merged.sort_values("value", kind="stable"))
part("sort_values")
