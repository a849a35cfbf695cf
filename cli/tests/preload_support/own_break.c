// A program with a malloc of its own, which takes all memory behind its data (brk) for its own, as GNU Common Lisp does: nothing of
// the library's is there. Its free is not called before it has begun: it may not be ready.
#define _GNU_SOURCE
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "children.h"

enum { PAGE = 4096, HEAP = 24 << 20 };

static char room[4 << 20] __attribute__((aligned(16)));
static size_t used;
static volatile int frees;

void *malloc(size_t bytes) {
    size_t at = __atomic_fetch_add(&used, (bytes + 15) / 16 * 16 + 16, __ATOMIC_RELAXED);
    if (at + bytes + 16 > sizeof room) return 0;
    *(size_t *)(room + at) = bytes;
    return room + at + 16;
}

void free(void *block) {
    if (block) frees++;
    if (block && ((char *)block < room || (char *)block >= room + sizeof room)) abort();
}

void *calloc(size_t count, size_t bytes) { return malloc(count * bytes); }

void *realloc(void *block, size_t bytes) {
    void *new = malloc(bytes);
    if (new && block) {
        size_t before = *(size_t *)((char *)block - 16);
        memcpy(new, block, before < bytes ? before : bytes);
    }
    return new;
}

// Ten thousand parts with rights of their own.
static void protect_pages(void) {
    long pages = 20000;
    char *block = mmap(NULL, pages * PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(block != MAP_FAILED);
    for (long page = 0; page < pages; page += 2) MUST(!mprotect(block + page * PAGE, PAGE, PROT_READ | PROT_WRITE));
    for (long page = 0; page < pages; page += 200) block[page * PAGE] = (char)page;
    fill_and_fork(3);
    for (long page = 0; page < pages; page += 200) MUST(block[page * PAGE] == (char)page);
    MUST(!munmap(block, pages * PAGE));
}

int main(void) {
    MUST(frees == 0);
    char text[1024], *end = sbrk(0);
    // Where the executable has a fixed address: start_brk, the 45th after the name (proc_pid_stat(5)).
    FILE *file = fopen("/proc/self/stat", "r");
    MUST(file && fgets(text, sizeof text, file) && !fclose(file));
    char *at = strrchr(text, ')');
    for (int field = 0; field < 45; field++) at = strchr(at + 1, ' ');
#ifndef __PIC__
    MUST((char *)strtoul(at, 0, 10) == end);
#endif
    for (long done = 0; done < HEAP; done += 2 * PAGE) {
        MUST(sbrk(2 * PAGE) == end + done);
        // What was new is zeros.
        for (long i = 0; i < 2 * PAGE; i += 8) MUST(*(long *)(end + done + i) == 0);
        memset(end + done, (int)(done / PAGE), 2 * PAGE);
        if (done == HEAP / 2) fill_and_fork(1);
    }
    fill_and_fork(2);
    // An end that is anywhere, and what has the library take much more than it begins with.
    MUST(sbrk(100) == end + HEAP);
    protect_pages();
    MUST(sbrk(0) == end + HEAP + 100);
    for (long i = 0; i < HEAP; i++) MUST(end[i] == (char)(i / (2 * PAGE) * 2));
    puts("exact");
}
