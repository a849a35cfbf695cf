// Children whose memory another process reads from their first moment on: what they have is theirs, whatever was read.
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 64 << 20, PIECE = 1 << 20, ROUNDS = 8 };
static unsigned long *memory;

static unsigned long word(long at) { return at * 0x9e3779b97f4a7c15ul + 1; }
static int is_right(void) {
    for (long at = 0; at < BYTES / 8; at++)
        if (memory[at] != word(at)) return 0;
    return 1;
}

// As far as the child's engine has come: the kernel reads zeros before, and what it has for the child afterwards.
static void read_all_of(pid_t child) {
    static char piece[PIECE];
    for (long at = 0; at < BYTES; at += PIECE) {
        struct iovec own = {piece, PIECE}, other = {(char *)memory + at, PIECE};
        if (process_vm_readv(child, &own, 1, &other, 1, 0) < 0) MUST(errno == EFAULT);
    }
}

int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES / 8; at++) memory[at] = word(at);
    for (int round = 0; round < ROUNDS; round++) {
        int go[2], status;
        MUST(pipe(go) == 0);
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            char byte;
            MUST(read(go[0], &byte, 1) == 1);
            _exit(is_right() ? 0 : 3);
        }
        read_all_of(child);
        MUST(write(go[1], "", 1) == 1);
        MUST(waitpid(child, &status, 0) == child && status == 0);
        MUST(close(go[0]) == 0 && close(go[1]) == 0);
    }
    MUST(is_right());
    puts("exact");
}
