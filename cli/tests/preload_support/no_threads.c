// A program that leaves itself no more threads before it outgrows its budget.
#include <string.h>
#include <sys/resource.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096 };

int main(void) {
    struct rlimit none = {0, 0};
    MUST(setrlimit(RLIMIT_NPROC, &none) == 0);
    char *block = malloc(BYTES);
    MUST(block);
    for (int round = 1; round < 4; round++) {
        for (long at = 0; at < BYTES; at += PAGE) {
            if (round > 1) MUST(block[at] == (char)(at / PAGE * (round - 1)));
            block[at] = (char)(at / PAGE * round);
        }
    }
    puts("exact");
}
