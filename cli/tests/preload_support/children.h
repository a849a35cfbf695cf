// Children of the program that are to end well; each is waited for.
#pragma once
#include "must.h"
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static inline void end_well(pid_t child) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child);
    if (status != 0) fprintf(stderr, "child %d ended with status %#x\n", child, status);
    MUST(status == 0);
}

// Does something in one child after the other, of a process that has no engine.
static inline void in_children(int times, void (*act)(void)) {
    for (int time = 0; time < times; time++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            act();
            _exit(0);
        }
        end_well(child);
    }
}

// Memory of three times a budget of 16 MiB is right in this process and in a child; what is in it depends on the round.
static inline void fill_and_fork(int round) {
    enum { BYTES = 48 << 20, PAGE = 4096 };
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(block != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) block[at] = (char)(at / PAGE + round);
    pid_t child = fork();
    MUST(child >= 0);
    for (long at = 0; at < BYTES; at += PAGE) MUST(block[at] == (char)(at / PAGE + round));
    if (child == 0) _exit(7);
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST(munmap(block, BYTES) == 0);
}
