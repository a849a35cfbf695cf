/* A file mapped into a reservation, as V8's snapshot and a JVM's class archive are: before the engine engages, and
   after it; forked children have both, and their memory. Prints "exact". */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { RESERVED = 4 << 20, AT = 65536, OVERLAID = 2 * 4096, HEAP = 48 << 20 };

static char expected[OVERLAID];

static char *overlay(int file) {
    char *reserved = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (reserved == MAP_FAILED) { perror("reserve"); exit(2); }
    char *mapped = mmap(reserved + AT, OVERLAID, PROT_READ, MAP_PRIVATE | MAP_FIXED, file, 0);
    if (mapped != reserved + AT) { perror("overlay"); exit(2); }
    /* Memory of its own beside the file. */
    if (mprotect(reserved, AT, PROT_READ | PROT_WRITE)) { perror("commit"); exit(2); }
    memset(reserved, 7, AT);
    return reserved;
}

static void check(const char *when, const char *reserved, const char *heap, char byte) {
    for (int at = 0; at < AT; at++)
        if (reserved[at] != 7) { printf("%s: wrong byte beside the file\n", when); exit(1); }
    if (memcmp(reserved + AT, expected, OVERLAID)) { printf("%s: not the file\n", when); exit(1); }
    for (long at = 0; at < HEAP; at += 4096)
        if (heap[at] != byte) { printf("%s: wrong byte at %ld\n", when, at); exit(1); }
}

static void fork_and_check(const char *when, char *first, char *second, char *heap) {
    pid_t child = fork();
    if (child < 0) { perror("fork"); exit(2); }
    if (child == 0) {
        check(when, first, heap, 3);
        check(when, second, heap, 3);
        memset(heap, 4, HEAP);
        check(when, first, heap, 4);
        _exit(0);
    }
    int status;
    waitpid(child, &status, 0);
    if (status) { printf("%s: the child ended with %#x\n", when, status); exit(1); }
    check(when, first, heap, 3);
}

/* Past the end of a file there is nothing: SIGBUS, as ever. */
static void touch_past_the_end(void) {
    char *reserved = mmap(0, RESERVED, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    FILE *stream = tmpfile();
    if (!stream || ftruncate(fileno(stream), 4096)) { perror("file"); exit(2); }
    char *mapped = mmap(reserved + AT, OVERLAID, PROT_READ, MAP_PRIVATE | MAP_FIXED, fileno(stream), 0);
    if (mapped != reserved + AT) { perror("overlay"); exit(2); }
    pid_t child = fork();
    if (child < 0) { perror("fork"); exit(2); }
    if (child == 0) {
        alarm(20);
        _exit(mapped[0] ? 3 : *(volatile char *)(mapped + 4096) ? 4 : 5);
    }
    int status;
    waitpid(child, &status, 0);
    if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGBUS) {
        printf("past the end of a file: %#x\n", status);
        exit(1);
    }
}

int main(void) {
    int file = open("/proc/self/exe", O_RDONLY);
    if (file < 0 || pread(file, expected, OVERLAID, 0) != OVERLAID) { perror("file"); return 2; }
    char *first = overlay(file);
    char *heap = malloc(HEAP);
    memset(heap, 3, HEAP);
    char *second = overlay(file);
    check("in the parent", first, heap, 3);
    check("in the parent", second, heap, 3);
    fork_and_check("in a child", first, second, heap);
    fork_and_check("in a second child", first, second, heap);
    touch_past_the_end();
    puts("exact");
    return 0;
}
