/* forkpty with what it is given in memory that has left; and daemon, after which both processes end in order, the child with all its
 * memory. */
#define _GNU_SOURCE
#include "must.h"
#include <pty.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 48 << 20, REGION = 1 << 20 };

static char *map(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

static void fork_with_a_terminal(void) {
    struct winsize *size = (struct winsize *)map(REGION), found;
    *size = (struct winsize){.ws_row = 33, .ws_col = 77};
    MUST(madvise(size, PAGE, MADV_PAGEOUT) == 0);
    int terminal, status;
    pid_t child = forkpty(&terminal, 0, 0, size);
    MUST(child >= 0);
    if (child == 0) {
        int is_right = ioctl(0, TIOCGWINSZ, &found) == 0 && found.ws_row == 33 && found.ws_col == 77;
        _exit(is_right ? 7 : 1);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST(close(terminal) == 0);
}

int main(void) {
    char *memory = map(BYTES);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at;
    fork_with_a_terminal();
    pid_t before = getpid();
    /* Its standard output stays. */
    MUST(daemon(0, 1) == 0);
    char directory[8];
    MUST(getpid() != before && getsid(0) == getpid() && !strcmp(getcwd(directory, sizeof directory), "/"));
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at);
    puts("exact");
    return 0;
}
