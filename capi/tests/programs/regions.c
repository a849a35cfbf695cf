// Engines and regions: every function does what it says, on data that is swapped out and in. The argument: thread or signal.
#include "must.h"
#include <errno.h>
#include <unistd.h>

static void swaps_and_keeps(us_engine *engine) {
    size_t bytes = 64 * MIB;
    us_region *region = us_map(engine, bytes);
    MUST(region);
    char *memory = us_region_address(region);
    MUST(memory && (uintptr_t)memory % PAGE == 0);
    MUST(us_region_bytes(region) == bytes);
    fill(memory, bytes, 1);
    check(memory, bytes, 1);
    // Four times the budget has passed, written and read.
    MUST(counter(engine, "pswpout") > 48 * MIB / PAGE);
    MUST(counter(engine, "pswpin") > 40 * MIB / PAGE);
    MUST(us_unmap(region) == US_OK);
    all_is_back(engine);
}

static void advice_is_taken(us_engine *engine) {
    us_region *region = us_map(engine, 8 * MIB);
    char *memory = us_region_address(region);
    fill(memory, 8 * MIB, 2);
    MUST(us_region_advise(region, 0, 4 * MIB, US_PIN) == US_OK);
    MUST(us_page_out_all(engine) == US_OK);
    MUST(usage(engine).resident == 4 * MIB / PAGE);
    MUST(us_region_advise(region, 0, 4 * MIB, US_UNPIN) == US_OK);
    MUST(us_region_advise(region, 0, 8 * MIB, US_PAGE_OUT) == US_OK);
    MUST(us_page_out_all(engine) == US_OK);
    MUST(usage(engine).resident == 0);
    uint64_t before = counter(engine, "pswpin");
    MUST(us_region_advise(region, 0, 2 * MIB, US_PREFETCH) == US_OK);
    MUST(us_advise(engine, memory + 2 * MIB, 2 * MIB, US_PREFETCH) == US_OK);
    MUST(counter(engine, "pswpin") == before + 4 * MIB / PAGE);
    MUST(us_prefetch_all(engine) == US_OK);
    MUST(counter(engine, "pswpin") == before + 8 * MIB / PAGE);
    for (int advice = US_NORMAL; advice <= US_COLD; advice++) {
        MUST(us_region_advise(region, 0, 8 * MIB, advice) == US_OK);
        MUST(us_advise(engine, memory, 8 * MIB, advice) == US_OK);
    }
    check(memory, 8 * MIB, 2);
    // Whole pages only: what the range covers in part is kept.
    MUST(us_region_discard(region, 100, 4 * PAGE) == US_OK);
    check(memory, PAGE, 2);
    check_zero(memory + PAGE, 3 * PAGE);
    MUST(us_unmap(region) == US_OK);
}

static void the_rest(us_engine *engine) {
    us_region *region = us_map(engine, 24 * MIB);
    fill(us_region_address(region), 24 * MIB, 3);
    MUST(us_set_budget(engine, 18 * MIB) == US_OK);
    MUST(usage(engine).budget == 18 * MIB / PAGE);
    MUST(us_set(engine, "swap_ra_policy", "off") == US_OK);
    MUST(us_set(engine, "swap_ra_policy", "stream") == US_OK);
    // Everything moves to another device.
    char path[] = "/var/tmp/userswap-capi-XXXXXX";
    MUST(mkdtemp(path));
    char device[64];
    snprintf(device, sizeof device, "%s:64M", path);
    MUST(us_swapon(engine, device) == US_OK);
    MUST(usage(engine).slots > 256 * MIB / PAGE);
    MUST(us_swapoff(engine, "mem") == US_OK);
    MUST(usage(engine).slots <= 64 * MIB / PAGE);
    check(us_region_address(region), 24 * MIB, 3);
    us_latency latency;
    MUST(us_fault_latency(engine, &latency) == US_OK);
    MUST(latency.p50 > 0 && latency.p50 <= latency.max);
    MUST(us_nodes(engine) >= 1 && us_node_here(engine) < us_nodes(engine));
    rmdir(path);
    // A region outlives its engine's handle.
    MUST(us_engine_close(engine) == US_OK);
    check(us_region_address(region), 24 * MIB, 3);
    MUST(us_unmap(region) == US_OK);
}

