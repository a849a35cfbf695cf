// A program that has outgrown its budget leaves itself no more descriptors: the child of a fork ends in the fork, and its
// parent goes on.
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };

static void check(const char *block) {
    for (long at = 0; at < BYTES; at += PAGE) MUST(block[at] == (char)(at / PAGE));
}

int main(void) {
    char *block = malloc(BYTES);
    MUST(block);
    for (long at = 0; at < BYTES; at += PAGE) block[at] = (char)(at / PAGE);
    int first = dup(0);
    MUST(first > 0 && close(first) == 0);
    struct rlimit none = {first, first};
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    for (int turn = 0; turn < 2; turn++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) _exit(7);
        int status;
        MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 1);
        check(block);
    }
    puts("exact");
}
