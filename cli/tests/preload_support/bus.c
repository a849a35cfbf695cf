// SIGBUS that is the program's own, also where faults come by it: handlers use memory that is swapped out, leave by a jump or
// for good, and one that is sent does what the program wants of it.
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

// A signal frame takes 11 KiB where the CPU has AMX.
enum { PAGE = 4096, BYTES = 48 << 20, STACKS = 256 << 10, TURNS = 20 };
static char *memory, *cold, *beyond, stacks[STACKS];
static volatile int handled, seen_mask;
static sigjmp_buf saved;
static jmp_buf plain;

static char touch(void) {
    MUST(madvise(cold, PAGE, MADV_PAGEOUT) == 0);
    return ++*cold;
}
static void note_mask(void) {
    sigset_t mask;
    MUST(sigprocmask(SIG_BLOCK, 0, &mask) == 0);
    seen_mask = sigismember(&mask, SIGUSR1) | sigismember(&mask, SIGUSR2) << 1 | sigismember(&mask, SIGHUP) << 2;
}
static void jump_back(int number) {
    MUST(number == SIGBUS);
    touch();
    note_mask();
    handled++;
    siglongjmp(saved, 1);
}
static void jump(int number) {
    touch();
    note_mask();
    handled += number == SIGBUS;
    _longjmp(plain, 1);
}
static void mend(int number, siginfo_t *info, void *context) {
    (void)context;
    touch();
    handled += number == SIGBUS && (char *)info->si_addr == beyond;
    MUST(mmap(beyond, PAGE, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == beyond);
}
static void hear(int number, siginfo_t *info, void *context) {
    (void)context;
    touch();
    handled += number == SIGBUS && info->si_pid == getpid();
}
static void use(int number) {
    for (long at = 0; at < BYTES; at += PAGE) *(volatile char *)(memory + at) += 0;
    handled += number == SIGBUS;
}
static void act(void *handler, int flags) {
    struct sigaction action = {.sa_handler = handler, .sa_flags = flags};
    sigemptyset(&action.sa_mask);
    sigaddset(&action.sa_mask, SIGUSR2);
    MUST(sigaction(SIGBUS, &action, 0) == 0);
}
// A page of a file that ends before it.
static void truncated(void) {
    int file = memfd_create("file", 0);
    MUST(file >= 0 && ftruncate(file, PAGE) == 0);
    beyond = mmap(0, PAGE, PROT_READ, MAP_SHARED, file, 0);
    MUST(beyond != MAP_FAILED && ftruncate(file, 0) == 0 && close(file) == 0);
}
static void jumps(void) {
    sigset_t usr1, before, after;
    sigemptyset(&usr1);
    sigaddset(&usr1, SIGUSR1);
    MUST(sigprocmask(SIG_BLOCK, &usr1, &before) == 0);
    act(jump_back, 0);
    for (int turn = 1; turn <= TURNS; turn++) {
        if (sigsetjmp(saved, 1) == 0) MUST(*(volatile char *)beyond != *(volatile char *)beyond);
        MUST(handled == turn && seen_mask == 3);
        touch();
    }
    act(jump, SA_NODEFER);
    for (int turn = 1; turn <= TURNS; turn++) {
        if (_setjmp(plain) == 0) MUST(*(volatile char *)beyond != *(volatile char *)beyond);
        MUST(handled == TURNS + turn && seen_mask == 3);
        touch();
    }
    // Those of the handler stay blocked, as without us, and no others.
    MUST(sigprocmask(SIG_SETMASK, &before, &after) == 0);
    MUST(sigismember(&after, SIGUSR1) && sigismember(&after, SIGUSR2) && !sigismember(&after, SIGHUP));
}
static void returns(void) {
    handled = 0;
    act(mend, SA_SIGINFO);
    MUST(*(volatile char *)beyond == 0 && handled == 1);
    touch();
    act(hear, SA_SIGINFO);
    MUST(raise(SIGBUS) == 0 && handled == 2 && kill(getpid(), SIGBUS) == 0 && handled == 3);
    touch();
}
// A fault of a handler needs no more of its stack than the kernel does.
static void *on_small_stack(void *stacks) {
    long bytes = 3 * getauxval(AT_MINSIGSTKSZ);
    MUST(bytes < STACKS / 2);
    char *stack = (char *)stacks + STACKS - bytes;
    MUST(sigaltstack(&(stack_t){.ss_sp = stack, .ss_size = bytes}, 0) == 0);
    handled = 0;
    act(use, SA_ONSTACK);
    for (int turn = 1; turn <= 4; turn++) MUST(raise(SIGBUS) == 0 && handled == turn);
    for (char *below = stacks; below < stack; below++) MUST(*below == 0);
    MUST(sigaltstack(&(stack_t){.ss_flags = SS_DISABLE}, 0) == 0);
    return stacks;
}
static void ignored(void) {
    MUST(signal(SIGBUS, SIG_IGN) != SIG_ERR);
    for (int turn = 0; turn < TURNS; turn++) {
        MUST(raise(SIGBUS) == 0 && kill(getpid(), SIGBUS) == 0);
        touch();
    }
}
static void *sent(void) { raise(SIGBUS); return 0; }
static void *read_beyond(void) { return (void *)(long)*(volatile char *)beyond; }
static void *sent_once_more(void) { handled = 0; raise(SIGBUS); MUST(handled == 1); touch(); raise(SIGBUS); return 0; }
// The child dies of SIGBUS.
static void dies(void *(*of)(void), void *handler, int flags) {
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0}) == 0);
        act(handler, flags);
        touch();
        of();
        _exit(3);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}
int main(void) {
    pthread_t thread;
    void *returned;
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    cold = memory + (8 << 20);
    truncated();
    dies(sent, SIG_DFL, 0);
    dies(read_beyond, SIG_DFL, 0);
    dies(read_beyond, SIG_IGN, 0);
    dies(sent_once_more, hear, SA_SIGINFO | SA_RESETHAND);
    jumps();
    returns();
    ignored();
    MUST(pthread_create(&thread, 0, on_small_stack, stacks) == 0);
    MUST(pthread_join(thread, &returned) == 0 && returned == stacks);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory + at == cold || memory[at] == 1);
    puts("exact");
    return 0;
}
