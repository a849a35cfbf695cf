/* What is to stay in RAM is out of the program's own reach as the engine starts: stacks that threads had are gone or closed,
 * and memory that is locked cannot be read for now. What that has stays there all the same. */
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <sys/mman.h>

enum { PAGE = 4096, STACK = 128 << 10, LOCKED = 1 << 20, ALL = 64 << 20 };

static void *run(void *argument) { return argument; }

static char *map(unsigned long bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static char *used_stack(void) {
    char *stack = map(STACK);
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(!pthread_attr_init(&attributes) && !pthread_attr_setstack(&attributes, stack, STACK));
    MUST(!pthread_create(&thread, &attributes, run, 0) && !pthread_join(thread, 0));
    return stack;
}

int main(void) {
    for (int i = 0; i < 4; i++) {
        MUST(munmap(used_stack(), STACK) == 0);
        MUST(mprotect(used_stack(), STACK, PROT_NONE) == 0);
    }
    /* Only its first half is there. */
    char *locked = map(LOCKED);
    MUST(mlock2(locked, LOCKED, MLOCK_ONFAULT) == 0);
    for (long at = 0; at < LOCKED / 2; at += PAGE) locked[at] = 7;
    MUST(mprotect(locked, LOCKED, PROT_NONE) == 0);
    char *all = map(ALL);
    for (int time = 0; time < 3; time++)
        for (long at = 0; at < ALL; at += PAGE) all[at]++;
    unsigned char present[LOCKED / PAGE];
    MUST(mincore(locked, LOCKED, present) == 0);
    for (long page = 0; page < LOCKED / 2 / PAGE; page++) MUST(present[page] & 1);
    MUST(mprotect(locked, LOCKED, PROT_READ | PROT_WRITE) == 0);
    for (long at = 0; at < LOCKED; at += PAGE) MUST(locked[at] == (at < LOCKED / 2 ? 7 : 0));
    for (long at = 0; at < ALL; at += PAGE) MUST(all[at] == 3);
    MUST(munlock(locked, LOCKED) == 0);
    puts("exact");
    return 0;
}
