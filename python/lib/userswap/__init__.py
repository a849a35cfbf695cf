"""numpy arrays with a RAM budget: what does not fit is swapped, in user space.

>>> import userswap
>>> with userswap.Pool(ram="16M") as pool:
...     a = pool.zeros(64 << 20, dtype="u1")  # four times the budget
...     a[::4096] = 1
...     int(a.sum())
16384

The whole description is in docs/python.md of the sources.
"""
from ._native import Error
from ._pool import Pool
from ._show import Usage

__all__ = ["Error", "Pool", "Usage"]
