// Guard pages in blocks of malloc, as coroutines have them below their stacks: what calls name beside them works, what they
// name of them is refused.
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, FILLED = 48 << 20, STACK = 16 * PAGE, TURNS = 8 };
static char *filled;
static ucontext_t scheduler, coroutine;
static int ends[2];
static long turns;

static void go_over(void) {
    for (int time = 0; time < 2; time++)
        for (long at = 0; at < FILLED; at += PAGE) filled[at]++;
}
static void out(char *start, long bytes) { MUST(madvise(start, bytes, MADV_PAGEOUT) == 0); }
static char *block(long bytes) {
    char *start;
    MUST(posix_memalign((void **)&start, PAGE, bytes) == 0);
    memset(start, 1, bytes);
    return start;
}
static void named(const char *path) {
    char *start = block(3 * PAGE), *guard = start + PAGE;
    struct flock *lock = (struct flock *)(guard - sizeof *lock);
    int file = open(path, O_RDWR | O_CREAT, 0600);
    MUST(file >= 0 && unlink(path) == 0);
    *lock = (struct flock){.l_type = F_WRLCK};
    out(start, 3 * PAGE);
    MUST(mprotect(guard, PAGE, PROT_NONE) == 0);
    MUST(mlock(start, 3 * PAGE) == -1 && errno == ENOMEM);
    MUST(madvise(start, 3 * PAGE, MADV_POPULATE_READ) == -1 && (errno == ENOMEM || errno == EFAULT || errno == EINVAL));
    MUST(fcntl(file, F_GETLK, lock) == 0 && lock->l_type == F_UNLCK);
    MUST(write(ends[1], guard, 1) == -1 && errno == EFAULT);
    MUST(read(ends[0], guard, 1) == -1);
    // A name that does not end before it.
    memset(guard - 8, '/', 8);
    MUST(open(guard - 8, O_RDONLY) == -1 && errno == EFAULT && open(guard, O_RDONLY) == -1 && errno == EFAULT);
    MUST(munlock(start, 3 * PAGE) == 0);
    // It may be read again.
    MUST(mprotect(guard, PAGE, PROT_READ) == 0 && mlock(start, 3 * PAGE) == 0 && munlock(start, 3 * PAGE) == 0);
    out(start, 3 * PAGE);
    MUST(write(ends[1], guard, 1) == 1 && read(ends[0], start, 1) == 1);
    MUST(mprotect(guard, PAGE, PROT_READ | PROT_WRITE) == 0);
    for (int at = 1; at < 2 * PAGE; at++) MUST(guard[at] == 1);
    free(start);
    MUST(close(file) == 0);
}
static void turn(void) {
    for (;;) {
        char byte = (char)turns;
        MUST(write(ends[1], &byte, 1) == 1 && read(ends[0], &byte, 1) == 1 && byte == (char)turns);
        turns++;
        MUST(swapcontext(&coroutine, &scheduler) == 0);
    }
}
// Its calls are made right below the guard of the next one.
static void stack(void) {
    char *start = block(STACK + PAGE);
    out(start + STACK, PAGE);
    MUST(mprotect(start + STACK, PAGE, PROT_NONE) == 0 && getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = start;
    coroutine.uc_stack.ss_size = STACK;
    makecontext(&coroutine, turn, 0);
    for (int time = 0; time < TURNS; time++) {
        MUST(swapcontext(&scheduler, &coroutine) == 0);
        out(start, STACK);
    }
    MUST(turns == TURNS);
}
int main(int count, char **arguments) {
    MUST(count == 2 && pipe2(ends, O_NONBLOCK) == 0);
    filled = malloc(FILLED);
    memset(filled, 1, FILLED);
    go_over();
    named(arguments[1]);
    stack();
    puts("exact");
    return 0;
}
