// Shrinkers and accounts: a cache of the program's own gives way to the engine's pages.
#include "must.h"
#include <stdatomic.h>

enum { PAGES = 2048 };

static atomic_uint held;
static us_account *account;

static uint64_t count(void *user, uint32_t node) {
    MUST(user == &held && node == 0);
    return atomic_load(&held);
}

static uint64_t scan(void *user, uint32_t node, uint64_t objects) {
    MUST(user == &held && node == 0);
    unsigned before = atomic_load(&held);
    if (!before) return US_STOP;
    unsigned freed = objects < before ? (unsigned)objects : before;
    atomic_fetch_sub(&held, freed);
    MUST(us_uncharge(account, node, freed) == US_OK);
    return freed;
}

int main(void) {
    us_options *options = us_options_new(16 * MIB);
    MUST(us_options_set(options, "fake_numa", "1") == US_OK);
    MUST(us_options_set(options, "swap", "mem:128M") == US_OK);
    us_engine *engine = us_engine_new(options);
    MUST(engine && us_options_free(options) == US_OK);
    account = us_account_new(engine);
    MUST(account);
    us_cache cache = {count, scan, &held, 2};
    us_shrinker *shrinker = us_shrinker_new(engine, "pages", &cache);
    MUST(shrinker);
    for (int i = 0; i < PAGES / 64; i++) {
        MUST((i % 2 ? us_charge : us_try_charge)(account, us_node_here(engine), 64) == US_OK);
        atomic_fetch_add(&held, 64);
    }
    MUST(us_charged(account, 0) == PAGES && usage(engine).charged == PAGES);
    REFUSED(us_charge(account, 7, 1), US_INVALID, "there is no node 7");
    REFUSED(us_uncharge(account, 0, PAGES + 1), US_RANGE, "2049 pages to uncharge, of 2048");
    REFUSED(us_uncharge(account, 1, 1), US_INVALID, "there is no node 1");
    REFUSED(us_try_charge(account, 0, 1000000), US_NO_MEMORY, "no room for 1000000 pages on node 0");
    us_region *region = us_map(engine, 48 * MIB);
    for (uint64_t pass = 1; us_charged(account, 0) == PAGES && pass < 100; pass++) {
        fill(us_region_address(region), 48 * MIB, pass);
        check(us_region_address(region), 48 * MIB, pass);
    }
    MUST(us_shrinker_close(shrinker) == US_OK);
    MUST(us_charged(account, 0) == atomic_load(&held) && atomic_load(&held) < PAGES);
    MUST(counter(engine, "slabs_freed") == PAGES - atomic_load(&held));
    uint64_t scanned, freed;
    REFUSED(us_shrinker_totals(shrinker, &scanned, &freed), US_CLOSED, "no open us_shrinker");
    shrinker = us_shrinker_new(engine, "again", &cache);
    MUST(us_shrinker_totals(shrinker, &scanned, &freed) == US_OK && freed <= scanned);
    MUST(us_shrinker_close(shrinker) == US_OK);
    cache.scan = NULL;
    REFUSED_NULL(us_shrinker_new(engine, "half", &cache), US_INVALID, "\"half\" lacks count or scan");
    REFUSED_NULL(us_shrinker_new(engine, "none", NULL), US_INVALID, "the us_cache is NULL");
    REFUSED_NULL(us_shrinker_new(engine, NULL, &cache), US_INVALID, "the cache's name is NULL");
    MUST(us_account_close(account) == US_OK);
    MUST(usage(engine).charged == 0);
    MUST(us_unmap(region) == US_OK && us_engine_close(engine) == US_OK);
    puts("ok");
    return 0;
}
