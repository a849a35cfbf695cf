// A program that goes back to an earlier end of its data (brk): what the library has made meanwhile is not behind it.
#define _GNU_SOURCE
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };

static void fill_and_fork(int round) {
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
int main(void) {
    char *end = sbrk(0);
    for (int round = 0; round < 3; round++) {
        fill_and_fork(round);
        // Memory of its own there, which it gives back by going to where it was.
        char *own = sbrk(64 * PAGE);
        MUST(own != (char *)-1);
        memset(own, round, 64 * PAGE);
        MUST(brk(end) == 0 && sbrk(0) == (void *)end);
    }
    puts("exact");
}
