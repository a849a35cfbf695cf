// row Go, dynamic (cgo): {build}/dynamic
// needs: go gcc
// build: export HOME=$PWD GOCACHE=$PWD/cache GOFLAGS=-mod=mod; cp {file} main.go; CGO_ENABLED=1 go build -o dynamic main.go
package main

// #include <stdlib.h>
import "C"

import (
	"fmt"
	"os"
	"sort"
)

func share(number int, done chan<- uint64) {
	names := make(map[string]int)
	blocks := [][]byte{}
	for i := 0; i < 100000; i++ {
		names[fmt.Sprintf("thread %d item %d", number, i)] = i
		if i%5000 == 0 {
			block := make([]byte, 1<<20)
			for j := 0; j < len(block); j += 512 {
				block[j] = byte(i + j>>9)
			}
			blocks = append(blocks, block)
		}
	}
	sum := uint64(0)
	for name, i := range names {
		sum += uint64(len(name) * i)
	}
	for _, block := range blocks {
		for _, part := range block {
			sum += uint64(part)
		}
	}
	done <- sum
}

func main() {
	C.free(C.malloc(64))
	done := make(chan uint64)
	for n := 0; n < 4; n++ {
		go share(n, done)
	}
	sums := []int{}
	for n := 0; n < 4; n++ {
		sums = append(sums, int(<-done))
	}
	sort.Ints(sums)
	// A system call into memory that may have been swapped out.
	block := make([]byte, 8<<20)
	file, _ := os.Open("/proc/self/cmdline")
	read, failed := file.Read(block[4<<20:])
	fmt.Println(sums, read > 0, failed)
}
