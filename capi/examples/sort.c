// Sorts four times as much as its RAM budget: runs that fit, merged by twos. Arguments: MiB of RAM (64), thread or signal.
//
//   cc -O2 sort.c $(pkg-config --cflags --libs userswap) -o sort && ./sort
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <userswap.h>

static void *must(void *result) {
    if (!result) {
        fprintf(stderr, "sort: %s\n", us_last_error());
        exit(1);
    }
    return result;
}

static void ok(int code) {
    if (code != US_OK) must(NULL);
}

static int compare(const void *one, const void *other) {
    uint64_t a = *(const uint64_t *)one, b = *(const uint64_t *)other;
    return (a > b) - (a < b);
}

// Merges neighbouring runs of so many numbers.
static void merge(const uint64_t *from, uint64_t *to, size_t numbers, size_t run) {
    for (size_t start = 0; start < numbers; start += 2 * run) {
        size_t middle = start + run < numbers ? start + run : numbers;
        size_t end = middle + run < numbers ? middle + run : numbers;
        size_t a = start, b = middle;
        for (size_t i = start; i < end; i++) to[i] = b == end || (a < middle && from[a] <= from[b]) ? from[a++] : from[b++];
    }
}

int main(int argc, char **argv) {
    size_t ram = (argc > 1 ? strtoul(argv[1], NULL, 10) : 64) << 20;
    us_options *options = must(us_options_new(ram));
    ok(us_options_set(options, "fault", argc > 2 ? argv[2] : "thread"));
    us_engine *engine = must(us_engine_new(options));
    ok(us_options_free(options));

    size_t bytes = 4 * ram, numbers = bytes / sizeof(uint64_t);
    us_region *from = must(us_map(engine, bytes)), *to = must(us_map(engine, bytes));
    ok(us_region_advise(from, 0, bytes, US_SEQUENTIAL));
    ok(us_region_advise(to, 0, bytes, US_SEQUENTIAL));
    uint64_t *data = must(us_region_address(from)), sum = 0, seed = 1;
    for (size_t i = 0; i < numbers; i++) sum += data[i] = (seed = seed * UINT64_C(6364136223846793005) + 1) >> 11;

    size_t run = ram / 4 / sizeof(uint64_t);
    for (size_t start = 0; start < numbers; start += run) {
        size_t first = start * sizeof *data, length = run * sizeof *data;
        ok(us_region_advise(from, first, length, US_PREFETCH));
        qsort(data + start, run, sizeof *data, compare);
        // The next run needs the room, and this one is not needed for a while.
        ok(us_region_advise(from, first, length, US_COLD));
    }
    for (; run < numbers; run *= 2) {
        merge(us_region_address(from), us_region_address(to), numbers, run);
        // What was merged is not worth a write.
        ok(us_region_discard(from, 0, bytes));
        us_region *merged = to;
        to = from;
        from = merged;
    }

    data = us_region_address(from);
    for (size_t i = 0; i < numbers; i++) {
        sum -= data[i];
        if (i && data[i - 1] > data[i]) sum = 1;
    }
    uint64_t in = 0, out = 0;
    ok(us_counter(engine, "pswpin", &in));
    ok(us_counter(engine, "pswpout", &out));
    printf("%zu MiB sorted in %zu MiB of RAM: %s; %llu pages swapped out, %llu in\n", bytes >> 20, ram >> 20,
           sum ? "WRONG" : "right", (unsigned long long)out, (unsigned long long)in);
    ok(us_unmap(from));
    ok(us_unmap(to));
    ok(us_engine_close(engine));
    return sum != 0 || !in || !out;
}
