# row memtester: bash {file}
# needs: memtester
# The tests that pass over the memory once or a few times; the others do so 64 and 256 times.
export MEMTESTER_TEST_MASK=0x1ff
memtester 40M 1 >log 2>&1
echo "status $?"
tr '\r\b' '\n\n' <log | grep -E 'ok$|FAILURE|Done' | sed 's/.*: *//' | sort | uniq -c
grep -E 'userswap' log >&2
true
