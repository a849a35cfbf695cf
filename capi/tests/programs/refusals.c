// Bad input: a code, and one line that names the value; never a crash.
#include "must.h"

// Every function with this engine, region, heap …, none of which is open: the same code from all.
static void all_refuse(void *handle, int code, const char *words) {
    uint64_t number;
    size_t count = 1;
    us_usage usage;
    us_latency latency;
    char text[100];
    us_cache cache = {0, 0, 0, 0};
    REFUSED(us_options_set(handle, "fault", "thread"), code, words);
    REFUSED(us_options_free(handle), code, words);
    REFUSED_NULL(us_engine_new(handle), code, words);
    REFUSED(us_engine_close(handle), code, words);
    REFUSED(us_set_budget(handle, 32 * MIB), code, words);
    REFUSED(us_set(handle, "ram", "32M"), code, words);
    REFUSED(us_page_out_all(handle), code, words);
    REFUSED(us_prefetch_all(handle), code, words);
    REFUSED(us_swapon(handle, "mem:64M"), code, words);
    REFUSED(us_swapoff(handle, "mem"), code, words);
    REFUSED_NULL(us_nodes(handle), code, words);
    REFUSED_NULL(us_node_here(handle), code, words);
    REFUSED(us_control_socket(handle, text, sizeof text), code, words);
    REFUSED(us_counter(handle, "pswpin", &number), code, words);
    REFUSED(us_counters(handle, &number, &count), code, words);
    REFUSED(us_usage_read(handle, &usage, sizeof usage), code, words);
    REFUSED(us_fault_latency(handle, &latency), code, words);
    REFUSED(us_advise(handle, text, 1, US_PIN), code, words);
    REFUSED_NULL(us_map(handle, 1), code, words);
    REFUSED(us_unmap(handle), code, words);
    REFUSED_NULL(us_region_address(handle), code, words);
    REFUSED_NULL(us_region_bytes(handle), code, words);
    REFUSED(us_region_advise(handle, 0, 1, US_PIN), code, words);
    REFUSED(us_region_discard(handle, 0, 1), code, words);
    REFUSED_NULL(us_heap_new(handle), code, words);
    REFUSED(us_heap_close(handle), code, words);
    REFUSED_NULL(us_malloc(handle, 1), code, words);
    REFUSED_NULL(us_calloc(handle, 1, 1), code, words);
    REFUSED_NULL(us_realloc(handle, text, 1), code, words);
    REFUSED_NULL(us_aligned_alloc(handle, 16, 1), code, words);
    REFUSED(us_free(handle, text), code, words);
    REFUSED_NULL(us_malloc_usable_size(handle, text), code, words);
    REFUSED(us_heap_discard(handle, text, 0, 1), code, words);
    REFUSED_NULL(us_shrinker_new(handle, "cache", &cache), code, words);
    REFUSED(us_shrinker_close(handle), code, words);
    REFUSED(us_shrinker_totals(handle, &number, &number), code, words);
    REFUSED_NULL(us_account_new(handle), code, words);
    REFUSED(us_account_close(handle), code, words);
    REFUSED(us_charge(handle, 0, 1), code, words);
    REFUSED(us_try_charge(handle, 0, 1), code, words);
    REFUSED(us_uncharge(handle, 0, 1), code, words);
    REFUSED_NULL(us_charged(handle, 0), code, words);
}

