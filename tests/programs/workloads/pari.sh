# row PARI/GP: bash {file}
# needs: gp
gp -q -s 400M << 'Q'
numbers = vector(400000, i, i^40);
print(vecsum(numbers) % 1000007);
print(#digits(prod(i = 1, 20000, i)));
Q
