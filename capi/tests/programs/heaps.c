// Heaps: blocks of all sizes from several threads, swapped out and in, of two engines that keep apart. The argument: thread or signal.
#include "must.h"
#include <pthread.h>
#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/asan_interface.h>
#endif

enum { THREADS = 4, BLOCKS = 3000 };

static us_heap *shared_heap;

static void *churn(void *argument) {
    uint64_t seed = (uint64_t)(uintptr_t)argument + 1;
    struct { uint64_t *at; size_t words; uint64_t stamp; } blocks[64] = {{0}};
    for (uint64_t step = 0; step < BLOCKS; step++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        size_t slot = (seed >> 40) % 64, words = 1 + (seed >> 33) % (step % 8 ? 2000 : 60000);
        if (blocks[slot].at && step % 3 == 0) {
            uint64_t *moved = us_realloc(shared_heap, blocks[slot].at, words * 8);
            MUST(moved);
            size_t kept = words < blocks[slot].words ? words : blocks[slot].words;
            check(moved, kept * 8, blocks[slot].stamp);
            blocks[slot].at = moved;
        } else {
            if (blocks[slot].at) check(blocks[slot].at, blocks[slot].words * 8, blocks[slot].stamp);
            MUST(us_free(shared_heap, blocks[slot].at) == US_OK);
            blocks[slot].at = us_malloc(shared_heap, words * 8);
            MUST(blocks[slot].at);
        }
        MUST(us_malloc_usable_size(shared_heap, blocks[slot].at) >= words * 8);
        blocks[slot].words = words;
        blocks[slot].stamp = seed;
        fill(blocks[slot].at, words * 8, seed);
    }
    for (int slot = 0; slot < 64; slot++) {
        check(blocks[slot].at, blocks[slot].words * 8, blocks[slot].stamp);
        MUST(us_free(shared_heap, blocks[slot].at) == US_OK);
    }
    return NULL;
}

static void threads_share_a_heap(us_engine *engine) {
    shared_heap = us_heap_new(engine);
    void *ballast = us_malloc(shared_heap, 24 * MIB);
    fill(ballast, 24 * MIB, 5);
    pthread_t threads[THREADS];
    for (uintptr_t i = 0; i < THREADS; i++) MUST(!pthread_create(&threads[i], NULL, churn, (void *)i));
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    check(ballast, 24 * MIB, 5);
    MUST(counter(engine, "pswpin") > 1000);
    MUST(us_heap_close(shared_heap) == US_OK);
    all_is_back(engine);
}

static void each_function(us_engine *engine) {
    us_heap *heap = us_heap_new(engine);
    MUST(heap);
    for (size_t alignment = 1; alignment <= 2 * MIB; alignment *= 2) {
        char *block = us_aligned_alloc(heap, alignment, 100);
        MUST(block && (uintptr_t)block % alignment == 0 && (uintptr_t)block % 16 == 0);
        memset(block, 1, 100);
        MUST(us_free(heap, block) == US_OK);
    }
    static const size_t sizes[] = {0, 1, 24, 5000, 70000, 3 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        char *block = us_malloc(heap, sizes[i]);
        MUST(block);
        memset(block, 7, us_malloc_usable_size(heap, block));
        MUST(us_free(heap, block) == US_OK);
        block = us_calloc(heap, sizes[i], 1);
        check_zero(block, sizes[i]);
        MUST(us_free(heap, block) == US_OK);
    }
    // What is swapped out grows without being read.
    char *block = us_malloc(heap, 4 * MIB);
    fill(block, 4 * MIB, 6);
    MUST(us_page_out_all(engine) == US_OK);
    uint64_t reads = counter(engine, "pswpin");
    block = us_realloc(heap, block, 9 * MIB);
    MUST(counter(engine, "pswpin") == reads);
    check(block, 4 * MIB, 6);
    check_zero(block + 4 * MIB, 5 * MIB);
    MUST(us_heap_discard(heap, block, 0, 9 * MIB) == US_OK);
    check_zero(block, 9 * MIB);
    MUST(us_advise(engine, block, 9 * MIB, US_COLD) == US_OK);
    MUST(us_free(heap, block) == US_OK);
    MUST(us_free(heap, NULL) == US_OK);
    MUST(us_malloc_usable_size(heap, NULL) == 0);
    block = us_realloc(heap, NULL, 10);
    MUST(block);
    MUST(us_heap_close(heap) == US_OK);
}

// What the address sanitizer notes about managed memory stays with it, also when that is swapped.
static void sanitizers_know_the_memory(us_engine *engine) {
#ifdef __SANITIZE_ADDRESS__
    us_heap *heap = us_heap_new(engine);
    char *block = us_malloc(heap, 8 * MIB);
    fill(block, 8 * MIB, 9);
    __asan_poison_memory_region(block + 4 * MIB, 4 * MIB);
    MUST(us_page_out_all(engine) == US_OK);
    MUST(!__asan_region_is_poisoned(block, 4 * MIB));
    MUST(__asan_region_is_poisoned(block, 8 * MIB) == block + 4 * MIB);
    __asan_unpoison_memory_region(block, 8 * MIB);
    check(block, 8 * MIB, 9);
    MUST(us_heap_close(heap) == US_OK);
#else
    (void)engine;
#endif
}

static void engines_keep_apart(us_engine *engine, const char *fault) {
    us_engine *other = small_engine(fault);
    us_heap *heap = us_heap_new(engine), *others = us_heap_new(other);
    char *block = us_malloc(heap, 1000), *large = us_malloc(others, MIB);
    fill(large, MIB, 8);
    REFUSED(us_free(others, block), US_NOT_A_BLOCK, "is not the address of a block of this heap");
    REFUSED(us_advise(other, block, 1, US_PIN), US_RANGE, "not memory of this engine");
    all_is_back(engine);
    MUST(counter(other, "pgfault") > 0);
    MUST(us_heap_close(heap) == US_OK && us_engine_close(engine) == US_OK);
    check(large, MIB, 8);
    MUST(us_engine_close(other) == US_OK);
    // Its heap keeps it going.
    check(large, MIB, 8);
    MUST(us_free(others, large) == US_OK);
    MUST(us_heap_close(others) == US_OK);
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "thread";
    us_engine *engine = small_engine(fault);
    each_function(engine);
    threads_share_a_heap(engine);
    sanitizers_know_the_memory(engine);
    engines_keep_apart(engine, fault);
    puts("ok");
    return 0;
}
