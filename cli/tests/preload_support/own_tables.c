// Descriptor tables of their own, of a process's only thread and of one of two: what another thread has open stays open.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/close_range.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };
static char *memory;

static void look(char stamp) {
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == stamp);
}
static void change(char stamp) {
    memset(memory, stamp, BYTES);
    look(stamp);
}
static int is_open(int fd) { return fcntl(fd, F_GETFD) >= 0; }

static void *close_own(void *fd) {
    int number = *(int *)fd;
    MUST(close_range(number, number, CLOSE_RANGE_UNSHARE) == 0 && !is_open(number));
    look(3);
    return 0;
}
static void *unshare_and_close(void *fd) {
    int number = *(int *)fd;
    MUST(unshare(CLONE_FILES) == 0 && close(number) == 0);
    look(3);
    return 0;
}
// Its threads cannot be counted where nothing can be opened.
static void *without_room(void *fd) {
    struct rlimit before, none = {0, 0};
    MUST(getrlimit(RLIMIT_NOFILE, &before) == 0);
    none.rlim_max = before.rlim_max;
    MUST(setrlimit(RLIMIT_NOFILE, &none) == 0);
    close_own(fd);
    MUST(setrlimit(RLIMIT_NOFILE, &before) == 0);
    return 0;
}
static void in_thread(void *(*act)(void *)) {
    pthread_t thread;
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0 && pthread_create(&thread, 0, act, &fd) == 0 && pthread_join(thread, 0) == 0);
    MUST(is_open(fd) && close(fd) == 0);
    look(3);
}

int main(void) {
    // Before the engine starts.
    MUST(close_range(3, ~0u, CLOSE_RANGE_UNSHARE) == 0);
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    change(1);
    MUST(close_range(3, ~0u, CLOSE_RANGE_UNSHARE) == 0);
    change(2);
    MUST(unshare(CLONE_FILES) == 0);
    change(3);
    in_thread(close_own);
    in_thread(unshare_and_close);
    in_thread(without_room);
    change(4);
    puts("exact");
    return 0;
}
