// A program that goes back to an earlier end of its data (brk): what the library has made meanwhile is not behind it.
#define _GNU_SOURCE
#include <string.h>
#include <unistd.h>
#include "children.h"

enum { PAGE = 4096 };

int main(void) {
    char *end = sbrk(0);
    for (int round = 0; round < 3; round++) {
        fill_and_fork(round);
        // Memory of its own there, which it gives back by going to where it was.
        char *own = sbrk(64 * PAGE);
        MUST(own != (char *)-1);
        memset(own, round, 64 * PAGE);
        MUST(brk(end) == 0 && sbrk(0) == (void *)end);
    }
    puts("exact");
}
