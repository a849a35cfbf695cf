# row pandas: {python} -I {file}
# needs: python:pandas
import numpy as np
import pandas as pd

count = 1_200_000
table = pd.DataFrame({"key": np.arange(count) * 7919 % 1000, "value": np.arange(count) * 1.5,
                      "name": [f"name {n % 5000}" for n in range(count)]})
sums = table.groupby("key").value.sum()
names = table.groupby("name").value.agg(["min", "max", "count"])
joined = table.merge(sums.rename("total"), on="key").sort_values(["total", "value"])
print(sums.iloc[5], names.iloc[77].tolist(), joined.total.iloc[count // 2], len(joined))
