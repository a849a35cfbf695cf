// A daemon in the making: its parents end, it closes every descriptor that it knows of, and reads what its grandparent has
// long written over.
#include "must.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t BYTES = 48 << 20;
static char *memory;

static void fill(unsigned long pattern) {
    for (size_t i = 0; i < BYTES; i += 8) *(unsigned long *)(memory + i) = i * 2654435761ul + pattern;
}
static void check(unsigned long pattern) {
    for (size_t i = 0; i < BYTES; i += 8) MUST(*(unsigned long *)(memory + i) == i * 2654435761ul + pattern);
}
static void daemon_of(int order, int answer) {
    char byte;
    for (int fd = 3; fd < 4096; fd++)
        if (fd != order && fd != answer) close(fd);
    MUST(read(order, &byte, 1) == 1);
    check(1);
    // Its own children borrow in their turn, and one of them becomes another program.
    pid_t other = fork();
    if (other == 0) execl("/bin/true", "true", (char *)NULL);
    pid_t child = fork();
    if (child == 0) {
        check(1);
        fill(7);
        check(7);
        _exit(0);
    }
    fill(2);
    int status;
    MUST(waitpid(other, &status, 0) == other && status == 0);
    MUST(waitpid(child, &status, 0) == child && status == 0);
    check(2);
    MUST(write(answer, "x", 1) == 1);
    _exit(0);
}
int main(void) {
    int order[2], answer[2];
    char byte;
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED && pipe(order) == 0 && pipe(answer) == 0);
    fill(1);
    pid_t child = fork();
    if (child == 0) {
        MUST(setsid() > 0);
        if (fork() == 0) daemon_of(order[0], answer[1]);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    close(answer[1]);
    for (unsigned long pattern = 4; pattern < 7; pattern++) {
        fill(pattern);
        check(pattern);
    }
    MUST(write(order[1], "x", 1) == 1);
    MUST(read(answer[0], &byte, 1) == 1);
    check(6);
    puts("exact");
    return 0;
}
