/* The end of the program's data (brk, sbrk): what is behind it is managed, new memory is zeros, and it goes back and forth in
   steps of any size, by name and by number, in forked children too. Prints "exact". */
#define _GNU_SOURCE
#include "children.h"
#include <stdint.h>
#include <string.h>
#include <sys/syscall.h>

enum { PAGE = 4096, BYTES = 48 << 20 };

static uint64_t word(const char *at, uint64_t pattern) { return (uintptr_t)at * 0x9E3779B97F4A7C15ul + pattern; }
static void fill(char *from, char *to, uint64_t pattern) {
    for (char *at = from; at + 8 <= to; at += 8) *(uint64_t *)at = word(at, pattern);
}
static void check(char *from, char *to, uint64_t pattern) {
    for (char *at = from; at + 8 <= to; at += 8) MUST(*(uint64_t *)at == (pattern ? word(at, pattern) : 0));
}
static char *by_number(char *to) { return (char *)syscall(SYS_brk, to); }

static void refusals(char *start, char *end) {
    MUST(sbrk(0) == end && by_number(0) == end && by_number((char *)1) == end && by_number((char *)-1) == end);
    // Below the beginning it stays where it is, which the C library takes for enough.
    MUST(brk(start - PAGE) == 0 && sbrk(-(end - start) - PAGE) == end && sbrk(0) == end);
    MUST(sbrk((intptr_t)1 << 44) == (void *)-1 && errno == ENOMEM);
    MUST(sbrk(INTPTR_MIN) == (void *)-1 && sbrk(INTPTR_MAX) == (void *)-1 && sbrk(0) == end);
}

int main(int count, char **arguments) {
    char *start = sbrk(0);
    // Where the executable has a fixed address it is behind its data.
    extern char end[];
    if (count > 1 && !strcmp(arguments[1], "fixed")) MUST(start >= end && start - end < 3l << 30);
    // In steps that are no pages: what is new is zeros, what was there stays.
    char *at = start;
    for (long step = 1; at - start < BYTES; step = step * 5 % 1000003) {
        char *before = sbrk(step);
        MUST(before == at);
        at += step;
    }
    check(start, at, 0);
    fill(start, at, 1);
    refusals(start, at);
    check(start, at, 1);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        check(start, at, 1);
        MUST(sbrk(BYTES) == at);
        check(at, at + BYTES, 0);
        fill(start, at + BYTES, 2);
        check(start, at + BYTES, 2);
        MUST(brk(start) == 0 && sbrk(0) == start);
        _exit(0);
    }
    // Back by a half, and forth again, by number: zeros, but for the rest of the page in which it ended.
    char *half = start + (at - start) / 2, *page = (char *)(((uintptr_t)half + PAGE - 1) & -PAGE);
    MUST(by_number(half) == half && by_number(at) == at);
    check(start, page - 8, 1);
    check(page, at - 8, 0);
    end_well(child);
    // It stops at what the program has mapped there.
    char *fence = (char *)(((uintptr_t)at + PAGE - 1) & -PAGE) + 16 * PAGE;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    MUST(mmap(fence, PAGE, PROT_READ | PROT_WRITE, flags, -1, 0) == fence);
    fence[0] = 7;
    errno = 0;
    MUST(brk(fence + PAGE) == -1 && errno == ENOMEM && sbrk(0) == at && fence[0] == 7);
    MUST(brk(fence - PAGE) == 0 && brk(start) == 0 && fence[0] == 7);
    puts("exact");
}
