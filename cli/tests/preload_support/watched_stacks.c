/* Threads wait on stacks of the program's own making while the engine starts: the upper ends of the stacks, to which the
 * kernel writes as it pleases, never leave, and what a call has been waiting to fill since before is filled. */
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <poll.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20, THREADS = 24, STACK = 128 << 10, KEPT = 4 };

static char *stacks[THREADS];
static int pipes[THREADS][2], here, is_done;
static unsigned long rounds;

static void *wait_for_a_message(void *argument) {
    long index = (long)argument;
    char message[64] = {0};
    __atomic_add_fetch(&here, 1, __ATOMIC_SEQ_CST);
    MUST(read(pipes[index][0], message, sizeof message) == sizeof message);
    for (unsigned i = 0; i < sizeof message; i++) MUST(message[i] == (char)(index + 1));
    return 0;
}

/* Asks the kernel, past every library. */
static void *watch(void *argument) {
    while (!__atomic_load_n(&is_done, __ATOMIC_SEQ_CST)) {
        for (int i = 0; i < THREADS; i++) {
            unsigned char present[KEPT];
            MUST(syscall(SYS_mincore, stacks[i] + STACK - KEPT * PAGE, KEPT * PAGE, present) == 0);
            for (int page = 0; page < KEPT; page++) MUST(present[page] & 1);
        }
        rounds++;
    }
    return argument;
}

static char *map(unsigned long bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static void start(pthread_t *thread, int index) {
    pthread_attr_t attributes;
    stacks[index] = map(STACK);
    memset(stacks[index], 1, STACK);
    MUST(pipe(pipes[index]) == 0 && pthread_attr_init(&attributes) == 0);
    MUST(pthread_attr_setstack(&attributes, stacks[index], STACK) == 0);
    MUST(pthread_create(thread, &attributes, wait_for_a_message, (void *)(long)index) == 0);
}

int main(void) {
    pthread_t threads[THREADS], watcher;
    for (int i = 0; i < THREADS; i++) start(&threads[i], i);
    while (__atomic_load_n(&here, __ATOMIC_SEQ_CST) < THREADS) usleep(1000);
    MUST(pthread_create(&watcher, 0, watch, 0) == 0);
    char *memory = map(BYTES);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at;
    for (int i = 0; i < THREADS; i++) {
        char message[64];
        memset(message, i + 1, sizeof message);
        MUST(write(pipes[i][1], message, sizeof message) == sizeof message);
        MUST(pthread_join(threads[i], 0) == 0);
    }
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at);
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    MUST(pthread_join(watcher, 0) == 0 && rounds > 0);
    puts("exact");
    return 0;
}
