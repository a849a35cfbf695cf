// Signal stacks of a program's own that are too small for any handler but are never used, or one for all threads.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include "must.h"

enum { THREADS = 4, SHARED = 80 << 10, SMALL = 2048, BYTES = 12 << 20, PAGE = 4096 };
static char *shared;
static __thread volatile int handled;

static pthread_mutex_t one_at_a_time = PTHREAD_MUTEX_INITIALIZER;

static void handler(int signal) { (void)signal; handled++; }
static char *map(long bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}
static void use(void *stack, long bytes) {
    stack_t new = {.ss_sp = stack, .ss_size = bytes};
    MUST(sigaltstack(&new, NULL) == 0);
}
static void work(long number) {
    volatile char *memory = map(BYTES);
    for (int round = 1; round < 5; round++)
        for (long at = 0; at < BYTES; at += PAGE) {
            if (round > 1) MUST(memory[at] == (char)(at / PAGE * (round - 1) + number));
            memory[at] = (char)(at / PAGE * round + number);
        }
    munmap((void *)memory, BYTES);
}
static void *with_shared(void *number) {
    use(shared, SHARED);
    work((long)number);
    pthread_mutex_lock(&one_at_a_time);
    MUST(raise(SIGUSR1) == 0 && handled == 1);
    pthread_mutex_unlock(&one_at_a_time);
    return NULL;
}
static void *with_small(void *number) {
    char *stack = map(PAGE);
    use(stack, SMALL);
    work((long)number);
    stack_t none = {.ss_flags = SS_DISABLE}, before;
    MUST(sigaltstack(NULL, &before) == 0 && before.ss_sp == stack && before.ss_size == SMALL);
    MUST(sigaltstack(&none, &before) == 0 && before.ss_sp == stack && before.ss_flags == 0);
    // It is no longer in use.
    MUST(munmap(before.ss_sp, PAGE) == 0);
    MUST(sigaltstack(NULL, &before) == 0 && before.ss_flags == SS_DISABLE);
    work((long)number);
    MUST(raise(SIGUSR1) == 0 && handled == 1);
    // What the kernel would refuse is refused.
    stack_t tiny = {.ss_sp = shared, .ss_size = SMALL - 1};
    MUST(sigaltstack(&tiny, NULL) == -1 && errno == ENOMEM);
    stack_t wrong = {.ss_sp = shared, .ss_size = SHARED, .ss_flags = 6};
    MUST(sigaltstack(&wrong, NULL) == -1 && errno == EINVAL);
    return NULL;
}
static void in_threads(void *(*function)(void *)) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], NULL, function, (void *)i) == 0);
    for (long i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], NULL) == 0);
}
int main(void) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaction(SIGUSR1, &action, NULL) == 0);
    shared = map(SHARED);
    in_threads(with_shared);
    in_threads(with_small);
    puts("exact");
}
