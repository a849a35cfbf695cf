// A condition that has to hold; the program says which line it fails on, and ends.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s fails (errno %d)\n", __LINE__, #condition, errno);     \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)

// A system call that no library sees.
static inline long raw_call(long number, const void *address, long bytes, long third) {
    long result;
    __asm__ volatile("syscall" : "=a"(result) : "a"(number), "D"(address), "S"(bytes), "d"(third) : "rcx", "r11", "memory");
    return result;
}
