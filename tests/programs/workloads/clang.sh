# row clang: bash {file}
# needs: clang
exec bash "$(dirname "$0")/gcc.sh" clang
