// Handlers that run while a call waits with everything blocked, and a mask and an action set by number: memory that is swapped
// out comes back all the same.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/select.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };
static char *memory, *word;
static volatile int handled;
static sigset_t others, usr1, none;

static void out(void) { MUST(madvise(word, PAGE, MADV_PAGEOUT) == 0); }
static void handle(int number) {
    (void)number;
    out();
    handled += ++*word;
}
// The signal is blocked but in the call, where all others are.
#define WAIT(call) do { \
    int before = handled; \
    *word = 0; \
    MUST(sigprocmask(SIG_BLOCK, &usr1, 0) == 0 && raise(SIGUSR1) == 0); \
    MUST((call) == -1 && errno == EINTR && handled == before + 1); \
} while (0)

static void waits(void) {
    int epoll = epoll_create1(0);
    unsigned long mask = 0;
    struct epoll_event event;
    struct { void *mask; long bytes; } pair = {&mask, 8};
    memcpy(&mask, &others, 8);
    WAIT(sigsuspend(&others));
    WAIT(ppoll(0, 0, 0, &others));
    WAIT(pselect(0, 0, 0, 0, 0, &others));
    WAIT(epoll_pwait(epoll, &event, 1, -1, &others));
    WAIT(epoll_pwait2(epoll, &event, 1, 0, &others));
    WAIT(syscall(SYS_rt_sigsuspend, &mask, 8L));
    WAIT(syscall(SYS_ppoll, 0L, 0L, 0L, &mask, 8L));
    WAIT(syscall(SYS_pselect6, 0L, 0L, 0L, 0L, 0L, &pair));
    WAIT(syscall(SYS_epoll_pwait, (long)epoll, &event, 1L, -1L, &mask, 8L));
}
static void by_number(void) {
    unsigned long all = ~0ul, before = 0;
    struct { void *handler; unsigned long flags, restorer, mask; } fallback = {0}, found;
    *word = 5;
    MUST(syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, &before, 8L) == 0);
    out();
    MUST(*word == 5);
    MUST(syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &before, 0L, 8L) == 0);
    // As a child does between fork and exec.
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(syscall(SYS_rt_sigprocmask, (long)SIG_SETMASK, &all, 0L, 8L) == 0);
        for (long number = 1; number < 32; number++) syscall(SYS_rt_sigaction, number, &fallback, 0L, 8L);
        MUST(syscall(SYS_rt_sigaction, (long)SIGBUS, 0L, &found, 8L) == 0 && found.handler == 0);
        for (long i = 0; i < BYTES; i += PAGE) MUST(memory[i] == (i == word - memory ? 5 : 1));
        memset(memory, 2, BYTES);
        _exit(7);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    MUST(syscall(SYS_rt_sigaction, (long)SIGBUS, &fallback, 0L, 8L) == 0);
    out();
    MUST(*word == 5);
}
static void *blocked(void *wanted) {
    sigset_t mask;
    MUST(*word == 6 && pthread_sigmask(SIG_BLOCK, 0, &mask) == 0 && sigismember(&mask, SIGUSR1));
    return wanted;
}
static void from_the_start(void) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all;
    void *returned;
    sigfillset(&all);
    *word = 6;
    MUST(pthread_attr_init(&attributes) == 0 && pthread_attr_setsigmask_np(&attributes, &all) == 0);
    out();
    MUST(pthread_create(&thread, &attributes, blocked, &all) == 0);
    MUST(pthread_join(thread, &returned) == 0 && returned == &all && pthread_attr_destroy(&attributes) == 0);
}
int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    word = memory + (8 << 20);
    sigfillset(&others);
    sigdelset(&others, SIGUSR1);
    sigemptyset(&none);
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    MUST(sigaction(SIGUSR1, &(struct sigaction){.sa_handler = handle}, 0) == 0);
    waits();
    by_number();
    from_the_start();
    puts("exact");
    return 0;
}
