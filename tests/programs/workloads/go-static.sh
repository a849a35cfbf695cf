# row Go, static, as a child: bash {file} {build}/static
# needs: go
# build: export HOME=$PWD GOCACHE=$PWD/cache; grep -v -e '"C"' -e '^// #' -e 'C\.free' $(dirname {file})/go.go >main.go; CGO_ENABLED=0 go build -o static main.go
"$1"
echo "status $?"
