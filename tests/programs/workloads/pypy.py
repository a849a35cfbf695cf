# row PyPy: pypy3 {file}
# needs: pypy3
import gc
texts = {i: ("text %d" % i) * 3 for i in range(300000)}
blocks = [bytearray([i]) * (1 << 20) for i in range(60)]
print(sum(map(len, texts.values())), sum(block[9] for block in blocks))
gc.collect()
print(sum(texts))
