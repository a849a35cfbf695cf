# row sort: bash {file}
# needs: sort
awk 'BEGIN { for (i = 0; i < 600000; i++) printf "%016d%020d\n", i * 7919 % 400009, i }' >lines
sort -S 256M --parallel=4 lines | sha256sum
echo "${PIPESTATUS[*]}"
