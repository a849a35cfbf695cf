"""Arrays of numbers: a sum, a standard deviation, a sort. Argument: numbers in each array."""
import sys
import zlib

import numpy as np
from parts import part

count = int(sys.argv[1])


def digest(numbers):
    return f"{zlib.crc32(numbers):08x}"


rng = np.random.default_rng(1)
one, other = rng.random(count), rng.random(count)
part("fill")
total = one + other
part("add")
print(total.std())
part("std")
total.sort()
part("sort")
print(digest(one), digest(other), digest(total))
part("digest")
