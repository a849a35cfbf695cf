// Mappings over one's own memory: what was there is gone, what is next to it stays, and no other thread ever
// gets a part of it. The first argument says which test, the second is a file of two pages for some of them.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, CHUNK = 256 << 10, CHUNKS = 31, ROUNDS = 10000, THREADS = 3, ALONE = CHUNK - PAGE };
enum { RW = PROT_READ | PROT_WRITE, ANON = MAP_PRIVATE | MAP_ANONYMOUS };
static volatile int stop;
static int file = -1;


static char *map(void *at, size_t bytes, int protection, int flags, int fd) {
    char *got = mmap(at, bytes, protection, flags, fd, 0);
    MUST(got != MAP_FAILED && (!at || got == at));
    return got;
}
static void all(const char *at, size_t bytes, char value) {
    for (size_t i = 0; i < bytes; i += PAGE / 2) MUST(at[i] == value);
}
static void fill(char *at, char value, size_t bytes) {
    for (size_t i = 0; i < bytes; i += PAGE / 2) at[i] = value;
}
static void *others(void *id) {
    char mine = 1 + (long)id;
    while (!stop) {
        char *at = map(0, ALONE, RW, ANON, -1);
        // Most of the time mapping, not touching: it is mappings that race.
        MUST(at[0] == 0 && at[ALONE - 1] == 0);
        at[0] = at[ALONE - 1] = mine;
        MUST(at[0] == mine && at[ALONE - 1] == mine);
        MUST(munmap(at, ALONE) == 0);
    }
    return 0;
}
// A heap that is committed and given back in pieces, as the JVM, V8 and .NET do it.
static void race(void) {
    int fixed = ANON | MAP_NORESERVE | MAP_FIXED;
    // What lies lower is in use: the first hole that others find is one in the heap.
    for (int i = 0; i < 4 * CHUNKS; i++) map(0, CHUNK / 2, PROT_NONE, ANON | MAP_NORESERVE, -1);
    char *heap = map(0, (size_t)CHUNKS * CHUNK, PROT_NONE, ANON | MAP_NORESERVE, -1);
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) MUST(pthread_create(threads + i, 0, others, (void *)i) == 0);
    char holds[CHUNKS] = {0};
    for (int round = 0; round < ROUNDS; round++) {
        int i = round * 7 % CHUNKS;
        char *at = heap + (size_t)i * CHUNK;
        if (holds[i]) MUST(at[0] == holds[i] && at[holds[i] == 102 ? 2 * PAGE - 1 : CHUNK - 1] == holds[i]);
        switch (round % 5) {
        case 0:
        case 1:
            map(at, CHUNK, RW, fixed, -1);
            MUST(at[0] == 0 && at[CHUNK - 1] == 0);
            at[0] = at[CHUNK - 1] = holds[i] = 1 + round % 100;
            break;
        case 2:
            map(at, CHUNK, PROT_NONE, fixed, -1);
            holds[i] = 0;
            break;
        case 3: {
            char *from = map(0, CHUNK, RW, ANON, -1);
            from[0] = from[CHUNK - 1] = 101;
            MUST(mremap(from, CHUNK, CHUNK, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at);
            holds[i] = 101;
            break;
        }
        default:
            map(at, CHUNK, PROT_NONE, fixed, -1);
            map(at, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file);
            holds[i] = 102;
        }
    }
    stop = 1;
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
}
// Memory opened by calls that the library does not see, or does not always: nobody else reads what is in it.
static void unseen(void) {
    for (int how = 0; how < 6; how++) {
        char *at = map(0, CHUNK, PROT_NONE, ANON, -1);
        int key = how % 3 == 2 ? pkey_alloc(0, 0) : -1;
        if (how % 3 == 0) MUST(raw_call(SYS_mprotect, at, CHUNK, RW) == 0);
        else MUST(pkey_mprotect(at, CHUNK, RW, key) == 0);
        fill(at, 90, CHUNK);
        all(at, CHUNK, 90);
        if (key > 0) MUST(pkey_set(key, PKEY_DISABLE_ACCESS) == 0);
        if (how < 3) MUST(munmap(at, CHUNK) == 0);
        else map(at, CHUNK, PROT_NONE, ANON | MAP_FIXED, -1);
        char *next = map(how < 3 ? 0 : at, CHUNK, RW, ANON | (how < 3 ? 0 : MAP_FIXED), -1);
        all(next, CHUNK, 0);
        fill(next, 91, CHUNK);
        MUST(munmap(next, CHUNK) == 0);
        // Moved with what is in it.
        at = map(0, CHUNK, PROT_NONE, ANON, -1);
        MUST(raw_call(SYS_mprotect, at, CHUNK, RW) == 0);
        fill(at, 92, CHUNK);
        next = mremap(at, CHUNK, 2 * CHUNK, MREMAP_MAYMOVE);
        MUST(next != MAP_FAILED && mprotect(next, 2 * CHUNK, RW) == 0);
        all(next, CHUNK, 92);
        all(next + CHUNK, CHUNK, 0);
        MUST(munmap(next, 2 * CHUNK) == 0);
    }
}
// With one mapping less at a time: what is refused for want of mappings costs nothing.
static void file_at_the_limit(char *kept, char **spare) {
    char *at = kept + 16 * PAGE, *got = MAP_FAILED;
    for (int i = 0; i < 8 && got == MAP_FAILED; i++) {
        all(kept, 64 * PAGE, 7);
        got = mmap(at, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 0);
        MUST(got == at || errno == ENOMEM);
        MUST(munmap(spare[i], PAGE) == 0);
    }
    MUST(got == at);
    all(kept, 16 * PAGE, 7);
    all(at, 2 * PAGE, 102);
    all(at + 2 * PAGE, 46 * PAGE, 7);
}
// More mappings than the kernel allows: giving memory back works all the same, and what is mapped next is
// empty and as accessible as was asked for.
static void limit(void) {
    enum { BLOCK = 128 << 10 };
    long most = 0;
    FILE *setting = fopen("/proc/sys/vm/max_map_count", "r");
    MUST(setting && fscanf(setting, "%ld", &most) == 1);
    fclose(setting);
    if (most > 200000) return;
    char **block = calloc(most + 4096, sizeof *block), *spare[8];
    for (int i = 0; i < 8; i++) spare[i] = map(0, PAGE, PROT_READ, MAP_SHARED, file);
    char *kept = map(0, 64 * PAGE, RW, ANON, -1);
    fill(kept, 7, 64 * PAGE);
    for (long i = 0; i < most + 4096; i++) block[i] = map(0, BLOCK, RW, ANON | MAP_NORESERVE, -1);
    for (long i = 0; i < most + 4096; i += 2) {
        *block[i] = 1;
        MUST(munmap(block[i], BLOCK) == 0);
    }
    file_at_the_limit(kept, spare);
    for (long i = 0; i < most + 4096; i += 2) {
        char *again = mmap(0, BLOCK, i % 4 ? RW : PROT_NONE, ANON | MAP_NORESERVE, -1, 0);
        if (again == MAP_FAILED) MUST(errno == ENOMEM);
        else if (i % 4) MUST(*again == 0);
        else MUST(write(file, again, 1) == -1 && errno == EFAULT);
    }
}
// Files over memory: what cannot be mapped costs nothing, what is next to it stays, and memory can come back.
static void foreign(void) {
    for (int round = 0; round < 20; round++) {
        char *at = map(0, CHUNK, RW, ANON, -1), *hole = at + 16 * PAGE;
        fill(at, 5, CHUNK);
        MUST(mmap(hole, 2 * PAGE, RW, MAP_SHARED | MAP_FIXED, 12345, 0) == MAP_FAILED && errno == EBADF);
        MUST(mmap(hole, 2 * PAGE, RW, MAP_PRIVATE | MAP_FIXED, file, 1) == MAP_FAILED && errno == EINVAL);
        all(at, CHUNK, 5);
        int kind = round % 2 ? MAP_SHARED : MAP_PRIVATE;
        map(hole, 2 * PAGE, RW, kind | MAP_FIXED, file);
        all(hole, 2 * PAGE, 102);
        hole[0] = 103;
        all(at, 16 * PAGE, 5);
        all(hole + 2 * PAGE, CHUNK - 18 * PAGE, 5);
        if (round % 3 == 0) {
            MUST(mremap(hole, 2 * PAGE, PAGE, 0) == hole && hole[0] == 103);
            MUST(mremap(hole + PAGE, PAGE, PAGE, 0) == MAP_FAILED && errno == EFAULT);
        }
        if (round % 3 == 1) {
            char *away = map(0, 2 * PAGE, PROT_READ, MAP_PRIVATE, file);
            MUST(mremap(hole, 2 * PAGE, 2 * PAGE, MREMAP_MAYMOVE | MREMAP_FIXED, away) == away);
            MUST(away[0] == 103 && away[PAGE] == 102 && munmap(away, 2 * PAGE) == 0);
        }
        map(hole, 2 * PAGE, RW, ANON | MAP_FIXED, -1);
        all(hole, 2 * PAGE, 0);
        fill(hole, 5, 2 * PAGE);
        all(at, CHUNK, 5);
        char *guard = hole + 8 * PAGE;
        map(guard, 2 * PAGE, RW, kind | MAP_FIXED, file);
        MUST(guard[PAGE] == 102 && munmap(at, CHUNK) == 0);
        MUST(pwrite(file, "f", 1, 0) == 1);
    }
}
int main(int count, char **arguments) {
    MUST(count == 3 && (file = open(arguments[2], O_RDWR | O_CREAT | O_TRUNC, 0600)) >= 0);
    char pages[2 * PAGE];
    memset(pages, 102, sizeof pages);
    MUST(write(file, pages, sizeof pages) == sizeof pages);
    const char *which = arguments[1];
    if (which[0] != 'n') {
        // Past the budget first.
        char *much = map(0, 24 << 20, RW, ANON, -1);
        fill(much, 77, 24 << 20);
        all(much, 24 << 20, 77);
    } else which++;
    if (!strcmp(which, "race")) race();
    if (!strcmp(which, "unseen")) unseen();
    if (!strcmp(which, "limit")) limit();
    if (!strcmp(which, "foreign")) foreign();
    puts("exact");
    return 0;
}
