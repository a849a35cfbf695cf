/* Memory below 2 GiB (MAP_32BIT), and where one finds room by looking: managed, but for what is not plain memory, which the
   kernel has room for however often it is mapped. Prints "exact". */
#define _GNU_SOURCE
#include "children.h"
#include "room.h"
#include <stdint.h>
#include <string.h>

static const size_t MIB = 1 << 20;
enum { RW = PROT_READ | PROT_WRITE, LOW = MAP_PRIVATE | MAP_ANONYMOUS | MAP_32BIT, PARTS = 24 };

static char *parts[PARTS + 1];
static size_t bytes_of(int part) { return part < PARTS ? 3 * MIB + part * 4096 : 40 * MIB; }
static uint64_t word(const char *at, uint64_t pattern) { return (uintptr_t)at * 0x9E3779B97F4A7C15ul + pattern; }
static void fill(int part, uint64_t pattern) {
    for (char *at = parts[part]; at < parts[part] + bytes_of(part); at += 8) *(uint64_t *)at = word(at, pattern);
}
static void check(int part, uint64_t pattern) {
    for (char *at = parts[part]; at < parts[part] + bytes_of(part); at += 8) MUST(*(uint64_t *)at == word(at, pattern));
}
static char *low(size_t bytes, int protection, int flags, int file) {
    char *got = mmap(0, bytes, protection, flags, file, 0);
    MUST(got != MAP_FAILED && (uintptr_t)got + bytes <= 2048 * MIB && (uintptr_t)got >= 65536);
    return got;
}

/* What is no plain memory comes and goes more often than there is room for all of it at once. */
static void others(void) {
    FILE *image = fopen("/proc/self/exe", "r");
    for (int round = 0; round < 100; round++) {
        char *file = low(8192, PROT_READ, MAP_PRIVATE | MAP_32BIT, fileno(image));
        char *stack = low(16 * MIB, RW, LOW | MAP_STACK, -1), *shared = low(16 * MIB, RW, MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT, -1);
        MUST(!memcmp(file, "\177ELF", 4) && stack[0] == 0 && shared[16 * MIB - 1] == 0);
        stack[0] = shared[16 * MIB - 1] = 1;
        MUST(mprotect(stack, 4096, PROT_READ) == 0 && madvise(shared, 4096, MADV_WILLNEED) == 0 && stack[0] == 1);
        MUST(munmap(file, 8192) == 0 && munmap(stack, 16 * MIB) == 0 && munmap(shared, 16 * MIB) == 0);
    }
    fclose(image);
}

static void all(uint64_t pattern) {
    for (int part = 0; part <= PARTS; part++) fill(part, pattern);
    for (int part = 0; part <= PARTS; part++) check(part, pattern);
}

int main(int count, char **arguments) {
    for (int part = 0; part < PARTS; part++) parts[part] = low(bytes_of(part), RW, LOW, -1);
    // Where the executable has a fixed address there is room beside it, which is not managed.
    char *found = count > 1 ? low(bytes_of(PARTS), RW, LOW, -1) : room(bytes_of(PARTS));
    MUST(mmap(found, bytes_of(PARTS), RW, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == found);
    parts[PARTS] = found;
    // Only where nothing is.
    char *more = room(8192);
    int exactly = MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE;
    for (int round = 0; round < 3; round++) {
        MUST(mmap(more, 8192, RW, exactly, -1, 0) == more && more[8191] == 0);
        errno = 0;
        MUST(mmap(more + 4096, 4096, RW, exactly, -1, 0) == MAP_FAILED && errno == EEXIST);
        memset(more, 1, 8192);
        MUST(munmap(more, 8192) == 0);
    }
    all(1);
    others();
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        others();
        for (int part = 0; part <= PARTS; part++) check(part, 1);
        all(2);
        _exit(0);
    }
    for (int part = 0; part <= PARTS; part++) check(part, 1);
    end_well(child);
    for (int part = 0; part <= PARTS; part++) MUST(munmap(parts[part], bytes_of(part)) == 0);
    // It grows where it is, or moves; what was given back is free again.
    char *block = low(700 * MIB, RW, LOW, -1);
    block[0] = block[700 * MIB - 1] = 3;
    block = mremap(block, 700 * MIB, 1400 * MIB, MREMAP_MAYMOVE);
    MUST(block != MAP_FAILED && block[0] == 3 && block[700 * MIB - 1] == 3 && block[1400 * MIB - 1] == 0);
    MUST(munmap(block, 1400 * MIB) == 0);
    puts("exact");
}
