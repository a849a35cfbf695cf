// Most pages are swapped; child, grandchild and parent write different patterns and check every word.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t BYTES = 40 << 20;
static char *memory;

static void fill(unsigned long pattern) {
    for (size_t i = 0; i < BYTES; i += 8) *(unsigned long *)(memory + i) = i * 2654435761ul + pattern;
}
static void check(unsigned long pattern, const char *who) {
    for (size_t i = 0; i < BYTES; i += 8)
        if (*(unsigned long *)(memory + i) != i * 2654435761ul + pattern) {
            fprintf(stderr, "%s: byte %zu is not of pattern %lu\n", who, i, pattern);
            _exit(1);
        }
}
static void join(pid_t child) {
    int status;
    if (child < 0 || waitpid(child, &status, 0) != child || status) {
        fprintf(stderr, "a child failed\n");
        _exit(2);
    }
}
int main(int count, char **arguments) {
    memory = count > 1 ? malloc(BYTES)
                       : mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *small = strdup("small");
    fill(1);
    pid_t child = fork();
    if (child == 0) {
        check(1, "child at its start");
        fill(2);
        pid_t grandchild = fork();
        if (grandchild == 0) {
            check(2, "grandchild at its start");
            fill(3);
            check(3, "grandchild");
            if (strcmp(small, "small")) _exit(3);
            free(small);
            _exit(0);
        }
        fill(4);
        join(grandchild);
        check(4, "child");
        _exit(0);
    }
    fill(5);
    join(child);
    check(5, "parent");
    free(small);
    puts("exact");
    return 0;
}
