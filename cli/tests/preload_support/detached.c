// Threads that nobody waits for, on stacks of the program's own making: as they end, the C library frees what it has of
// them with all signals blocked, after it has long been swapped out. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 48 << 20, THREADS = 24, STACK = 128 << 10, ROUNDS = 3 };

static char *memory;
static char fixed[THREADS][STACK] __attribute__((aligned(PAGE)));
static int tids[THREADS], is_let_go, here;

static void sweep(long seed) {
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + seed);
    for (long at = 0; at < BYTES; at += PAGE) ++*(long *)(memory + at);
}

static void *run(void *argument) {
    long index = (long)argument;
    if (index % 3 == 0) MUST(!pthread_detach(pthread_self()));
    tids[index] = gettid();
    __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
    while (!__atomic_load_n(&is_let_go, __ATOMIC_SEQ_CST)) usleep(1000);
    if (index % 2) pthread_exit(0);
    return 0;
}

static char *map(void) {
    char *at = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

// By all three ways: made so, by itself, by another.
static void start(long index, char *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(!pthread_attr_init(&attributes) && !pthread_attr_setstack(&attributes, stack, STACK));
    if (index % 3 == 1) MUST(!pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED));
    MUST(!pthread_create(&thread, &attributes, run, (void *)index));
    if (index % 3 == 2) MUST(!pthread_detach(thread));
    // The next thread's table is elsewhere.
    MUST(malloc(2 * PAGE));
}

int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at;
    for (long round = 0; round < ROUNDS; round++) {
        here = is_let_go = 0;
        // A fresh stack for each that is mapped; the others are taken again once their threads are gone.
        for (long i = 0; i < THREADS; i++) start(i, i < THREADS / 2 ? map() : fixed[i]);
        while (__atomic_load_n(&here, __ATOMIC_SEQ_CST) < THREADS) usleep(1000);
        sweep(2 * round);
        __atomic_store_n(&is_let_go, 1, __ATOMIC_SEQ_CST);
        for (int i = 0; i < THREADS; i++) while (!tgkill(getpid(), tids[i], 0)) sched_yield();
        sweep(2 * round + 1);
    }
    puts("exact");
    return 0;
}
