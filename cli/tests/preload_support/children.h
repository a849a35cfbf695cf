// Children of the program that are to end well; each is waited for.
#pragma once
#include "must.h"
#include <sys/wait.h>
#include <unistd.h>

static inline void end_well(pid_t child) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
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
