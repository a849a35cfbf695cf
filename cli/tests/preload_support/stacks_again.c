/* A stack of the program's own making is used again after the memory has been given back, emptied, mapped over or moved, beside
 * another that shares a page with it, and after there were more than may be kept: its upper end, where the C library has the
 * thread's data, stays in RAM each time. */
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20, STACK = 256 << 10, KEPT = 2, ROUNDS = 3, MANY = 240, SMALL = 64 << 10 };

static int state, pipes[2];

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

static pthread_t start(char *stack, size_t bytes, void *(*function)(void *)) {
    pthread_attr_t attributes;
    pthread_t thread;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, stack, bytes) == 0);
    MUST(pthread_create(&thread, &attributes, function, 0) == 0);
    return thread;
}

static pthread_t begin(char *stack, size_t bytes) {
    __atomic_store_n(&state, 0, __ATOMIC_SEQ_CST);
    pthread_t thread = start(stack, bytes, stay);
    while (__atomic_load_n(&state, __ATOMIC_SEQ_CST) == 0) sched_yield();
    return thread;
}

static void check(char *stack, size_t bytes) {
    unsigned char present[KEPT];
    char *end = (char *)((long)(stack + bytes + PAGE - 1) & -PAGE) - KEPT * PAGE;
    MUST(madvise(end, KEPT * PAGE, MADV_PAGEOUT) == 0 && mincore(end, KEPT * PAGE, present) == 0);
    for (int page = 0; page < KEPT; page++) MUST(present[page] & 1);
}

static void end(pthread_t thread) {
    __atomic_store_n(&state, 2, __ATOMIC_SEQ_CST);
    MUST(pthread_join(thread, 0) == 0);
}

static void use(char *stack) {
    pthread_t thread = begin(stack, STACK);
    check(stack, STACK);
    end(thread);
}

/* The second begins in the page in which the first ends. */
static void use_neighbours(void) {
    size_t bytes = STACK + PAGE / 2;
    char *both = map(0, 2 * bytes, 0);
    pthread_t first = begin(both, bytes), second = begin(both + bytes, bytes);
    check(both, bytes);
    check(both + bytes, bytes);
    end(first);
    end(second);
    MUST(munmap(both, 2 * bytes) == 0);
}

static void *wait_for_end(void *argument) {
    char byte;
    MUST(read(pipes[0], &byte, 1) == 0);
    return argument;
}

/* More than may be kept while the engine starts. */
static void use_many(char *memory, void (*outgrow)(char *)) {
    static pthread_t threads[MANY];
    static char *stacks[MANY];
    MUST(pipe(pipes) == 0);
    for (int i = 0; i < MANY; i++) threads[i] = start(stacks[i] = map(0, SMALL, 0), SMALL, wait_for_end);
    outgrow(memory);
    MUST(close(pipes[1]) == 0);
    for (int i = 0; i < MANY; i++) MUST(pthread_join(threads[i], 0) == 0);
    for (int i = MANY / 4; i < MANY; i++) MUST(munmap(stacks[i], SMALL) == 0);
    for (int i = 0; i < MANY / 4; i++) {
        pthread_t thread = begin(stacks[i], SMALL);
        check(stacks[i], SMALL);
        end(thread);
    }
}

static void leave(char *memory) {
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + 1);
}

int main(void) {
    char *stack = map(0, STACK, 0), *memory = map(0, BYTES, 0);
    use(stack);
    use_many(memory, leave);
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
        use_neighbours();
        leave(memory);
    }
    puts("exact");
    return 0;
}
