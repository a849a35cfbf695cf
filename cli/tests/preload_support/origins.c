// Memory whose origin is known: a block that grows, mappings of one function, one with a name, one whose name is taken away.
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include "must.h"

#define MIB (1ul << 20)
#define NOINLINE __attribute__((noinline))

// Of <linux/prctl.h>, which may be older; a kernel may keep no names.
#define NAME(memory, bytes, name) prctl(0x53564d41, 0, memory, bytes, name)

static NOINLINE char *map(size_t bytes) {
    char *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

static NOINLINE char *load_table(size_t bytes) {
    char *memory = malloc(bytes);
    MUST(memory);
    return memory;
}

static NOINLINE char *map_part(void) {
    char *memory = map(4 * MIB);
    __asm__ volatile("" ::: "memory");
    return memory;
}

static void fill(char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = (char)(at >> 12 | 1);
}

static void check(const char *memory, size_t bytes) {
    for (size_t at = 0; at < bytes; at += 4096) MUST(memory[at] == (char)(at >> 12 | 1));
}

int main(void) {
    char *table = load_table(40 * MIB);
    table = realloc(table, 44 * MIB);
    char *parts[4];
    for (int part = 0; part < 4; part++) parts[part] = map_part();
    char *cache = map(20 * MIB), *plain = map(8 * MIB);
    NAME(cache, 20 * MIB, "page cache");
    NAME(plain, 8 * MIB, "for a while");
    NAME(plain, 8 * MIB, NULL);
    // What is no name, and no memory of ours, changes nothing.
    NAME(cache, 20 * MIB, "\n");
    NAME(cache, 20 * MIB, (char *)8);
    NAME(cache + 1, 20 * MIB, "odd");
    fill(table, 44 * MIB), fill(cache, 20 * MIB), fill(plain, 8 * MIB);
    for (int part = 0; part < 4; part++) fill(parts[part], 4 * MIB);
    for (int round = 0; round < 3; round++) {
        check(table, 44 * MIB), check(cache, 20 * MIB), check(plain, 8 * MIB);
        for (int part = 0; part < 4; part++) check(parts[part], 4 * MIB);
    }
    return 0;
}
