# row stress-ng --vm, all methods: bash {file}
# needs: stress-ng
# Of cache-lines and prime-incdec one round takes minutes: they are ended after some seconds.
for method in $(stress-ng --vm-method which 2>&1 | sed 's/.*: //'); do
    [ "$method" != all ] || continue
    stress-ng --vm 1 --vm-bytes 24M --vm-method "$method" --vm-ops 1 --timeout 8 --verify --seed 1 2>log
    echo "$method: status $?, $(grep -ciE 'fail|error' log)"
    grep -iE 'fail|error|userswap' log >&2
done
true
