# row Go, static, as a child: bash {file} {build}/static
# needs: go
# build: export HOME=$PWD GOCACHE=$PWD/cache; grep -v -e '"C"' -e '^// #' -e 'C\.free' $(dirname {file})/go.go >main.go; CGO_ENABLED=0 go build -o static main.go
# known root/thread: unmanaged, silent: a static child is not told of
# known root/signal: unmanaged, silent: a static child is not told of
# known user/thread: unmanaged, silent: a static child is not told of
# known user/signal: unmanaged, silent: a static child is not told of
"$1"
echo "status $?"
