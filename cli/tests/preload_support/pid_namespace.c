// Children in a PID namespace of their own: their parent can start no threads any more, and they can.
#define _GNU_SOURCE
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 40 << 20, PAGE = 4096 };

static void work(void) {
    volatile char *memory = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (int round = 1; round < 4; round++)
        for (long at = 0; at < BYTES; at += PAGE) {
            if (round > 1) MUST(memory[at] == (char)(at / PAGE * (round - 1)));
            memory[at] = (char)(at / PAGE * round);
        }
}
int main(void) {
    MUST(unshare(CLONE_NEWPID) == 0);
    // The first is the namespace's init, with which all others end.
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(getpid() == 1);
        pid_t grandchild = fork();
        MUST(grandchild >= 0);
        work();
        if (grandchild == 0) _exit(0);
        MUST(waitpid(grandchild, &status, 0) == grandchild && status == 0);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    puts("exact");
}
