// Threads that may be cancelled at any moment, while they read what has left: they end, and nothing of what they waited for is lost.
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <stdint.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 40 << 8, ROUNDS = 150 };

static volatile uint64_t *memory;
static int cleaned;

static uint64_t word(size_t page) { return memory[page * PAGE / 8 + page % 512]; }

static void clean(void *first) {
    // Also here, where the thread ends.
    for (size_t page = (uintptr_t)first; page < PAGES; page += 499) MUST(word(page) == page * 31);
    __atomic_add_fetch(&cleaned, 1, __ATOMIC_SEQ_CST);
}

static void *read_for_ever(void *first) {
    pthread_cleanup_push(clean, first);
    MUST(!pthread_setcanceltype(PTHREAD_CANCEL_ASYNCHRONOUS, 0));
    for (size_t page = (uintptr_t)first;; page += 17) (void)word(page % PAGES);
    pthread_cleanup_pop(0);
    return 0;
}

int main(void) {
    memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (size_t page = 0; page < PAGES; page++) memory[page * PAGE / 8 + page % 512] = page * 31;
    for (uintptr_t round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        void *result;
        MUST(!pthread_create(&thread, 0, read_for_ever, (void *)round));
        usleep(round * 37 % 3000);
        MUST(!pthread_cancel(thread) && !pthread_join(thread, &result) && result == PTHREAD_CANCELED);
    }
    MUST(cleaned <= ROUNDS && cleaned > ROUNDS / 2);
    for (size_t page = 0; page < PAGES; page++) MUST(word(page) == page * 31);
    puts("exact");
    return 0;
}