static void options_name_what_is_wrong(void) {
    us_options *options = us_options_new(16 * MIB);
    REFUSED(us_options_set(options, "colour", "red"), US_INVALID, "\"colour\" is no option: use swap, fault");
    REFUSED(us_options_set(options, "fault", "mail"), US_INVALID, "\"mail\" is not a fault mode: use thread or signal");
    REFUSED(us_options_set(options, "page_cluster", "11"), US_INVALID, "page_cluster: \"11\" is not allowed: use a whole number from 0 to 10");
    REFUSED(us_options_set(options, "ram_of_node", "16M"), US_INVALID, "use NODE:SIZE");
    REFUSED(us_options_set(options, "fake_numa", "0"), US_INVALID, "use a number from 1 to 64");
    REFUSED(us_options_set(options, "control", "off"), US_INVALID, "control: \"off\" is not allowed: use on");
    REFUSED(us_options_set(options, "compress", "1M"), US_INVALID, "\"1M\" is no amount of compressed memory: use a size");
    REFUSED(us_options_set(options, "encrypt", "yes"), US_INVALID, "encrypt: \"yes\" is not allowed: use true or false");
    REFUSED(us_options_set(options, "ram_max", "much"), US_INVALID, "ram_max: \"much\"");
    REFUSED(us_options_set(options, "arena", "big"), US_INVALID, "big");
    REFUSED(us_options_set(options, "swap", "mem:"), US_INVALID, "mem:");
    REFUSED(us_options_set(options, "fault", "\xff"), US_INVALID, "is not UTF-8");
    REFUSED(us_options_set(options, NULL, "thread"), US_INVALID, "the key is NULL");
    REFUSED(us_options_set(options, "fault", NULL), US_INVALID, "the value is NULL");
    // What was refused has changed nothing.
    us_engine *engine = us_engine_new(options);
    MUST(engine && us_engine_close(engine) == US_OK);
    MUST(us_options_set(options, "swap", "/nowhere/at/all") == US_OK);
    REFUSED_NULL(us_engine_new(options), US_DEVICE, "/nowhere/at/all");
    MUST(us_options_free(options) == US_OK);
    us_options *tiny = us_options_new(4096);
    REFUSED_NULL(us_engine_new(tiny), US_BUDGET, "a budget of 4K is too small: use at least 16M");
    MUST(us_options_free(tiny) == US_OK);
}

static void ranges_are_looked_at(us_engine *engine) {
    us_region *region = us_map(engine, MIB);
    char *memory = us_region_address(region);
    uint64_t number;
    size_t count;
    REFUSED_NULL(us_map(engine, 0), US_INVALID, "a region of 0 bytes");
    REFUSED_NULL(us_map(engine, (size_t)1 << 50), US_NO_MEMORY, "no address space left for a region of 1125899906842624 bytes");
    REFUSED(us_region_advise(region, 0, MIB + 1, US_PIN), US_RANGE, "bytes 0..1048577 lie outside the region of 1048576 bytes");
    REFUSED(us_region_advise(region, SIZE_MAX, 2, US_PIN), US_RANGE, "end beyond all addresses");
    REFUSED(us_region_discard(region, MIB, 1), US_RANGE, "bytes 1048576..1048577");
    REFUSED(us_region_protect(region, 0, MIB + 1, US_READ), US_RANGE, "bytes 0..1048577 lie outside the region of 1048576 bytes");
    REFUSED(us_region_protect(region, 0, 1, 3), US_INVALID, "3 is no us_protection");
    MUST(us_region_protect(region, 0, PAGE, US_NO_ACCESS) == US_OK);
    REFUSED(us_region_advise(region, 0, 1, US_PIN), US_INVALID, "may not be read");
    MUST(us_region_protect(region, 0, PAGE, US_READ_WRITE) == US_OK);
    REFUSED(us_region_advise(region, 0, 1, 99), US_INVALID, "99 is no us_advice");
    REFUSED(us_advise(engine, memory, 1, -1), US_INVALID, "-1 is no us_advice");
    REFUSED(us_advise(engine, memory, MIB + 1, US_COLD), US_RANGE, "are not memory of this engine");
    REFUSED(us_advise(engine, &number, 8, US_COLD), US_RANGE, "are not memory of this engine");
    MUST(us_unmap(region) == US_OK);
    REFUSED(us_advise(engine, memory, 1, US_COLD), US_RANGE, "are not memory of this engine");
    REFUSED(us_set_budget(engine, 1), US_BUDGET, "a budget of 1 is");
    REFUSED(us_set(engine, "colour", "red"), US_INVALID, "colour");
    REFUSED(us_set(engine, "page_cluster", "red"), US_INVALID, "red");
    REFUSED(us_swapon(engine, "mem:"), US_INVALID, "mem:");
    REFUSED(us_swapon(engine, "/nowhere/at/all"), US_DEVICE, "/nowhere/at/all");
    REFUSED(us_swapoff(engine, "/nowhere"), US_DEVICE, "/nowhere is not a swap device of this program");
    REFUSED(us_control_socket(engine, NULL, 0), US_INVALID, "has no control socket");
    REFUSED(us_counter(engine, "colour", &number), US_INVALID, "\"colour\" is no counter");
    REFUSED(us_counter(engine, "pswpin", NULL), US_INVALID, "the place for the value is NULL");
    REFUSED(us_counters(engine, &number, NULL), US_INVALID, "the place for the count is NULL");
    count = 1;
    REFUSED(us_counters(engine, NULL, &count), US_INVALID, "the place for the values is NULL");
    us_usage usage;
    REFUSED(us_usage_read(engine, &usage, 8), US_RANGE, "pass sizeof(us_usage)");
    REFUSED(us_usage_read(engine, NULL, sizeof usage), US_INVALID, "the place for the usage is NULL");
    REFUSED(us_fault_latency(engine, NULL), US_INVALID, "NULL");
}

