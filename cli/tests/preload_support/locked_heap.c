/* What malloc gave out is locked: before the engine starts (with an argument) or after. It stays in RAM while the program goes
 * over much more than its budget, can leave once it is unlocked, and more than the budget can hold is refused. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include "must.h"

#define PAGE 4096UL
#define LOCKED (256 * PAGE)
#define ALL (64UL << 20)

static unsigned char *aligned(unsigned char *block) {
    return (unsigned char *)(((unsigned long)block + PAGE - 1) & ~(PAGE - 1));
}

/* Pages of the block that are mapped. */
static unsigned long resident(unsigned char *block) {
    unsigned char present[LOCKED / PAGE];
    unsigned long pages = 0;
    MUST(mincore(block, LOCKED, present) == 0);
    for (unsigned long page = 0; page < LOCKED / PAGE; page++) pages += present[page] & 1;
    return pages;
}

static void go_over(unsigned char *all) {
    for (int time = 0; time < 3; time++)
        for (unsigned long at = 0; at < ALL; at += PAGE) all[at]++;
}

int main(int count, char **arguments) {
    (void)arguments;
    unsigned char *block = aligned(malloc(LOCKED + PAGE)), *all = NULL;
    if (count == 1) go_over(all = calloc(1, ALL));
    memset(block, 7, LOCKED);
    MUST(mlock(block, LOCKED) == 0);
    if (count > 1) all = calloc(1, ALL);
    go_over(all);
    MUST(resident(block) == LOCKED / PAGE);
    for (unsigned long at = 0; at < LOCKED; at++) MUST(block[at] == 7);
    MUST(munlock(block, LOCKED) == 0);
    /* By itself it leaves as any memory that is used: what goes over much memory once drives it out late. */
    MUST(madvise(block, LOCKED, MADV_PAGEOUT) == 0);
    MUST(resident(block) < LOCKED / PAGE);
    for (unsigned long at = 0; at < LOCKED; at++) MUST(block[at] == 7);
    for (int time = 0; time < 8; time++) {
        unsigned char *large = malloc(8UL << 20);
        MUST(mlock(aligned(large), (8UL << 20) - PAGE) == 0);
        MUST(munlock(aligned(large), (8UL << 20) - PAGE) == 0);
        memset(large, time, 8UL << 20);
        free(large);
    }
    unsigned char *large = malloc(20UL << 20);
    MUST(mlock(aligned(large), (20UL << 20) - PAGE) == -1 && errno == ENOMEM);
    puts("exact");
    return 0;
}
