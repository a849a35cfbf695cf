// What the kernel writes to as a thread ends, in memory that has left: mutexes that it still has, and the word that tells its end. The
// argument says of what kind: robust, inheriting, tried; word, early (before the engine starts), stack, child; exec, exit.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 40 << 20, PAGE = 4096, STACK = 1 << 20, ROUNDS = 6 * TIMES, CHILDREN = 3 };
static char *memory;
static const char *kind;
static int is_let_go, is_had;

static char *mapped(size_t bytes) {
    char *start = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(start != MAP_FAILED);
    return start;
}
// Everything else leaves.
static void press(void) {
    for (size_t at = 0; at < BYTES; at += PAGE) memory[at]++;
}
static struct timespec in_seconds(int seconds) {
    struct timespec then;
    clock_gettime(CLOCK_REALTIME, &then);
    then.tv_sec += seconds;
    return then;
}

static pthread_mutex_t *robust(void *at, int shared) {
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    MUST(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
    MUST(pthread_mutexattr_setpshared(&attributes, shared) == 0);
    if (!strcmp(kind, "inheriting")) MUST(pthread_mutexattr_setprotocol(&attributes, PTHREAD_PRIO_INHERIT) == 0);
    MUST(pthread_mutex_init(at, &attributes) == 0);
    return at;
}
static void *end_with(void *mutex) {
    MUST((strcmp(kind, "tried") ? pthread_mutex_lock : pthread_mutex_trylock)(mutex) == 0);
    __atomic_store_n(&is_had, 1, __ATOMIC_RELEASE);
    press();
    return 0;
}
static void *wait_for(void *mutex) {
    struct timespec then = in_seconds(20);
    int error = pthread_mutex_timedlock(mutex, &then);
    // Another one that waited was told.
    if (error == 0) MUST(pthread_mutex_unlock(mutex) == 0);
    if (error == EOWNERDEAD) MUST(pthread_mutex_consistent(mutex) == 0 && pthread_mutex_unlock(mutex) == 0);
    return (void *)(long)error;
}
static void mutexes(void) {
    char *all = mapped(ROUNDS * 2 * PAGE);
    for (int i = 0; i < ROUNDS; i++) {
        pthread_mutex_t *mutex = robust(all + i * 2 * PAGE, PTHREAD_PROCESS_PRIVATE);
        pthread_t owner, waiters[2];
        is_had = 0;
        MUST(pthread_create(&owner, 0, end_with, mutex) == 0);
        int waits = i % 2 * 2;
        while (!__atomic_load_n(&is_had, __ATOMIC_ACQUIRE)) usleep(100);
        for (int w = 0; w < waits; w++) MUST(pthread_create(&waiters[w], 0, wait_for, mutex) == 0);
        MUST(pthread_join(owner, 0) == 0);
        long told = 0;
        for (int w = 0; w < waits; w++) {
            void *error;
            MUST(pthread_join(waiters[w], &error) == 0 && error != (void *)ETIMEDOUT);
            told += error == (void *)EOWNERDEAD;
        }
        MUST(waits ? told == 1 : wait_for(mutex) == (void *)EOWNERDEAD);
        MUST(wait_for(mutex) == 0);
    }
}

static int end_when_let_go(void *unused) {
    (void)unused;
    struct timespec pause = {0, 1000000};
    while (!__atomic_load_n(&is_let_go, __ATOMIC_ACQUIRE)) syscall(SYS_nanosleep, &pause, 0);
    syscall(SYS_exit, 0);
    return 0;
}
static void words(void) {
    int flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM | CLONE_CHILD_CLEARTID;
    char *all = mapped(ROUNDS * PAGE);
    for (int i = 0; i < ROUNDS; i++) {
        int *word = (int *)(all + i * PAGE);
        char *stack = mapped(STACK);
        is_let_go = 0;
        *word = 1;
        MUST(clone(end_when_let_go, stack + STACK, flags, 0, 0, 0, word) > 0);
        press();
        press();
        __atomic_store_n(&is_let_go, 1, __ATOMIC_RELEASE);
        for (int looks = 0; looks < 5000 && __atomic_load_n(word, __ATOMIC_ACQUIRE); looks++) usleep(1000);
        MUST(*word == 0);
    }
}

static void *press_and_end(void *unused) {
    press();
    return unused;
}
static void stacks(void) {
    for (int i = 0; i < ROUNDS; i++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        MUST(pthread_attr_setstack(&attributes, mapped(STACK), STACK) == 0);
        MUST(pthread_create(&thread, &attributes, press_and_end, 0) == 0);
        struct timespec then = in_seconds(20);
        MUST(pthread_timedjoin_np(thread, 0, &then) == 0);
    }
}

static int child(void *status) {
    press();
    return (int)(long)status;
}
static void children(void) {
    char *stack = mapped(STACK);
    int status;
    for (int i = 0; i < CHILDREN; i++) {
        pid_t number = clone(child, stack + STACK, CLONE_VM | SIGCHLD, (void *)(long)(3 + i));
        MUST(number > 0 && waitpid(number, &status, 0) == number);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 3 + i);
    }
    pid_t number = fork();
    if (number == 0) _exit(memory[0] == memory[PAGE] ? 0 : 1);
    MUST(waitpid(number, &status, 0) == number && status == 0);
}

// The kernel looks at what the process has as it becomes another, and as it ends.
static void have(void *at) {
    MUST(pthread_mutex_lock(robust(at, PTHREAD_PROCESS_PRIVATE)) == 0);
    press();
    press();
}
static void another(void) {
    have(mapped(PAGE));
    execl("/bin/echo", "echo", "exact", (char *)0);
    MUST(0);
}
static void exits(void) {
    void *page = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(page != MAP_FAILED);
    pthread_mutex_t *shared = robust(page, PTHREAD_PROCESS_SHARED);
    for (int i = 0; i < CHILDREN; i++) {
        pid_t number = fork();
        if (number == 0) {
            // The kernel comes to this one past the other.
            MUST(pthread_mutex_lock(shared) == 0);
            have(mapped(PAGE));
            exit(0);
        }
        int status;
        MUST(waitpid(number, &status, 0) == number && status == 0);
        MUST(wait_for(shared) == (void *)EOWNERDEAD);
    }
}

int main(int count, char **arguments) {
    MUST(count == 2);
    kind = arguments[1];
    memory = mapped(BYTES);
    // A hang is a failure.
    alarm(300);
    if (strcmp(kind, "early")) press();
    if (!strcmp(kind, "exec")) another();
    else if (!strcmp(kind, "exit")) exits();
    else if (!strcmp(kind, "word") || !strcmp(kind, "early")) words();
    else if (!strcmp(kind, "stack")) stacks();
    else if (!strcmp(kind, "child")) children();
    else mutexes();
    for (size_t at = 0; at < BYTES; at += PAGE) MUST(memory[at] == memory[0]);
    puts("exact");
    return 0;
}
