/* Fills pages that say a word which no memory of its own has, has them swapped out, used, and swapped out again, and then
 * asks for a core dump. The word: 80 letters that are reckoned one by one, more than any register of the program's own holds. */
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 12 << 10, AT = 24, LETTERS = 80 };

static int letter(int at) { return 'a' + (at * at * 7 + at * 3 + at / 5) % 26; }

/* A third each: mostly zeros, half noise, all noise. */
static void fill(volatile char *page, int number) {
    static uint64_t seed = 88172645463325252u;
    for (int at = 0; at < LETTERS; at++) page[AT + at] = letter(at);
    for (int at = AT + LETTERS; at < PAGE / 2 * (number % 3); at++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        page[at] = seed;
    }
}

static int present(char *memory) {
    static uint64_t entries[PAGES];
    int file = open("/proc/self/pagemap", O_RDONLY), count = 0;
    MUST(file >= 0);
    MUST(pread(file, entries, sizeof entries, (uintptr_t)memory / PAGE * 8) == sizeof entries);
    for (int page = 0; page < PAGES; page++) count += entries[page] >> 63;
    close(file);
    return count;
}

static void swap_out(char *memory) {
    for (int tries = 0; present(memory); tries++) {
        MUST(tries < 1000);
        MUST(madvise(memory, (size_t)PAGES * PAGE, MADV_PAGEOUT) == 0);
        usleep(10000);
    }
}

int main(int count, char **arguments) {
    char *memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (int page = 0; page < PAGES; page++) fill(memory + (size_t)page * PAGE, page);
    if (count == 1) {
        swap_out(memory);
        for (int page = 0; page < PAGES; page += 2) MUST(memory[(size_t)page * PAGE + AT + 5] == letter(5));
        swap_out(memory);
    }
    abort();
}
