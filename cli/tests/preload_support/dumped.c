/* A core dump holds what the program has and nothing of the arena's free parts. Prints "exact". */
#define _GNU_SOURCE
#include "must.h"
#include <string.h>
#include <sys/mman.h>

static const size_t BYTES = 160 << 20;
static const int RW = PROT_READ | PROT_WRITE, PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS;

/* Length of what is dumped below 4 TiB, of all or of the mappings that one address lies in. */
static size_t dumped(const char *at) {
    FILE *file = fopen("/proc/self/smaps", "r");
    MUST(file);
    char line[4096];
    size_t start = 0, end = 0, found = 0, first, last;
    while (fgets(line, sizeof line, file)) {
        if (sscanf(line, "%lx-%lx ", &first, &last) == 2) start = first, end = last;
        if (strncmp(line, "VmFlags:", 8) || end > 1ul << 42 || strstr(line, " dd")) continue;
        if (!at || ((size_t)at >= start && (size_t)at < end)) found += end - start;
    }
    fclose(file);
    return found;
}
static char *map(size_t hint, size_t bytes, int protection, int flags) {
    char *got = mmap((void *)hint, bytes, protection, PRIVATE | flags, -1, 0);
    MUST(got != MAP_FAILED);
    if (protection != PROT_NONE) memset(got, 5, bytes);
    return got;
}
int main(void) {
    for (int round = 0; round < 3; round++) MUST(munmap(map(0, BYTES, RW, 0), BYTES) == 0);
    char *kept = map(0x1000000000, BYTES, RW, 0);
    char *reserved = map(0, 1ul << 40, PROT_NONE, MAP_NORESERVE);
    map((size_t)reserved + BYTES, BYTES, RW, MAP_FIXED);
    map((size_t)reserved + BYTES, BYTES, PROT_NONE, MAP_FIXED | MAP_NORESERVE);
    MUST(mprotect(reserved + 4 * BYTES, BYTES, RW) == 0);
    MUST(dumped(kept) >= BYTES && dumped(reserved + 4 * BYTES) >= BYTES);
    MUST(dumped(reserved) == 0 && dumped(reserved + BYTES) == 0);
    MUST(munmap(kept, BYTES / 2) == 0);
    MUST(dumped(kept) == 0 && dumped(kept + BYTES / 2) >= BYTES / 2);
    MUST(dumped(0) < 1 << 30);
    puts("exact");
}
