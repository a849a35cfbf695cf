# row polars: {python} -I {file}
# needs: python:polars
import polars as pl

count = 3_000_000
table = pl.select(n=pl.int_range(count)).with_columns(
    key=pl.col("n") * 7919 % 1000, name=pl.format("name {}", pl.col("n") % 5000))
sums = table.group_by("key").agg(pl.col("n").sum().alias("total")).sort("key")
joined = table.join(sums, on="key").sort(["total", "n"])
names = joined.group_by("name").agg(pl.col("n").max(), pl.len()).sort("name")
print(sums.row(5), joined.row(count // 2), names.row(77), joined.height)
