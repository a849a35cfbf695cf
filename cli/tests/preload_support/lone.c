// A program with one thread and an allocator that is made for no more.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CHUNK = 1 << 20, BLOCK = 4000, BLOCKS = 12000 };
static char *chunk;
static size_t left;
static int started;
static char *blocks[BLOCKS];

static void check_thread(void) {
    if (started && gettid() != getpid()) {
        if (write(2, "called by another thread\n", 25)) {}
        _exit(67);
    }
}

void *malloc(size_t bytes) {
    check_thread();
    bytes = (bytes + 15) / 16 * 16;
    if (left < bytes) {
        size_t grown = bytes > CHUNK ? bytes : CHUNK;
        chunk = mmap(0, grown, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (chunk == MAP_FAILED)
            return 0;
        left = grown;
    }
    char *block = chunk;
    chunk += bytes;
    left -= bytes;
    return block;
}
void *calloc(size_t count, size_t each) { return malloc(count * each); }
void free(void *block) {
    if (block)
        check_thread();
}
void *realloc(void *block, size_t bytes) {
    void *moved = malloc(bytes);
    return block ? memcpy(moved, block, bytes) : moved;
}

int main(void) {
    started = 1;
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < BLOCKS; i++) {
            if (!blocks[i])
                blocks[i] = malloc(BLOCK);
            memset(blocks[i], i + round, BLOCK);
        }
        for (int i = 0; i < BLOCKS; i++)
            if (blocks[i][0] != (char)(i + round) || blocks[i][BLOCK - 1] != (char)(i + round))
                return 1;
        usleep(50000);
    }
    puts("exact");
    return 0;
}
