"""A table of numbers on all CPUs: groups, a join, a sort. Argument: rows."""
import sys

import polars as pl
from parts import part

count = int(sys.argv[1])


def show(name, table):
    """All bytes of the table, in the order of its rows."""
    position = pl.int_range(pl.len(), dtype=pl.UInt64)
    mixed = table.lazy().select((pl.all().cast(pl.UInt64) * (position * 2 + 1)).sum())
    print(name, table.shape, mixed.collect().row(0))


n = pl.int_range(count, eager=True)
table = pl.DataFrame({"n": n, "key": n * 7919 % 100_003, "value": n * 2_654_435_761 % 4_294_967_291})
del n
part("create")
sums = table.group_by("key").agg(pl.col("value").sum().alias("total"), pl.len()).sort("key")
show("groups", sums)
part("groupby")
joined = table.join(sums, on="key", maintain_order="left")
show("joined", joined)
part("join")
del table
show("sorted", joined.sort("value"))
part("sort")
