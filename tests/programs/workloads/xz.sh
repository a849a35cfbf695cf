# row xz: bash {file}
# needs: xz
seq 1 7 9000000 | head -c 6000000 | xz -9 -T2 --block-size=2MiB -c | sha256sum
echo "${PIPESTATUS[*]}"
