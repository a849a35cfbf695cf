// Threads that allocate, grow, hand over and free blocks of all sizes, and check every byte pattern.
#define _GNU_SOURCE
#include <malloc.h>
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { THREADS = 4, BLOCKS = 400, ROUNDS = 1500 * TIMES };
struct block { unsigned char *bytes; size_t length; unsigned char mark; };
static struct block shared[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static void fail(const char *what) { fprintf(stderr, "%s\n", what); exit(1); }
static void check(struct block *b, size_t length) {
    for (size_t i = 0; i < length; i += i + 61 < length || i + 1 == length ? 61 : length - 1 - i)
        if (b->bytes[i] != (unsigned char)(b->mark + i)) fail("a block changed");
}
static void fill(struct block *b) {
    for (size_t i = 0; i < b->length; i++) b->bytes[i] = (unsigned char)(b->mark + i);
}
static size_t size(unsigned *seed) {
    unsigned kind = rand_r(seed) % 100;
    if (kind < 70) return 1 + rand_r(seed) % 2000;
    if (kind < 95) return 1 + rand_r(seed) % 200000;
    return 1 + rand_r(seed) % 1000000;
}
static void *work(void *number) {
    unsigned seed = (unsigned)(uintptr_t)number * 7919 + 1;
    for (int round = 0; round < ROUNDS; round++) {
        int index = rand_r(&seed) % BLOCKS;
        struct block b;
        pthread_mutex_lock(&lock);
        b = shared[index];
        shared[index].bytes = 0;
        pthread_mutex_unlock(&lock);
        size_t length = size(&seed);
        if (!b.bytes) {
            switch (rand_r(&seed) % 4) {
            case 0: b.bytes = calloc(1, length);
                for (size_t i = 0; i < length; i++) if (b.bytes[i]) fail("calloc is not zero");
                break;
            case 1: if (posix_memalign((void **)&b.bytes, 256, length) || (uintptr_t)b.bytes % 256) fail("align"); break;
            default: b.bytes = malloc(length);
            }
        } else {
            check(&b, b.length);
            if (rand_r(&seed) % 3 == 0) { free(b.bytes); continue; }
            b.bytes = realloc(b.bytes, length);
            check(&b, length < b.length ? length : b.length);
        }
        if (!b.bytes || malloc_usable_size(b.bytes) < length) fail("no block");
        b.length = length;
        b.mark = rand_r(&seed);
        fill(&b);
        pthread_mutex_lock(&lock);
        struct block other = shared[index];
        shared[index] = b;
        pthread_mutex_unlock(&lock);
        if (other.bytes) { check(&other, other.length); free(other.bytes); }
    }
    return 0;
}
int main(void) {
    pthread_t threads[THREADS];
    for (long i = 0; i < THREADS; i++) pthread_create(&threads[i], 0, work, (void *)i);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], 0);
    // Blocks larger than the budget, which grow without copying.
    struct block huge = {malloc(40 << 20), 40 << 20, 3};
    if (!huge.bytes) fail("no huge block");
    fill(&huge);
    huge.bytes = realloc(huge.bytes, 70 << 20);
    check(&huge, 40 << 20);
    huge.bytes = realloc(huge.bytes, 5 << 20);
    check(&huge, 5 << 20);
    free(huge.bytes);
    void *aligned;
    if (posix_memalign(&aligned, 2 << 20, 100) || (uintptr_t)aligned % (2 << 20)) fail("large alignment");
    free(aligned);
    char *text = strdup("text"), *part = strndup("text", 2);
    if (strcmp(text, "text") || strcmp(part, "te")) fail("strdup");
    free(text); free(part);
    if (malloc(SIZE_MAX / 2)) fail("an impossible block");
    puts("exact");
    return 0;
}
