/* Forks on a small managed stack with a guard below it; and in the child of a program with a locale, whose memory has been
 * needed for others, a thread begins. */
#define _GNU_SOURCE
#include "must.h"
#include <locale.h>
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 48 << 20, STACK = 32 << 10, GUARD = 16 << 10 };

static char *memory;
static ucontext_t before, on_stack;

static char *map(size_t bytes) {
    char *address = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(address != MAP_FAILED);
    return address;
}

static void fill(long round) {
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + round;
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + round);
}

static void *nothing(void *argument) { return argument; }

static void fork_here(void) {
    pid_t child = fork();
    if (child == 0) {
        fill(2);
        pthread_t thread;
        MUST(pthread_create(&thread, 0, nothing, 0) == 0 && pthread_join(thread, 0) == 0);
        _exit(0);
    }
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

int main(void) {
    MUST(setlocale(LC_ALL, "C.UTF-8"));
    memory = map(BYTES);
    fill(1);
    char *stack = map(BYTES) + BYTES / 2;
    MUST(mprotect(stack, GUARD, PROT_NONE) == 0);
    MUST(getcontext(&on_stack) == 0);
    on_stack.uc_stack = (stack_t){.ss_sp = stack + GUARD, .ss_size = STACK};
    on_stack.uc_link = &before;
    makecontext(&on_stack, fork_here, 0);
    MUST(swapcontext(&before, &on_stack) == 0);
    fork_here();
    puts("exact");
    return 0;
}
