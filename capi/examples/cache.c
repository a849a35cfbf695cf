// A cache that shares the engine's budget: it grows while there is room, and gives way to pages that are used more.
//
//   cc -O2 cache.c $(pkg-config --cflags --libs userswap) -lpthread -o cache && ./cache
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <userswap.h>

enum { OBJECTS = 8192, OBJECT_BYTES = 4096 };

static struct {
    pthread_mutex_t lock;
    // In ordinary memory, which is charged to the budget.
    void *objects[OBJECTS];
    uint64_t held;
    unsigned hand;
    us_account *account;
} cache = {.lock = PTHREAD_MUTEX_INITIALIZER};

static uint64_t count(void *user, uint32_t node) {
    (void)user;
    // One number for all nodes: the first answers for it.
    return node ? 0 : __atomic_load_n(&cache.held, __ATOMIC_RELAXED);
}

// No thread holds the lock while it touches memory of the engine.
static uint64_t scan(void *user, uint32_t node, uint64_t objects) {
    (void)user;
    uint64_t freed = 0;
    pthread_mutex_lock(&cache.lock);
    for (int looked = 0; looked < OBJECTS && freed < objects; looked++) {
        void **object = &cache.objects[cache.hand++ % OBJECTS];
        freed += *object != NULL;
        free(*object);
        *object = NULL;
    }
    __atomic_fetch_sub(&cache.held, freed, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&cache.lock);
    us_uncharge(cache.account, node, (uint32_t)freed);
    return freed ? freed : US_STOP;
}

// Whether the object was there; it is kept if the budget has room.
static int look_up(unsigned key) {
    pthread_mutex_lock(&cache.lock);
    int hit = cache.objects[key] != NULL;
    pthread_mutex_unlock(&cache.lock);
    if (hit || us_try_charge(cache.account, 0, 1) != US_OK) return hit;
    void *object = malloc(OBJECT_BYTES);
    memset(object, (int)key, OBJECT_BYTES);
    pthread_mutex_lock(&cache.lock);
    cache.objects[key] = object;
    __atomic_fetch_add(&cache.held, 1, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&cache.lock);
    return 0;
}

static void fail(void) {
    fprintf(stderr, "cache: %s\n", us_last_error());
    exit(1);
}

int main(void) {
    us_options *options = us_options_new(32 << 20);
    us_engine *engine = us_engine_new(options);
    if (!engine) fail();
    us_options_free(options);
    const us_cache callbacks = {count, scan, NULL, 2};
    cache.account = us_account_new(engine);
    us_shrinker *shrinker = us_shrinker_new(engine, "objects", &callbacks);
    us_region *region = us_map(engine, 64 << 20);
    if (!cache.account || !shrinker || !region) fail();

    for (unsigned key = 0; key < OBJECTS / 2; key++) look_up(key);
    uint64_t before = __atomic_load_n(&cache.held, __ATOMIC_RELAXED);
    char *data = us_region_address(region);
    for (int pass = 0; pass < 8; pass++)
        for (size_t at = 0; at < us_region_bytes(region); at += 4096) data[at] = (char)(data[at] + 1);
    uint64_t after = __atomic_load_n(&cache.held, __ATOMIC_RELAXED);
    int wrong = 0;
    for (size_t at = 0; at < us_region_bytes(region); at += 4096) wrong += data[at] != 8;

    uint64_t scanned = 0, freed = 0;
    us_shrinker_totals(shrinker, &scanned, &freed);
    us_shrinker_close(shrinker);
    printf("%llu objects, %llu after the pages were used; asked for %llu, freed %llu; %d pages wrong\n",
           (unsigned long long)before, (unsigned long long)after, (unsigned long long)scanned, (unsigned long long)freed, wrong);
    for (int i = 0; i < OBJECTS; i++) free(cache.objects[i]);
    us_account_close(cache.account);
    us_unmap(region);
    us_engine_close(engine);
    return wrong || after >= before || !freed;
}
