# row clang: bash {file}
# needs: clang
# known root/signal: hangs: its signal stack is missing when the engine starts
# known user/signal: hangs: its signal stack is missing when the engine starts
exec bash "$(dirname "$0")/gcc.sh" clang
