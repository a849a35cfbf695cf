// Functions for signals of older systems: with all blocked and handled otherwise, pages come back, and what they say is what they
// say without us.
#define _GNU_SOURCE
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "must.h"

#pragma GCC diagnostic ignored "-Wdeprecated-declarations"
enum { PAGE = 4096, BYTES = 48 << 20 };
#ifndef SIG_HOLD
#define SIG_HOLD ((sighandler_t)2)
#endif
typedef void (*handler_t)(int);
// No header has them any more, or under these names.
extern handler_t __sysv_signal(int, handler_t), sysv_signal(int, handler_t), bsd_signal(int, handler_t), ssignal(int, handler_t);
extern handler_t sigset(int, handler_t);
extern int sighold(int), sigrelse(int), sigignore(int), sigblock(int), sigsetmask(int), __xpg_sigpause(int);
extern int __sigaction(int, const struct sigaction *, struct sigaction *), __sigsuspend(const sigset_t *);
#undef sigpause
extern int bsd_sigpause(int) __asm__("sigpause");

static char *memory;
static volatile int handled;

static void go_over(void) {
    MUST(madvise(memory, BYTES, MADV_PAGEOUT) == 0);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == 1);
}
static void handle(int number) { handled += number == SIGUSR1; }
static int is_blocked(int number) {
    sigset_t mask;
    MUST(sigprocmask(SIG_BLOCK, 0, &mask) == 0);
    return sigismember(&mask, number);
}
static void every_signal(handler_t set(int, handler_t)) {
    for (int number = 1; number < 32; number++) set(number, SIG_IGN);
    go_over();
    for (int number = 1; number < 32; number++) set(number, SIG_DFL);
    go_over();
}
static void handlers(void) {
    every_signal(__sysv_signal);
    every_signal(sysv_signal);
    every_signal(bsd_signal);
    every_signal(ssignal);
    every_signal(sigset);
    for (int number = 1; number < 32; number++) sigignore(number);
    go_over();
    struct sigaction action = {.sa_handler = SIG_DFL}, found;
    for (int number = 1; number < 32; number++) __sigaction(number, &action, 0);
    go_over();
    // Once, and then as before there was one.
    MUST(__sysv_signal(SIGUSR1, handle) == SIG_DFL && raise(SIGUSR1) == 0 && handled == 1);
    MUST(sigaction(SIGUSR1, 0, &found) == 0 && found.sa_handler == SIG_DFL);
    MUST(ssignal(SIGUSR1, handle) == SIG_DFL && raise(SIGUSR1) == 0 && raise(SIGUSR1) == 0 && handled == 3);
    MUST(bsd_signal(SIGUSR1, SIG_IGN) == handle && sigset(SIGUSR1, handle) == SIG_IGN);
    MUST(sigset(SIGBUS, handle) == SIG_DFL && sigset(SIGBUS, SIG_DFL) == handle);
    MUST(__sysv_signal(SIGKILL, handle) == SIG_ERR && errno == EINVAL && sigset(99, handle) == SIG_ERR && errno == EINVAL);
    MUST(sigignore(SIGSTOP) == -1 && sighold(0) == -1 && errno == EINVAL && sigset(SIGKILL, SIG_DFL) == SIG_ERR);
}
static void masks(void) {
    int usr1 = 1 << (SIGUSR1 - 1);
    for (int number = 1; number < 32; number++) sighold(number);
    go_over();
    MUST(is_blocked(SIGUSR1) && sigrelse(SIGUSR1) == 0 && !is_blocked(SIGUSR1));
    MUST((sigsetmask(0) & ~usr1) != 0 && sigblock(0) == 0 && sigblock(-1) == 0);
    go_over();
    MUST((sigblock(0) & usr1) && sigsetmask(usr1) != 0 && sigsetmask(0) == usr1);
    for (int number = 1; number < 32; number++) sigset(number, SIG_HOLD);
    go_over();
    MUST(sigset(SIGUSR1, SIG_HOLD) == SIG_HOLD && sigset(SIGUSR1, handle) == SIG_HOLD && !is_blocked(SIGUSR1));
    MUST(sigset(SIGUSR1, SIG_HOLD) == handle && sigsetmask(0) != 0);
    // Waits, with the signal blocked before and after.
    handled = 0;
    MUST(sighold(SIGUSR1) == 0 && raise(SIGUSR1) == 0 && bsd_sigpause(~usr1) == -1 && errno == EINTR && handled == 1);
    MUST(is_blocked(SIGUSR1) && raise(SIGUSR1) == 0 && __xpg_sigpause(SIGUSR1) == -1 && errno == EINTR && handled == 2);
    sigset_t others;
    sigfillset(&others);
    sigdelset(&others, SIGUSR1);
    MUST(is_blocked(SIGUSR1) && raise(SIGUSR1) == 0 && __sigsuspend(&others) == -1 && errno == EINTR && handled == 3);
}
int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    handlers();
    masks();
    puts("exact");
    return 0;
}
