// Goes through 48 MiB five times, which is a loop that only all of it fits, and then twenty times through a twelfth of it.
#include "must.h"
#include <sys/mman.h>

enum { PAGE = 4096, PAGES = (48 << 20) / PAGE, HOT = PAGES / 12 };

static void pass(unsigned char *memory, int pages, int stride, int round) {
    for (int page = 0; page < pages; page++) {
        unsigned char *at = memory + (long)page * stride * PAGE;
        MUST(*at == (unsigned char)(round ? page * 7 + round - 1 : 0));
        *at = (unsigned char)(page * 7 + round);
    }
}

int main(void) {
    unsigned char *memory =
        mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (int round = 0; round < 5; round++) pass(memory, PAGES, 1, round);
    // Every second page of a part: 2 MiB of pages in 4 MiB.
    for (int page = 0; page < HOT; page++) memory[(long)page * 2 * PAGE] = (unsigned char)(page * 7);
    for (int round = 1; round <= 20; round++) pass(memory, HOT, 2, round);
    return 0;
}
