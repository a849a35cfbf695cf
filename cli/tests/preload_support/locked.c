/* Memory that is locked past the library, and by mlockall, in a program that needs more than its budget: every page is as
 * written, what is locked stays readable, and nothing hangs. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "must.h"

#define PAGE 4096UL
#define SECRET (64 * PAGE)
#define BYTES (64UL << 20)
#define PART (4UL << 20)

static void check(int holds, const char *what) {
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

static char *memory(char *at, unsigned long bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (at ? MAP_FIXED : 0);
    char *mapped = mmap(at, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    check(mapped != MAP_FAILED, "mmap");
    return mapped;
}

static void go_over(char *pages, unsigned long bytes, int times) {
    for (int time = 1; time <= times; time++)
        for (unsigned long at = 0; at < bytes; at += PAGE) pages[at]++;
    for (unsigned long at = 0; at < bytes; at += PAGE) check(pages[at] == times, "a page is not as written");
}

int main(int count, char **arguments) {
    /* By a system call that the library does not see. */
    char *secret = memory(NULL, SECRET);
    check(raw_call(SYS_mlock2, secret, SECRET, MLOCK_ONFAULT) == 0, "mlock2");
    for (unsigned long at = 0; at < SECRET; at += PAGE) secret[at] = 7;
    if (count > 2) check(mlockall(MCL_CURRENT | MCL_FUTURE) == 0, "mlockall");
    char *pages = memory(NULL, BYTES);
    go_over(pages, BYTES, 3);
    /* A file over a part of it, and plain memory there again, which the kernel would lock. */
    int file = open(arguments[1], O_RDONLY);
    char *covered = mmap(pages, PART, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    check(covered == pages && covered[1] == 'E', "the file is mapped");
    memory(pages, PART);
    go_over(pages, PART, 2);
    for (unsigned long at = PART; at < BYTES; at += PAGE) check(pages[at] == 3, "a page has changed");
    check(munmap(pages, BYTES) == 0, "munmap");
    for (unsigned long at = 0; at < SECRET; at += PAGE) check(secret[at] == 7, "a locked page has changed");
    check(madvise(secret, SECRET, MADV_DONTNEED) == 0, "a locked page is dropped");
    for (unsigned long at = 0; at < SECRET; at += PAGE) check(secret[at] == 0, "a dropped page has content");
    check(munmap(secret, SECRET) == 0, "munmap of locked memory");
    puts("exact");
    return 0;
}
