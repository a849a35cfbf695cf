// Random mmap, munmap, mremap, mprotect, madvise and mlock against a model with one value per page.
// Every page is checked after what should have changed it, and all of them at the end.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, AREAS = 16, MOST = 1024, ROUNDS = 1000 * TIMES };
typedef unsigned long word;
struct area {
    char *start;
    int pages;
    word value[MOST];  // 0: reads as zeros
    char mapped[MOST]; // 1: readable and writable, 2: read only, 3: no access, 4: a file
};
static struct area areas[AREAS];
static word seed, stamp;
static int file;

static word next(word below) {
    seed = seed * 6364136223846793005ul + 1442695040888963407ul;
    return (seed >> 33) % below;
}

static void check(struct area *a, int first, int count) {
    for (int i = first; i < first + count; i++) {
        if (!a->mapped[i] || a->mapped[i] == 3) continue;
        word *page = (word *)(a->start + (size_t)i * PAGE);
        for (int w = 0; w < PAGE / 8; w += 73) {
            word want = a->mapped[i] == 4 ? 0x6666666666666666ul : a->value[i] ? a->value[i] + w : 0;
            if (page[w] != want) {
                fprintf(stderr, "page %d word %d: %lx instead of %lx\n", i, w, page[w], want);
                exit(1);
            }
        }
    }
}
static void fill(struct area *a, int first, int count) {
    for (int i = first; i < first + count; i++) {
        if (a->mapped[i] != 1) continue;
        a->value[i] = ++stamp << 12;
        word *page = (word *)(a->start + (size_t)i * PAGE);
        for (int w = 0; w < PAGE / 8; w++) page[w] = a->value[i] + w;
    }
}
static void set(struct area *a, int first, int count, char mapped) {
    memset(a->mapped + first, mapped, count);
    memset(a->value + first, 0, count * sizeof(word));
}
static int all(struct area *a, int first, int count, int least, int most) {
    for (int i = first; i < first + count; i++)
        if (a->mapped[i] < least || a->mapped[i] > most) return 0;
    return 1;
}
static void create(struct area *a) {
    a->pages = 64 + next(MOST - 64);
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | (next(4) ? 0 : MAP_POPULATE);
    a->start = mmap(0, (size_t)a->pages * PAGE, PROT_READ | PROT_WRITE, flags, -1, 0);
    MUST(a->start != MAP_FAILED);
    set(a, 0, a->pages, 1);
    check(a, 0, a->pages);
}
static void destroy(struct area *a) {
    // Holes are no error.
    MUST(munmap(a->start, (size_t)a->pages * PAGE) == 0);
    a->start = 0;
}
static void resize(struct area *a) {
    if (!all(a, 0, a->pages, 1, 1)) return;
    int pages = 64 + next(MOST - 64);
    size_t old = (size_t)a->pages * PAGE, new = (size_t)pages * PAGE;
    char *to = mremap(a->start, old, new, next(4) ? MREMAP_MAYMOVE : 0);
    if (to == MAP_FAILED) {
        // EFAULT: the kernel did not merge parts that were mapped at different times.
        MUST((errno == ENOMEM && pages > a->pages) || errno == EFAULT);
        return;
    }
    if (pages > a->pages) set(a, a->pages, pages - a->pages, 1);
    a->start = to;
    a->pages = pages;
    check(a, 0, pages);
}
static void change(struct area *a, int first, int count) {
    char *at = a->start + (size_t)first * PAGE;
    size_t bytes = (size_t)count * PAGE;
    int plain = all(a, first, count, 1, 3);
    switch (next(11)) {
    case 0:
        // The hole is closed at once: others could be mapped into it.
        MUST(munmap(at, bytes) == 0);
        MUST(mprotect(at, bytes, PROT_READ) == -1 && errno == ENOMEM);
        MUST(madvise(at, bytes, MADV_NORMAL) == -1 && errno == ENOMEM);
        MUST(mlock(at, bytes) == -1 && errno == ENOMEM);
        MUST(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == at);
        set(a, first, count, 1);
        break;
    case 1: {
        static const int bits[] = {0, PROT_READ | PROT_WRITE, PROT_READ, PROT_NONE};
        int to = 1 + next(3);
        if (!plain) break;
        MUST(mprotect(at, bytes, bits[to]) == 0);
        memset(a->mapped + first, to, count);
        break;
    }
    case 2:
        if (!plain) break;
        MUST(madvise(at, bytes, MADV_DONTNEED) == 0);
        memset(a->value + first, 0, count * sizeof(word));
        break;
    case 3:
        if (plain) MUST(madvise(at, bytes, MADV_PAGEOUT) == 0);
        break;
    case 4:
        if (plain) {
            static const int hints[] = {MADV_WILLNEED, MADV_COLD, MADV_SEQUENTIAL, MADV_RANDOM, MADV_NORMAL};
            MUST(madvise(at, bytes, hints[next(5)]) == 0);
        }
        break;
    case 5:
        MUST(mmap(at, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at);
        set(a, first, count, 1);
        break;
    case 6:
        if (count > 16) break;
        MUST(mmap(at, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == at);
        set(a, first, count, 4);
        break;
    case 7:
        if (count > 64 || !all(a, first, count, 1, 1)) break;
        MUST(mlock(at, bytes) == 0);
        check(a, first, count);
        MUST(munlock(at, bytes) == 0);
        break;
    case 8:
        MUST(mmap(at, bytes, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0)
                 == MAP_FAILED && errno == EEXIST);
        break;
    default:
        fill(a, first, count);
    }
    check(a, first, count);
}
static void refusals(void) {
    char *at = mmap(0, 64 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(munmap(at + 1, PAGE) == -1 && errno == EINVAL);
    MUST(munmap(at, 0) == -1 && errno == EINVAL);
    MUST(mmap(0, 0, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) == MAP_FAILED && errno == EINVAL);
    MUST(mprotect(at + 1, PAGE, PROT_READ) == -1 && errno == EINVAL);
    MUST(madvise(at + 1, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    MUST(madvise(at, PAGE, 12345) == -1 && errno == EINVAL);
    MUST(mremap(at, PAGE, 0, 0) == MAP_FAILED && errno == EINVAL);
    MUST(mremap(at + 1, PAGE, PAGE, 0) == MAP_FAILED && errno == EINVAL);
    MUST(munmap(at + 32 * PAGE, PAGE) == 0);
    MUST(mremap(at, 64 * PAGE, 128 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    // What lies before a hole is changed all the same.
    MUST(mprotect(at, 64 * PAGE, PROT_READ) == -1 && errno == ENOMEM);
    MUST(madvise(at, 64 * PAGE, MADV_DONTNEED) == -1 && errno == ENOMEM);
    MUST(mprotect(at, 32 * PAGE, PROT_READ | PROT_WRITE) == 0);
    unsigned char core[64];
    at[0] = 1;
    MUST(mincore(at, 4 * PAGE, core) == 0);
    MUST(mincore(at + 30 * PAGE, 4 * PAGE, core) == -1 && errno == ENOMEM);
    MUST(munmap(at, 64 * PAGE) == 0);
}
int main(int count, char **arguments) {
    seed = strtoul(arguments[1], 0, 0);
    MUST(count == 3 && (file = open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    char page[PAGE];
    memset(page, 0x66, PAGE);
    for (int i = 0; i < 16; i++) MUST(write(file, page, PAGE) == PAGE);
    for (int i = 0; i < AREAS; i++) {
        create(&areas[i]);
        fill(&areas[i], 0, areas[i].pages);
    }
    refusals();
    for (int round = 0; round < ROUNDS; round++) {
        struct area *a = &areas[next(AREAS)];
        if (!a->start) create(a);
        word what = next(20);
        if (what == 0) destroy(a);
        else if (what == 1) resize(a);
        else {
            int first = next(a->pages), most = a->pages - first;
            change(a, first, 1 + next(most < 128 ? most : 128));
        }
    }
    for (int i = 0; i < AREAS; i++)
        if (areas[i].start) check(&areas[i], 0, areas[i].pages);
    refusals();
    puts("exact");
    return 0;
}
