// A user namespace of its own, which the kernel gives only a process of one thread: this has one, beside those of the library's.
// Its memory, more than there is RAM for, is what it was, before and after, in children too. With "small" it has little memory.
// Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096 };

static char *memory;
static long pages;

static void fill(long seed) {
    for (long page = 0; page < pages; page++) *(long *)(memory + page * PAGE) = page * 7 + seed;
}

static void check(long seed) {
    for (long page = 0; page < pages; page++) MUST(*(long *)(memory + page * PAGE) == page * 7 + seed);
}

static long user_namespace(void) {
    char target[64] = "";
    MUST(readlink("/proc/self/ns/user", target, sizeof target - 1) > 0);
    long number = 0;
    MUST(sscanf(target, "user:[%ld]", &number) == 1);
    return number;
}

static int threads(void) {
    FILE *status = fopen("/proc/self/status", "r");
    char line[256];
    int number = 0;
    MUST(status);
    while (fgets(line, sizeof line, status)) sscanf(line, "Threads: %d", &number);
    fclose(status);
    return number;
}

static void *wait_for(void *lock) {
    MUST(!pthread_mutex_lock(lock) && !pthread_mutex_unlock(lock));
    return NULL;
}

static void await(pid_t child) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
}

// The library's are no business of the program's.
static void looks_alone(void) {
    struct stat found;
    int proc = open("/proc/", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    MUST(proc >= 0 && !fstatat(proc, "self/task/", &found, 0) && found.st_nlink == 3);
    MUST(!stat("/proc/self/task", &found) && found.st_nlink == 3);
    // Others are as they are.
    MUST(!fstatat(proc, "1/task", &found, 0) && found.st_nlink >= 3);
    MUST(!close(proc));
}

static char no_locals[16384] __attribute__((aligned(64))), its_stack[65536] __attribute__((aligned(64)));

static int change_directory(void *root) {
    // It has this memory, and no thread-locals.
    _exit(chroot("/proc/self/fdinfo") || chdir("/") ? 1 : root != memory);
}

// As Chromium's sandbox does, once it may.
static void lose_the_root(void) {
    int flags = CLONE_FS | CLONE_VM | CLONE_VFORK | CLONE_SETTLS | SIGCHLD;
    pid_t child = clone(change_directory, its_stack + sizeof its_stack, flags, memory, NULL, no_locals + 8192, NULL);
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && !status);
    MUST(access("/proc", F_OK) == -1);
}

// By the function, and by the number.
static void have_a_namespace(int by_number) {
    long before = user_namespace();
    int had = threads();
    MUST(!(by_number ? (int)syscall(SYS_unshare, CLONE_NEWUSER) : unshare(CLONE_NEWUSER)));
    MUST(user_namespace() != before);
    // Those that there were are there again, but for what had only to be done once.
    MUST(had == 1 || threads() > 1);
    check(1);
    fill(2);
    check(2);
    pid_t child = fork();
    if (!child) {
        check(2);
        fill(3);
        check(3);
        _exit(0);
    }
    await(child);
    check(2);
}

static void in_child(int by_number) {
    pid_t child = fork();
    if (!child) {
        check(1);
        looks_alone();
        have_a_namespace(by_number);
        lose_the_root();
        fill(4);
        check(4);
        _exit(0);
    }
    await(child);
}

int main(int count, char **arguments) {
    (void)arguments;
    pages = (count > 1 ? 1 << 20 : 28 << 20) / PAGE;
    memory = malloc(pages * PAGE);
    MUST(memory);
    fill(1);
    in_child(0);
    in_child(1);
    // A thread of the program's own: as natively it cannot have one.
    pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
    pthread_t thread;
    MUST(!pthread_mutex_lock(&lock) && !pthread_create(&thread, NULL, wait_for, &lock));
    MUST(unshare(CLONE_NEWUSER) == -1 && errno == EINVAL);
    MUST(!pthread_mutex_unlock(&lock) && !pthread_join(thread, NULL));
    check(1);
    // What is there natively, too, and refused: the memory stays.
    MUST(setns(open("/proc/self/ns/user", O_RDONLY | O_CLOEXEC), CLONE_NEWUSER) == -1 && errno == EINVAL);
    check(1);
    looks_alone();
    have_a_namespace(0);
    check(2);
    puts("exact");
    return 0;
}