static void blocks_are_looked_at(us_engine *engine) {
    us_heap *heap = us_heap_new(engine);
    static const size_t sizes[] = {10, 5000, 40000, MIB};
    for (int i = 0; i < 4; i++) {
        char *block = us_malloc(heap, sizes[i]);
        const char *words = "is not the address of a block of this heap";
        REFUSED(us_free(heap, block + 8), US_NOT_A_BLOCK, words);
        REFUSED(us_heap_discard(heap, block, 0, 2 * MIB), US_RANGE, "lie outside");
        MUST(us_free(heap, block) == US_OK);
        REFUSED(us_free(heap, block), US_NOT_A_BLOCK, words);
        REFUSED_NULL(us_realloc(heap, block, 5), US_NOT_A_BLOCK, words);
        REFUSED_NULL(us_malloc_usable_size(heap, block), US_NOT_A_BLOCK, words);
    }
    REFUSED(us_heap_discard(heap, NULL, 0, 1), US_INVALID, "the block is NULL");
    REFUSED_NULL(us_aligned_alloc(heap, 24, 1), US_INVALID, "an alignment of 24: use a power of two");
    REFUSED_NULL(us_aligned_alloc(heap, 0, 1), US_INVALID, "an alignment of 0");
    REFUSED_NULL(us_calloc(heap, SIZE_MAX / 2, 3), US_NO_MEMORY, "are more than there are addresses");
    REFUSED_NULL(us_malloc(heap, SIZE_MAX), US_NO_MEMORY, "are more than there are addresses");
    REFUSED_NULL(us_malloc(heap, (size_t)1 << 50), US_NO_MEMORY, "no address space left");
    MUST(us_heap_close(heap) == US_OK);
}

// A defect stops at the border: pins that are never undone, until the page's word has no room for more.
static void no_panic_crosses(void) {
    us_options *options = us_options_new(512 * MIB);
    us_engine *engine = us_engine_new(options);
    MUST(engine && us_options_free(options) == US_OK);
    us_region *region = us_map(engine, PAGE);
    int code = US_OK;
    for (int pins = 0; code == US_OK && pins < 1 << 20; pins++) code = us_region_advise(region, 0, PAGE, US_PIN);
    MUST(code == US_PANIC && us_last_code() == US_PANIC);
    MUST(strstr(us_last_error(), "a defect of the library"));
    fill(us_region_address(region), PAGE, 1);
    check(us_region_address(region), PAGE, 1);
    MUST(us_unmap(region) == US_OK && us_engine_close(engine) == US_OK);
}

int main(void) {
    MUST(us_last_code() == US_OK && !strcmp(us_last_error(), ""));
    for (int code = US_OK; code <= US_PANIC; code++) {
        MUST(*us_strerror(code) && strcmp(us_strerror(code), "unknown code"));
        for (int other = US_OK; other < code; other++) MUST(strcmp(us_strerror(code), us_strerror(other)));
    }
    MUST(!strcmp(us_strerror(-1), "unknown code") && !strcmp(us_strerror(US_PANIC + 1), "unknown code"));
    all_refuse(NULL, US_INVALID, "is NULL");
    us_engine *engine = small_engine("thread");
    all_refuse((char *)engine + 8, US_CLOSED, "is no open us_");
    char local;
    all_refuse(&local, US_CLOSED, "is no open us_");
    options_name_what_is_wrong();
    ranges_are_looked_at(engine);
    blocks_are_looked_at(engine);
    no_panic_crosses();
    MUST(us_engine_close(engine) == US_OK);
    all_refuse(engine, US_CLOSED, "it was closed, or never opened");
    puts("ok");
    return 0;
}
