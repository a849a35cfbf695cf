// Transfers of more than is kept at once by devices, and buffers of which the end may not be touched: as much is moved as without us.
#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, FILLED = 48 << 20, LONG = (3 << 20) + 123 };
static char *filled;

static void go_over(void) {
    for (int time = 0; time < 2; time++)
        for (long at = 0; at < FILLED; at += PAGE) filled[at]++;
}
static int opened(const char *path) {
    int file = open(path, O_RDWR);
    MUST(file >= 0);
    return file;
}
static int is_all(const char *start, long bytes, char byte) {
    for (long at = 0; at < bytes; at++)
        if (start[at] != byte) return 0;
    return 1;
}
static void devices(void) {
    char *buffer = malloc(LONG);
    int zero = opened("/dev/zero"), null = opened("/dev/null"), random = opened("/dev/urandom");
    memset(buffer, 1, LONG);
    go_over();
    MUST(read(zero, buffer, LONG) == LONG && is_all(buffer, LONG, 0));
    memset(buffer, 1, LONG);
    MUST(pread(zero, buffer, LONG, 0) == LONG && is_all(buffer, LONG, 0));
    memset(buffer, 1, LONG);
    struct iovec parts[] = {{buffer, LONG / 2}, {buffer + LONG / 2, LONG - LONG / 2}};
    MUST(readv(zero, parts, 2) == LONG && is_all(buffer, LONG, 0));
    MUST(read(random, buffer, LONG) == LONG && !is_all(buffer + LONG - 64, 64, 0));
    go_over();
    MUST(write(null, buffer, LONG) == LONG && writev(null, parts, 2) == LONG);
    FILE *stream = fopen("/dev/zero", "r");
    MUST(stream && fread(buffer, 1, LONG, stream) == LONG && is_all(buffer, LONG, 0) && fclose(stream) == 0);
    MUST(close(zero) == 0 && close(null) == 0 && close(random) == 0);
    free(buffer);
}
// A page that has left, and one that may not be touched behind it.
static char *before_a_guard(void) {
    char *start = mmap(0, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(start != MAP_FAILED);
    memset(start, 1, 2 * PAGE);
    MUST(mprotect(start + PAGE, PAGE, PROT_NONE) == 0 && madvise(start, PAGE, MADV_PAGEOUT) == 0);
    return start;
}
static void guarded(void) {
    int ends[2];
    MUST(pipe(ends) == 0 && write(ends[1], "five!", 5) == 5);
    MUST(ioctl(ends[0], FIONREAD, before_a_guard() + PAGE - 4) == 0);
    char *start = before_a_guard();
    MUST(read(ends[0], start + PAGE - 100, PAGE) == 5 && memcmp(start + PAGE - 100, "five!", 5) == 0);
    MUST(write(ends[1], "again", 5) == 5);
    start = before_a_guard();
    struct iovec part = {start + PAGE - 100, PAGE};
    MUST(readv(ends[0], &part, 1) == 5 && memcmp(start + PAGE - 100, "again", 5) == 0);
    // What is there is written, up to the guard.
    start = before_a_guard();
    MUST(write(ends[1], start + PAGE - 7, PAGE) == -1 && errno == EFAULT);
}
int main(void) {
    filled = malloc(FILLED);
    memset(filled, 1, FILLED);
    go_over();
    devices();
    guarded();
    puts("exact");
    return 0;
}
