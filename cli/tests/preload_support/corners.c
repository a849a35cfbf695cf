// What few programs ask for, and what is refused: as without us, also of memory that has left.
#define _GNU_SOURCE
#include <linux/futex.h>
#include <fcntl.h>
#include <mqueue.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, FILLED = 48 << 20 };
static char *filled;

static char *pages(long count) {
    char *start = mmap(0, count * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(start != MAP_FAILED);
    memset(start, 1, count * PAGE);
    return start;
}
static void *out(void *start, long bytes) {
    MUST(madvise((void *)((long)start & -PAGE), bytes, MADV_PAGEOUT) == 0);
    return start;
}
static void too_large(void) {
    char *block = malloc(FILLED);
    memset(block, 5, FILLED);
    volatile size_t most = (size_t)-1;
    for (size_t less = 0; less < 2 * PAGE; less += PAGE / 2)
        MUST(realloc(block, most - less) == 0 && errno == ENOMEM);
    for (long at = 0; at < FILLED; at += PAGE) MUST(block[at] == 5);
    free(block);
}
static void shorter(void) {
    char *start = pages(16);
    MUST(mprotect(start + 15 * PAGE, PAGE, PROT_NONE) == 0 && mprotect(start + 3 * PAGE, PAGE, PROT_READ) == 0);
    MUST(mremap(start, 16 * PAGE, 32 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    MUST(mremap(start, 16 * PAGE, 8 * PAGE, 0) == start && mremap(start, 8 * PAGE, 2 * PAGE, MREMAP_MAYMOVE) == start);
    unsigned char there[2];
    MUST(mincore(start, 2 * PAGE, there) == 0 && mincore(start + 2 * PAGE, PAGE, there) == -1 && errno == ENOMEM);
    MUST(start[0] == 1 && start[2 * PAGE - 1] == 1);
    // A vector that cannot be written to, or only in part.
    char *many = pages(PAGE + 1), *vector = pages(2);
    MUST(mincore(start, 2 * PAGE, 0) == -1 && errno == EFAULT);
    MUST(mprotect(vector + PAGE, PAGE, PROT_READ) == 0);
    MUST(mincore(many, (PAGE + 1L) * PAGE, (void *)vector) == -1 && errno == EFAULT);
    MUST(mincore(many, PAGE * (long)PAGE, out(vector, PAGE)) == 0);
}
static void words(void) {
    int *first = (int *)pages(1), *second = (int *)pages(1);
    *first = *second = 0;
    out(second, PAGE);
    MUST(syscall(SYS_futex, first, FUTEX_WAKE_OP_PRIVATE, 1, 1L, second, FUTEX_OP(FUTEX_OP_ADD, 3, FUTEX_OP_CMP_EQ, 0)) == 0);
    MUST(*second == 3);
    struct { unsigned long value, address; unsigned flags, reserved; } waits[] = {{1, (long)first, 2, 0}, {2, (long)second, 2, 0}};
    out(first, PAGE);
    out(second, PAGE);
    // FUTEX_32 with the flag for a process's own; the first has another value.
    waits[0].flags = waits[1].flags = 2 | 128;
    MUST(syscall(449, waits, 2, 0, 0L, 1) == -1 && errno == EAGAIN);
}
static ucontext_t *here, *there;
static int turns;
static void turn(void) {
    for (;;) {
        turns++;
        out(here, PAGE);
        MUST(swapcontext(there, here) == 0);
    }
}
static void contexts(void) {
    here = (ucontext_t *)pages(1), there = (ucontext_t *)pages(1);
    MUST(getcontext(there) == 0);
    there->uc_stack.ss_sp = pages(16);
    there->uc_stack.ss_size = 16 * PAGE;
    makecontext(there, turn, 0);
    for (int time = 1; time < 20; time++) {
        out(there, PAGE);
        MUST(swapcontext(here, there) == 0 && turns == time);
    }
    volatile int back = 0;
    MUST(getcontext(here) == 0);
    if (!back++) {
        out(here, PAGE);
        setcontext(here);
    }
    MUST(back == 2);
}
static void others(void) {
    cpu_set_t *set = out(pages(1), PAGE);
    MUST(pthread_getaffinity_np(pthread_self(), sizeof *set, set) == 0 && CPU_COUNT(set) > 0);
    out(set, PAGE);
    MUST(pthread_setaffinity_np(pthread_self(), sizeof *set, set) == 0);
    char *name = pages(1);
    strcpy(name, "corners");
    out(name, PAGE);
    MUST(pthread_setname_np(pthread_self(), name) == 0);
    out(name, PAGE);
    MUST(pthread_getname_np(pthread_self(), name, 16) == 0 && strcmp(name, "corners") == 0);
    strcpy(name, "/");
    out(name, PAGE);
    MUST(pathconf(name, _PC_NAME_MAX) > 0);
    strcpy(name, "/userswap-corners");
    struct mq_attr *attributes = (struct mq_attr *)pages(1);
    mqd_t queue = mq_open(name, O_RDWR | O_CREAT, 0600, (struct mq_attr *)0);
    if (queue != (mqd_t)-1) {
        out(attributes, PAGE);
        MUST(mq_getattr(queue, attributes) == 0 && attributes->mq_msgsize > 0);
        out(attributes, PAGE);
        MUST(mq_setattr(queue, attributes, 0) == 0 && mq_close(queue) == 0);
        out(name, PAGE);
        MUST(mq_unlink(name) == 0);
    }
    strcpy(name, "exact");
    MUST(setvbuf(stdout, 0, _IONBF, 0) == 0);
    out(name, PAGE);
    MUST(puts(name) >= 0);
}
static void advice(void) {
    char *start = pages(16);
    MUST(madvise(start, -PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    errno = 0;
    MUST(madvise(start, 8 * PAGE, MADV_DONTNEED) == 0 && errno == 0 && start[0] == 0 && start[8 * PAGE] == 1);
    MUST(mprotect(start, PAGE, PROT_NONE) == 0);
    MUST(madvise(start, 2 * PAGE, MADV_POPULATE_READ) == -1 && errno == EINVAL);
    MUST(munmap(start, 16 * PAGE) == 0);
}
int main(void) {
    filled = malloc(FILLED);
    for (int time = 0; time < 3; time++) memset(filled, time, FILLED);
    too_large();
    shorter();
    words();
    contexts();
    others();
    advice();
    return 0;
}
