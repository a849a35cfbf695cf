// A descriptor table of its own for a program's only thread as it begins, while threads of ours begin as well.
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };

static void change(char *memory, char stamp) {
    memset(memory, stamp, BYTES);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == stamp);
}

int main(void) {
    MUST(unshare(CLONE_FILES) == 0);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    change(memory, 1);
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        change(memory, 2);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == 1);
    puts("exact");
}
