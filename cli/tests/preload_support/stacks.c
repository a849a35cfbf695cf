// Stacks in managed memory: of signal handlers, of threads, of a thousand coroutines.
#define _GNU_SOURCE
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "must.h"

enum { COROUTINES = 1000, STACK = 64 << 10, ROUNDS = 2, PAGE = 4096 };
static ucontext_t scheduler, coroutines[COROUTINES];
static long finished, handled;

static void handler(int signal) { (void)signal; handled++; }
static long depth(int level, long seed) {
    volatile char frame[1500];
    memset((void *)frame, (int)(seed + level), sizeof frame);
    long sum = level ? depth(level - 1, seed) : 0;
    for (unsigned i = 0; i < sizeof frame; i += 100) MUST(frame[i] == (char)(seed + level));
    return sum + level;
}
static void coroutine(int number) {
    volatile char mine[8000];
    memset((void *)mine, number % 251, sizeof mine);
    for (int round = 0; round < ROUNDS; round++) {
        MUST(depth(10, number) == 55);
        MUST(swapcontext(&coroutines[number], &scheduler) == 0);
        for (unsigned i = 0; i < sizeof mine; i++) MUST(mine[i] == (char)(number % 251));
    }
    finished++;
}
static void *thread(void *argument) {
    volatile char mine[300000];
    memset((void *)mine, (int)(long)argument, sizeof mine);
    for (int round = 0; round < ROUNDS; round++) usleep(1000);
    for (unsigned i = 0; i < sizeof mine; i++) MUST(mine[i] == (char)(long)argument);
    return argument;
}
int main(void) {
    pthread_t threads[8];
    pthread_attr_t attributes;
    char *signals = malloc(STACK);
    stack_t stack = {.ss_sp = signals, .ss_size = STACK};
    struct sigaction action = {.sa_handler = handler, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
    for (long i = 0; i < 8; i++) {
        void *bytes = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setstack(&attributes, bytes, 1 << 20) == 0);
        MUST(pthread_create(&threads[i], &attributes, thread, (void *)i) == 0);
    }
    for (int i = 0; i < COROUTINES; i++) {
        MUST(getcontext(&coroutines[i]) == 0);
        coroutines[i].uc_stack.ss_sp = malloc(STACK);
        coroutines[i].uc_stack.ss_size = STACK;
        coroutines[i].uc_link = &scheduler;
        makecontext(&coroutines[i], (void (*)(void))coroutine, 1, i);
    }
    for (int round = 0; round <= ROUNDS; round++)
        for (int i = 0; i < COROUTINES; i++) {
            MUST(swapcontext(&scheduler, &coroutines[i]) == 0);
            if (i % 100 == 0) {
                MUST(madvise((void *)((long)(signals + PAGE - 1) & -PAGE), STACK - PAGE, MADV_PAGEOUT) == 0);
                MUST(raise(SIGUSR1) == 0);
            }
        }
    for (long i = 0; i < 8; i++) {
        void *result;
        MUST(pthread_join(threads[i], &result) == 0 && result == (void *)i);
    }
    MUST(finished == COROUTINES && handled == (ROUNDS + 1) * COROUTINES / 100);
    puts("exact");
    return 0;
}
