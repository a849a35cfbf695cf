// Hints: "kept" takes what it gets, as most programs do; "insists" gives back what is not where it asked, and
// asks again elsewhere, as ZGC does; "large" reserves more than the arena has.
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

static const size_t BYTES = 64 << 20;

static char *reserve(size_t hint, size_t bytes) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *got = mmap((void *)hint, bytes, PROT_NONE, flags, -1, 0);
    return got == MAP_FAILED ? 0 : got;
}
static int works(char *at) {
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED;
    if (mmap(at, 1 << 20, PROT_READ | PROT_WRITE, flags, -1, 0) != at) return 0;
    memset(at, 7, 1 << 20);
    return at[12345] == 7 && munmap(at, 1 << 20) == 0;
}
int main(int count, char **arguments) {
    const char *how = count == 2 ? arguments[1] : "";
    char *got = 0;
    if (!strcmp(how, "large")) got = reserve(0, 5ul << 40);
    for (size_t i = 0; i < 2000 && strcmp(how, "large"); i++) {
        size_t hint = 0x40000000000ul + i * BYTES;
        got = reserve(hint, BYTES);
        if (!got) return 2;
        // Every tenth time the one that keeps does not.
        if (!strcmp(how, "kept") && i % 10) {
            if (i % 100 == 1 && !works(got)) return 3;
            continue;
        }
        if (got == (char *)hint) break;
        if (munmap(got, BYTES)) return 4;
        got = 0;
    }
    if (!strcmp(how, "kept")) return puts("exact") < 0;
    if (!got || !works(got)) return 5;
    return puts("exact") < 0;
}
