/* A stack of the program's own making is used again after the memory has been given back, emptied, mapped over or moved: its upper
 * end, where the C library has the thread's data, stays in RAM each time. */
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, BYTES = 64 << 20, STACK = 256 << 10, KEPT = 2, ROUNDS = 3 };

static int state;

static char *map(char *at, size_t bytes, int flags) {
    char *memory = mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | flags, -1, 0);
    MUST(memory != MAP_FAILED && (!at || memory == at));
    return memory;
}

/* Below the upper end, which it does not touch meanwhile. */
static void *stay(void *argument) {
    volatile char frame[(KEPT + 2) * PAGE];
    frame[0] = frame[sizeof frame - 1] = 1;
    __atomic_store_n(&state, 1, __ATOMIC_SEQ_CST);
    while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == 1) sched_yield();
    return argument;
}

static void use(char *stack) {
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, STACK) == 0);
    MUST(pthread_create(&thread, &attributes, stay, 0) == 0);
    while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == 0) sched_yield();
    unsigned char present[KEPT];
    char *end = stack + STACK - KEPT * PAGE;
    MUST(madvise(end, KEPT * PAGE, MADV_PAGEOUT) == 0 && mincore(end, KEPT * PAGE, present) == 0);
    for (int page = 0; page < KEPT; page++) MUST(present[page] & 1);
    __atomic_store_n(&state, 2, __ATOMIC_SEQ_CST);
    MUST(pthread_join(thread, 0) == 0);
    __atomic_store_n(&state, 0, __ATOMIC_SEQ_CST);
}

static void leave(char *memory) {
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + 1);
}

int main(void) {
    char *stack = map(0, STACK, 0);
    use(stack);
    char *memory = map(0, BYTES, 0);
    leave(memory);
    for (int round = 0; round < ROUNDS; round++) {
        use(stack);
        use(stack);
        MUST(munmap(stack, STACK) == 0 && map(stack, STACK, MAP_FIXED_NOREPLACE));
        use(stack);
        MUST(madvise(stack, STACK, MADV_DONTNEED) == 0);
        use(stack);
        MUST(munmap(stack + STACK - PAGE, PAGE) == 0 && map(stack + STACK - PAGE, PAGE, MAP_FIXED_NOREPLACE));
        use(stack);
        map(stack, STACK, MAP_FIXED);
        use(stack);
        MUST(mremap(stack, STACK, STACK, MREMAP_MAYMOVE | MREMAP_DONTUNMAP, 0) != MAP_FAILED);
        use(stack);
        leave(memory);
    }
    puts("exact");
    return 0;
}
