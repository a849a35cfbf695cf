// Options that change where content is: compressed, encrypted, in a budget that grows. The argument: thread or signal.
#include "must.h"
#include <unistd.h>

static const char *fault;

static us_engine *engine_with(const char *key, const char *value, const char *device) {
    us_options *options = us_options_new(16 * MIB);
    MUST(us_options_set(options, "fault", fault) == US_OK);
    MUST(us_options_set(options, "swap", device) == US_OK);
    MUST(us_options_set(options, key, value) == US_OK);
    us_engine *engine = us_engine_new(options);
    if (!engine) fprintf(stderr, "%s\n", us_last_error());
    MUST(engine && us_options_free(options) == US_OK);
    return engine;
}

static void close_all(us_engine *engine, us_region *region) {
    MUST(us_unmap(region) == US_OK);
    all_is_back(engine);
    MUST(us_engine_close(engine) == US_OK);
}

// Words with few distinct bytes, which compress.
static void counts(void *memory, size_t bytes) {
    uint64_t *words = memory;
    for (size_t i = 0; i < bytes / 8; i++) words[i] = i;
}

static void check_counts(const void *memory, size_t bytes) {
    const uint64_t *words = memory;
    for (size_t i = 0; i < bytes / 8; i++) MUST(words[i] == i);
}

static void compressed_pages_are_in_the_budget(void) {
    us_engine *engine = engine_with("compress", "8M", "mem:256M");
    us_region *region = us_map(engine, 64 * MIB);
    counts(us_region_address(region), 64 * MIB);
    us_usage now = usage(engine);
    MUST(counter(engine, "zswpout") > 0 && now.compressed > 0 && now.compressed <= 8 * MIB / PAGE);
    MUST(now.resident + now.cached + now.compressed <= now.budget + now.debt);
    check_counts(us_region_address(region), 64 * MIB);
    MUST(counter(engine, "zswpin") > 0);
    close_all(engine, region);
    us_options *options = us_options_new(16 * MIB);
    MUST(us_options_set(options, "swap", "zram:64M") == US_OK && us_options_set(options, "compress", "auto") == US_OK);
    REFUSED_NULL(us_engine_new(options), US_INVALID, "zram:64M");
    MUST(us_options_free(options) == US_OK);
}

// Whether a file has one of the words that `fill` wrote.
static int is_in(const char *path, uint64_t stamp) {
    FILE *file = fopen(path, "rb");
    MUST(file);
    uint64_t words[PAGE / 8];
    int found = 0;
    while (fread(words, PAGE, 1, file) == 1) found |= words[0] == word(stamp, 0);
    MUST(fclose(file) == 0);
    return found;
}

static void what_is_encrypted_cannot_be_read(void) {
    char directory[] = "/var/tmp/userswap-capi-XXXXXX";
    MUST(mkdtemp(directory));
    char path[64], device[80];
    snprintf(path, sizeof path, "%s/swap", directory);
    snprintf(device, sizeof device, "%s:64M", path);
    static const char *const values[] = {"false", "true"};
    for (int encrypts = 0; encrypts < 2; encrypts++) {
        us_engine *engine = engine_with("encrypt", values[encrypts], device);
        us_region *region = us_map(engine, 4 * MIB);
        char *memory = us_region_address(region);
        fill(memory, 4 * MIB, 7);
        MUST(us_page_out_all(engine) == US_OK && usage(engine).resident == 0);
        MUST(is_in(path, 7) == !encrypts);
        check(memory, 4 * MIB, 7);
        close_all(engine, region);
        unlink(path);
    }
    MUST(rmdir(directory) == 0);
}

static void the_budget_can_grow_to_what_was_said(void) {
    us_engine *engine = engine_with("ram_max", "512M", "mem:64M");
    us_region *region = us_map(engine, 48 * MIB);
    fill(us_region_address(region), 48 * MIB, 3);
    MUST(us_set_budget(engine, 512 * MIB) == US_OK && usage(engine).budget == 512 * MIB / PAGE);
    check(us_region_address(region), 48 * MIB, 3);
    uint64_t reads = counter(engine, "pswpin");
    check(us_region_address(region), 48 * MIB, 3);
    MUST(reads > 0 && counter(engine, "pswpin") == reads);
    close_all(engine, region);
    us_engine *small = engine_with("ram_max", "16M", "mem:64M");
    REFUSED(us_set_budget(small, (uint64_t)512 * MIB), US_BUDGET, "512M");
    MUST(us_engine_close(small) == US_OK);
}

int main(int count, char **arguments) {
    fault = count > 1 ? arguments[1] : "thread";
    compressed_pages_are_in_the_budget();
    what_is_encrypted_cannot_be_read();
    the_budget_can_grow_to_what_was_said();
    puts("ok");
    return 0;
}
