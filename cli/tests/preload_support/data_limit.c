// A program that has outgrown its budget leaves itself no more memory for data, and needs none natively: who manages it does.
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096, RANGE = 128 << 20 };

int main(void) {
    char *block = malloc(BYTES);
    MUST(block);
    for (long at = 0; at < BYTES; at += PAGE) block[at] = (char)(at / PAGE);
    struct rlimit little = {1 << 20, 1 << 20};
    MUST(setrlimit(RLIMIT_DATA, &little) == 0);
    char *range = mmap(NULL, RANGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(range != MAP_FAILED);
    // Each other page is an entry of a table.
    for (long at = 0; at < RANGE; at += 2 * PAGE) MUST(mprotect(range + at, PAGE, PROT_READ) == 0);
    puts("exact");
}