// While pages come and go; a system call tells what may be done with one.
static void protection_holds(us_engine *engine) {
    us_region *region = us_map(engine, 64 * MIB);
    char *memory = us_region_address(region);
    fill(memory, 64 * MIB, 5);
    MUST(us_region_protect(region, 8 * MIB, 8 * MIB, US_READ) == US_OK);
    MUST(us_region_protect(region, 16 * MIB, 8 * MIB, US_NO_ACCESS) == US_OK);
    check(memory, 16 * MIB, 5);
    FILE *zeros = fopen("/dev/zero", "r");
    MUST(zeros && read(fileno(zeros), memory + 8 * MIB, 8) == -1 && errno == EFAULT);
    MUST(read(fileno(zeros), memory + 16 * MIB, 8) == -1 && errno == EFAULT);
    fclose(zeros);
    MUST(us_region_protect(region, 0, 64 * MIB, US_READ_WRITE) == US_OK);
    check(memory, 64 * MIB, 5);
    fill(memory, 64 * MIB, 6);
    check(memory, 64 * MIB, 6);
    MUST(us_unmap(region) == US_OK);
}

static void counters_have_names(us_engine *engine) {
    size_t count = 0;
    MUST(us_counters(engine, NULL, &count) == US_OK);
    MUST(count > 40 && us_counter_name(count - 1) && !us_counter_name(count));
    uint64_t *values = calloc(count, sizeof *values);
    MUST(us_counters(engine, values, &count) == US_OK);
    for (size_t number = 0; number < count; number++) {
        if (!strcmp(us_counter_name(number), "pswpout")) MUST(values[number] == counter(engine, "pswpout") && values[number]);
    }
    free(values);
}

static void all_options_are_taken(void) {
    static const char *const options[][2] = {
        {"swap", "mem:64M"}, {"swap", "/var/tmp:64M,pri=3"}, {"fault", "thread"}, {"transfer", "copy"}, {"io", "threads"},
        {"on_full", "stop"}, {"placement", "spread"}, {"poll", "off"}, {"swap_ra_policy", "vma"}, {"page_cluster", "4"},
        {"vma_ra_enabled", "false"}, {"arena", "1G"}, {"fake_numa", "2"}, {"ram_of_node", "0:24M"}, {"ram_of_node", "1:16M"},
        {"control", "on"},
    };
    us_options *all = us_options_new(32 * MIB);
    for (size_t i = 0; i < sizeof options / sizeof *options; i++)
        MUST(us_options_set(all, options[i][0], options[i][1]) == US_OK);
    us_engine *engine = us_engine_new(all);
    MUST(engine);
    MUST(us_nodes(engine) == 2 && usage(engine).budget == 40 * MIB / PAGE);
    MUST(usage(engine).slots > 120 * MIB / PAGE);
    char socket[200];
    MUST(us_control_socket(engine, socket, sizeof socket) == US_OK);
    MUST(access(socket, F_OK) == 0);
    REFUSED(us_control_socket(engine, socket, 3), US_RANGE, "3 bytes are too few");
    us_region *region = us_map(engine, 100 * MIB);
    fill(us_region_address(region), 100 * MIB, 4);
    check(us_region_address(region), 100 * MIB, 4);
    MUST(counter(engine, "pgcopy") > 0);
    MUST(us_unmap(region) == US_OK);
    MUST(us_engine_close(engine) == US_OK);
    MUST(us_options_free(all) == US_OK);
}

int main(int argc, char **argv) {
    us_engine *engine = small_engine(argc > 1 ? argv[1] : "thread");
    MUST(!strcmp(us_version(), "0.1.0"));
    swaps_and_keeps(engine);
    advice_is_taken(engine);
    protection_holds(engine);
    counters_have_names(engine);
    the_rest(engine);
    all_options_are_taken();
    puts("ok");
    return 0;
}
