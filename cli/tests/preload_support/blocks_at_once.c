// Threads that ask for large blocks at the same moment, at which together they outgrow the budget: none of them is beside it.
#define _GNU_SOURCE
#include <pthread.h>
#include <string.h>
#include "must.h"

enum { THREADS = 4, BYTES = 20 << 20, PAGE = 4096, BUDGET_KB = 16 << 10 };
static pthread_barrier_t barrier;

static long resident_kb(void) {
    FILE *status = fopen("/proc/self/status", "r");
    MUST(status);
    char line[256];
    long kb = -1;
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "RssAnon:", 8) == 0) kb = strtol(line + 8, NULL, 10);
    fclose(status);
    MUST(kb >= 0);
    return kb;
}
static void *thread(void *argument) {
    pthread_barrier_wait(&barrier);
    char *block = malloc(BYTES);
    MUST(block);
    long number = (long)argument;
    for (int round = 1; round < 4; round++) {
        for (long at = 0; at < BYTES; at += PAGE) {
            if (round > 1) MUST(block[at] == (char)(at / PAGE * (round - 1) + number));
            block[at] = (char)(at / PAGE * round + number);
        }
    }
    pthread_barrier_wait(&barrier);
    return block;
}
int main(void) {
    pthread_t threads[THREADS];
    MUST(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (long i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, thread, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
    // A block that is not managed is whole in memory.
    MUST(resident_kb() < BUDGET_KB + BYTES / 1024 / 2);
    puts("exact");
}
