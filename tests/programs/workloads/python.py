# row CPython: python3 {file}
# needs: python3
# short:
d = {i: str(i) * 4 for i in range(500000)}
for i in range(0, 500000, 7):
    assert d[i] == str(i) * 4, i
b = bytearray(48 << 20)
for i in range(0, len(b), 4096):
    b[i] = i >> 12 & 255
for i in range(0, len(b), 4096):
    assert b[i] == i >> 12 & 255, i
b += bytes(b)
print(sum(len(v) for v in d.values()), sum(b[::4096]), len(b))
