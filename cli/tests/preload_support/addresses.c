/* Memory at addresses of the program's choice and in reservations of a TiB, as language runtimes have it: every page
   is filled and checked, in a forked child too, and given back. Prints "exact". */
#define _GNU_SOURCE
#include "must.h"
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

static const size_t MIB = 1 << 20, GIB = 1 << 30, TIB = 1ul << 40;
static const int RW = PROT_READ | PROT_WRITE;
enum { PRIVATE = MAP_PRIVATE | MAP_ANONYMOUS, RESERVED = PRIVATE | MAP_NORESERVE };

/* What was committed, and what was reserved for it. */
static struct { char *at; size_t bytes; } parts[400], reservations[400];
static int part_count, reservation_count;

static char *reserve(uintptr_t hint, size_t bytes) {
    char *got = mmap((void *)hint, bytes, PROT_NONE, RESERVED, -1, 0);
    MUST(got != MAP_FAILED);
    reservations[reservation_count].at = got;
    reservations[reservation_count++].bytes = bytes;
    return got;
}
static char *reserve_at(uintptr_t address, size_t bytes) {
    char *got = reserve(address, bytes);
    MUST(got == (char *)address);
    return got;
}
/* Gives the margins back, so that what is left begins at a multiple. */
static char *align(size_t multiple) {
    char *got = reservations[--reservation_count].at;
    size_t bytes = reservations[reservation_count].bytes;
    char *aligned = (char *)(((uintptr_t)got + multiple - 1) & ~(multiple - 1));
    size_t before = aligned - got, after = multiple - before;
    if (before) MUST(munmap(got, before) == 0);
    if (after) MUST(munmap(aligned + bytes - multiple, after) == 0);
    reservations[reservation_count].at = aligned;
    reservations[reservation_count++].bytes = bytes - multiple;
    return aligned;
}
static void add(char *at, size_t bytes) {
    parts[part_count].at = at;
    parts[part_count++].bytes = bytes;
}
static void commit_by_mapping(char *at, size_t bytes) {
    MUST(mmap(at, bytes, RW, PRIVATE | MAP_FIXED, -1, 0) == at);
    add(at, bytes);
}
static void commit_by_protection(char *at, size_t bytes) {
    MUST(mprotect(at, bytes, RW) == 0);
    add(at, bytes);
}

/* SBCL: the image's file at the start of a space that is all accessible. */
static void lisp(void) {
    char *space = reserve_at(0x1000000000, 8 * GIB);
    MUST(mprotect(space, 8 * GIB, RW | PROT_EXEC) == 0);
    FILE *image = fopen("/proc/self/exe", "r");
    MUST(image && mmap(space, 4096, RW, MAP_PRIVATE | MAP_FIXED, fileno(image), 0) == space);
    MUST(!memcmp(space, "\177ELF", 4) && fclose(image) == 0);
    add(space + 32 * MIB, 24 * MIB);
    add(space + 8 * GIB - MIB, MIB);
}
/* GHC: more than a TiB from here on or higher up, committed by MiB. */
static void haskell(void) {
    char *got = reserve(0x4200000000, TIB + MIB);
    MUST(got >= (char *)0x4200000000);
    got = align(MIB);
    for (int block = 0; block < 20; block++) commit_by_mapping(got + block * MIB, MIB);
    commit_by_mapping(got + TIB - MIB, MIB);
}
/* HotSpot: below 4 GiB, below 32 GiB, and at a multiple of 32 GiB. */
static void java(void) {
    const uintptr_t heaps[] = {0xda800000, 0x7c0000000, 0x3000000000};
    for (int i = 0; i < 3; i++) {
        char *heap = reserve_at(heaps[i], 600 * MIB);
        commit_by_mapping(heap, 8 * MIB);
        commit_by_mapping(heap + 500 * MIB, 2 * MIB);
    }
    int exactly = RESERVED | MAP_FIXED_NOREPLACE;
    MUST(mmap((void *)0xda800000, MIB, RW, exactly, -1, 0) == MAP_FAILED && errno == EEXIST);
    char *got = mmap((void *)0x780000000, MIB, RW, exactly, -1, 0);
    MUST(got == (char *)0x780000000 && munmap(got, MIB) == 0);
    MUST(mmap((void *)0xda800000, MIB, PROT_NONE, RESERVED, -1, 0) != (char *)0xda800000);
}
/* V8: a TiB anywhere, in cages of 4 GiB; committed by protection, and given up by mapping over. */
static void v8(void) {
    reserve(0, TIB + 4 * GIB);
    char *cages = align(4 * GIB);
    for (int cage = 0; cage < 10; cage++) {
        char *at = cages + cage * 100 * GIB;
        commit_by_protection(at + MIB, 2 * MIB);
        MUST(mprotect(at + 8 * MIB, MIB, RW) == 0);
        memset(at + 8 * MIB, 9, MIB);
        MUST(mmap(at + 8 * MIB, MIB, PROT_NONE, RESERVED | MAP_FIXED, -1, 0) == at + 8 * MIB);
        commit_by_protection(at + 8 * MIB, MIB);
        MUST(at[8 * MIB] == 0 && at[9 * MIB - 1] == 0);
    }
}
/* wasmtime: a slot with guards for each instance. */
static void wasm(void) {
    for (int instance = 0; instance < 40; instance++)
        commit_by_protection(reserve(0, 6 * GIB) + 2 * GIB, MIB / 2);
}

static uint64_t word(const char *at, uint64_t pattern) {
    return ((uint64_t)at / 8) * 0x9E3779B97F4A7C15ul + pattern;
}
static void fill(uint64_t pattern) {
    for (int i = 0; i < part_count; i++)
        for (char *at = parts[i].at; at < parts[i].at + parts[i].bytes; at += 8)
            *(uint64_t *)at = word(at, pattern);
}
static void check(uint64_t pattern) {
    for (int i = 0; i < part_count; i++)
        for (char *at = parts[i].at; at < parts[i].at + parts[i].bytes; at += 8)
            MUST(*(uint64_t *)at == (pattern ? word(at, pattern) : 0));
}
static void make_all(void) {
    part_count = reservation_count = 0;
    lisp();
    haskell();
    java();
    wasm();
    v8();
}
static void give_all_back(void) {
    while (reservation_count--)
        MUST(munmap(reservations[reservation_count].at, reservations[reservation_count].bytes) == 0);
}

int main(void) {
    make_all();
    check(0);
    fill(1);
    check(1);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        check(1);
        fill(2);
        check(2);
        _exit(0);
    }
    fill(3);
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    check(3);
    give_all_back();
    make_all();
    check(0);
    puts("exact");
}
