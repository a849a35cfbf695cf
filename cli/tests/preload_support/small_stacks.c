// Threads with little stack: one passes the budget, so that the engine starts there; others fork and start programs.
#define _GNU_SOURCE
#include <pthread.h>
#include <spawn.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, BYTES = 48 << 20, SMALL = 32 << 10, SMALLEST = 20 << 10 };
static char *memory;
extern char **environ;

static void in_thread(void *work(void *), long stack) {
    pthread_t thread;
    pthread_attr_t attributes;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstacksize(&attributes, stack) == 0);
    MUST(pthread_create(&thread, &attributes, work, 0) == 0 && pthread_join(thread, 0) == 0);
}
static void *fill(void *nothing) {
    memory = malloc(BYTES);
    memset(memory, 1, BYTES);
    return nothing;
}
static void check(void) {
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == 1);
}
static void ended(pid_t child, int wanted) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == wanted);
}
static void *split(void *nothing) {
    pid_t child = fork();
    if (child == 0) {
        check();
        memset(memory, 2, BYTES);
        _exit(7);
    }
    ended(child, 7);
    return nothing;
}
static void *start(void *nothing) {
    static char *const words[] = {"sh", "-c", "exit 9", 0};
    pid_t child;
    MUST(posix_spawn(&child, "/bin/sh", 0, 0, words, environ) == 0);
    ended(child, 9);
    child = vfork();
    if (child == 0) {
        execve("/bin/sh", words, environ);
        _exit(1);
    }
    ended(child, 9);
    return nothing;
}
int main(void) {
    in_thread(start, SMALLEST);
    in_thread(fill, SMALL);
    check();
    in_thread(split, SMALL);
    in_thread(start, SMALLEST);
    check();
    puts("exact");
    return 0;
}
