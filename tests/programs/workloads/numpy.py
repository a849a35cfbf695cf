# row numpy: {python} -I {file}
# needs: python:numpy
import numpy as np

numbers = np.random.default_rng(1).random((3000, 3000))
product = numbers.astype(np.float32)[:400] @ numbers.astype(np.float32)
ordered = np.sort(numbers.ravel())
print(round(float(product.sum()), -2), ordered[::1000000].tolist(), float(np.median(numbers)))
