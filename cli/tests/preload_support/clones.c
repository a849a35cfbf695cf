// Children with memory of their own, made by every call that makes them and with more than a fork's flags, while other
// threads take memory and use it. Each has its parent's memory, more than there is RAM for, and memory of its own.
// With "few", by every call but only with few of their flags. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 22 << 20, PAGES = BYTES / PAGE, STACK = 256 << 10 };

struct clone3 {
    uint64_t flags, pidfd, child, parent, signal, stack, stack_bytes, locals, pids, pids_count, cgroup;
};

static char *memory;
// In managed memory, and seldom used.
static struct numbers {
    int parent, child, pidfd;
} *numbers;

// A part of the pages: each child reads and writes as much several times.
enum { STEP = 2 };

static void fill(char *at, long pages, long seed) {
    for (long page = 0; page < pages; page += STEP) *(long *)(at + page * PAGE) = page + seed;
}

static void check(const char *at, long pages, long seed) {
    for (long page = 0; page < pages; page += STEP) MUST(*(long *)(at + page * PAGE) == page + seed);
}

static char *map(long bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static volatile int is_over;

// What holds the C library's locks and the library's at any moment.
static void *disturb(void *argument) {
    long seed = (long)argument;
    while (!is_over) {
        char *own = malloc(4 << 20);
        MUST(own);
        fill(own, 1024, seed);
        check(own, 1024, seed);
        free(own);
        char *blocks[64];
        for (int i = 0; i < 64; i++) MUST(blocks[i] = strdup("a block"));
        for (int i = 0; i < 64; i++) free(blocks[i]);
        setvbuf(stderr, 0, _IONBF, 0);
        // The CPUs are for the children, too.
        usleep(3000);
    }
    return 0;
}

static void *nothing(void *argument) { return argument; }

// What every child does; its status.
static int be_child(int flags) {
    check(memory, PAGES, 1);
    if (flags & CLONE_CHILD_SETTID) MUST(numbers->child == gettid());
    if (flags & CLONE_NEWPID) MUST(getpid() == 1);
    // Its own memory, threads and children.
    fill(memory, PAGES, 5);
    pthread_t thread;
    MUST(!pthread_create(&thread, 0, nothing, 0) && !pthread_join(thread, 0));
    int status, child = fork();
    if (!child) {
        check(memory, PAGES, 5);
        _exit(3);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    check(memory, PAGES, 5);
    return 7;
}

static int child_function(void *argument) { return be_child((int)(long)argument); }

static void await(int child, int flags) {
    int status = 0;
    MUST(child > 0);
    if (flags & CLONE_PARENT_SETTID) MUST(numbers->parent == child);
    if (flags & CLONE_PIDFD) {
        struct pollfd poll_for = {.fd = numbers->pidfd, .events = POLLIN};
        MUST(poll(&poll_for, 1, -1) == 1 && !close(numbers->pidfd));
    }
    MUST(waitpid(child, &status, __WALL) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check(memory, PAGES, 1);
}

// A clone cannot have both.
static int *where_parent(int flags) { return flags & CLONE_PIDFD ? &numbers->pidfd : &numbers->parent; }

static void by_number(int flags, int signal) {
    int child = syscall(SYS_clone, flags | signal, 0, where_parent(flags), &numbers->child, 0);
    if (!child) syscall(SYS_exit, be_child(flags));
    await(child, flags);
}

static void by_instruction(int flags, int signal) {
    long child = RAW(SYS_clone, flags | signal, 0, where_parent(flags), &numbers->child, 0);
    if (!child) RAW(SYS_exit, be_child(flags));
    await(child, flags);
}

static void by_clone3(int flags, int signal) {
    struct clone3 wanted = {
        .flags = flags, .signal = signal, .pidfd = (uint64_t)&numbers->pidfd,
        .child = (uint64_t)&numbers->child, .parent = (uint64_t)&numbers->parent};
    int child = syscall(SYS_clone3, &wanted, sizeof wanted);
    if (!child) syscall(SYS_exit_group, be_child(flags));
    await(child, flags);
    child = RAW(SYS_clone3, &wanted, sizeof wanted);
    if (!child) RAW(SYS_exit_group, be_child(flags));
    await(child, flags);
}

static void by_function(int flags, int signal) {
    char *stack = map(STACK);
    int child = clone(child_function, stack + STACK, flags | signal, (void *)(long)flags, where_parent(flags), 0, &numbers->child);
    await(child, flags);
    MUST(!munmap(stack, STACK));
}

static void every_way(int flags, int signal) {
    fill(memory, PAGES, 1);
    by_number(flags, signal);
    by_instruction(flags, signal);
    by_function(flags, signal);
    if (signal != SIGCHLD + 1) by_clone3(flags, signal);
}

// Goes on when the child has called exec, whatever the child's child still does, and whatever it closes.
static void suspended(void) {
    int ends[2], status;
    char byte;
    MUST(!pipe(ends));
    int child = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
    if (!child) {
        check(memory, PAGES, 1);
        if (!fork()) {
            MUST(read(ends[0], &byte, 1) == 1);
            _exit(0);
        }
        MUST(write(ends[1], "12", 2) == 2);
        for (int fd = 3; fd < 1000; fd++) if (fd != ends[1]) close(fd);
        execl("/bin/sh", "sh", "-c", "exit 7", (char *)0);
        _exit(1);
    }
    MUST(poll(&(struct pollfd){.fd = ends[0], .events = POLLIN}, 1, 0) == 1 && read(ends[0], &byte, 1) == 1);
    MUST(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    MUST(!close(ends[0]) && !close(ends[1]));
}

static void handler(int number) {}

static void without_handlers(void) {
    MUST(signal(SIGUSR1, handler) != SIG_ERR && signal(SIGUSR2, SIG_IGN) != SIG_ERR);
    struct clone3 wanted = {.flags = 1ull << 32, .signal = SIGCHLD};
    int child = syscall(SYS_clone3, &wanted, sizeof wanted), status;
    if (!child) {
        check(memory, PAGES, 1);
        MUST(signal(SIGUSR1, SIG_DFL) == SIG_DFL && signal(SIGUSR2, SIG_DFL) == SIG_IGN);
        _exit(7);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
}

static pthread_mutex_t forking = PTHREAD_MUTEX_INITIALIZER;

static void lock(void) {
    MUST(!pthread_mutex_lock(&forking));
    usleep(2000);
}

static void unlock(void) {
    MUST(!pthread_mutex_unlock(&forking));
}

enum { FORKS = 8 };

// Children that stay: what keeps another child's parent suspended must not be theirs.
static void *fork_beside(void *children) {
    for (int i = 0; i < FORKS; i++) {
        int child = fork();
        MUST(child >= 0);
        if (!child) for (;;) pause();
        ((int *)children)[i] = child;
    }
    return 0;
}

// Forks of two threads wait for each other in the program's handlers, and one of them has its parent suspended.
static void beside_each_other(void) {
    pthread_t thread;
    int children[FORKS], status;
    MUST(!pthread_atfork(lock, unlock, unlock));
    MUST(!pthread_create(&thread, 0, fork_beside, children));
    for (int i = 0; i < FORKS; i++) {
        int child = syscall(SYS_clone, CLONE_VFORK | SIGCHLD, 0, 0, 0, 0);
        if (!child) {
            check(memory, 16, 1);
            _exit(7);
        }
        MUST(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 7);
    }
    MUST(!pthread_join(thread, 0));
    for (int i = 0; i < FORKS; i++) {
        MUST(!kill(children[i], SIGKILL) && waitpid(children[i], &status, 0) == children[i]);
    }
}

int main(int count, char **arguments) {
    int namespaces = geteuid() ? CLONE_NEWUSER : 0;
    memory = map(BYTES);
    memset(memory, 1, BYTES);
    numbers = (struct numbers *)map(PAGE);
    fill(memory, PAGES, 1);
    pthread_t threads[2];
    for (long i = 0; i < 2; i++) MUST(!pthread_create(&threads[i], 0, disturb, (void *)(i + 10)));
    every_way(0, SIGCHLD);
    if (count == 1) {
        every_way(0, 0);
        every_way(0, SIGCHLD + 1);
        every_way(CLONE_CHILD_SETTID | CLONE_CHILD_CLEARTID | CLONE_PARENT_SETTID, SIGCHLD);
        every_way(CLONE_FS | CLONE_FILES | CLONE_SYSVSEM, SIGCHLD);
        every_way(CLONE_PIDFD, SIGCHLD);
    }
    every_way(namespaces | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS, SIGCHLD);
    suspended();
    without_handlers();
    beside_each_other();
    MUST(syscall(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD, 0, 0, 0, 0) == -1 && errno == EINVAL);
    MUST(RAW(SYS_clone, CLONE_NEWNS | CLONE_FS | SIGCHLD) == -EINVAL);
    check(memory, PAGES, 1);
    is_over = 1;
    for (int i = 0; i < 2; i++) MUST(!pthread_join(threads[i], 0));
    puts("exact");
    return 0;
}
