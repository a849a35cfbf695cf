// fork: parent and child see their memory exactly, while other threads are in the middle of calls. The argument: thread or signal.
#include "must.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static us_engine *engine, *other;
static us_heap *heap, *other_heap;
static us_options *options;
static atomic_int is_over;

static void *busy(void *argument) {
    (void)argument;
    for (uint64_t stamp = 0; !atomic_load(&is_over); stamp++) {
        us_region *region = us_map(engine, MIB);
        void *block = us_malloc(heap, 3000);
        fill(block, 3000, stamp);
        fill(us_region_address(region), MIB, stamp);
        MUST(us_region_advise(region, 0, MIB, US_PAGE_OUT) == US_OK);
        check(us_region_address(region), MIB, stamp);
        check(block, 3000, stamp);
        MUST(us_unmap(region) == US_OK && us_free(heap, block) == US_OK);
    }
    return NULL;
}

// The lock of a table of handles is held most of the time: a child would find it so.
static void *asking(void *region) {
    while (!atomic_load(&is_over)) MUST(us_region_bytes(region) == MIB);
    return NULL;
}

// So are options while they are changed; a long value is not understood for long.
static void *setting(void *argument) {
    (void)argument;
    char *value = (char *)malloc(16 * MIB);
    MUST(value);
    memset(value, '1', 16 * MIB - 1);
    value[16 * MIB - 1] = 0;
    while (!atomic_load(&is_over)) MUST(us_options_set(options, "page_cluster", value) == US_INVALID);
    free(value);
    return NULL;
}

// A child of a fork that was not prepared: what it asks for is refused, or nothing, and never done to the parent.
static void without(us_region *region, us_region *discarded, void *block) {
    alarm(60);
    REFUSED(us_region_advise(discarded, 0, MIB, US_PREFETCH), US_CLOSED, "forked without the engine");
    REFUSED(us_region_advise(region, 0, MIB, US_PAGE_OUT), US_CLOSED, "forked without the engine");
    REFUSED(us_region_discard(region, 0, MIB), US_CLOSED, "forked without the engine");
    REFUSED_NULL(us_malloc(heap, 100), US_CLOSED, "forked without the engine");
    MUST(us_free(heap, block) == US_OK && us_unmap(region) == US_OK);
    MUST(us_heap_close(heap) == US_OK && us_unmap(discarded) == US_OK && us_engine_close(engine) == US_OK);
    _exit(0);
}

static void ended_well(pid_t child) {
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void fork_unprepared(void) {
    us_region *region = us_map(engine, MIB), *discarded = us_map(engine, MIB);
    void *block = us_malloc(heap, 4 * MIB);
    fill(us_region_address(region), MIB, 1);
    fill(us_region_address(discarded), MIB, 2);
    MUST(us_region_advise(discarded, 0, MIB, US_PAGE_OUT) == US_OK);
    int go[2];
    MUST(!pipe(go));
    pid_t child = fork();
    MUST(child >= 0);
    char byte = 0;
    if (!child) {
        MUST(read(go[0], &byte, 1) == 1);
        without(region, discarded, block);
    }
    MUST(us_region_discard(discarded, 0, MIB) == US_OK);
    MUST(write(go[1], &byte, 1) == 1);
    ended_well(child);
    check(us_region_address(region), MIB, 1);
    check_zero(us_region_address(discarded), MIB);
    fill(us_region_address(region), MIB, 3);
    check(us_region_address(region), MIB, 3);
    MUST(us_free(heap, block) == US_OK && us_unmap(region) == US_OK && us_unmap(discarded) == US_OK);
    MUST(!close(go[0]) && !close(go[1]));
}

static void use(char *region, char *block, char *others, uint64_t stamp) {
    fill(region, 8 * MIB, stamp + 1);
    void *more = us_malloc(heap, 2 * MIB);
    fill(more, 2 * MIB, stamp + 2);
    check(region, 8 * MIB, stamp + 1);
    check(more, 2 * MIB, stamp + 2);
    check(block, 4 * MIB, 20);
    check(others, 4 * MIB, 30);
    MUST(us_free(heap, more) == US_OK);
}

// Both engines are the child's own, and so are options.
static void use_in_child(char *region, char *block, char *others, uint64_t stamp) {
    use(region, block, others, stamp);
    MUST(us_free(other_heap, others) == US_OK);
    void *again = us_malloc(other_heap, 2 * MIB);
    MUST(again);
    fill(again, 2 * MIB, stamp);
    check(again, 2 * MIB, stamp);
    us_engine *third = us_engine_new(options);
    MUST(third && us_engine_close(third) == US_OK);
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "thread";
    engine = small_engine(fault);
    heap = us_heap_new(engine);
    fork_unprepared();
    MUST(!pthread_atfork(us_fork_prepare, us_fork_parent, us_fork_child));
    other = small_engine(fault);
    other_heap = us_heap_new(other);
    options = us_options_new(16 * MIB);
    MUST(us_options_set(options, "swap", "mem:64M") == US_OK && us_options_set(options, "arena", "1G") == US_OK);
    char *region = us_region_address(us_map(engine, 24 * MIB));
    char *block = us_malloc(heap, 4 * MIB), *others = us_malloc(other_heap, 4 * MIB);
    fill(region, 24 * MIB, 10);
    fill(block, 4 * MIB, 20);
    fill(others, 4 * MIB, 30);
    MUST(us_page_out_all(other) == US_OK);
    us_region *asked = us_map(other, MIB);
    // What it has given out keeps it going.
    MUST(us_engine_close(other) == US_OK);
    pthread_t threads[4];
    MUST(!pthread_create(&threads[0], NULL, busy, NULL));
    MUST(!pthread_create(&threads[1], NULL, setting, NULL));
    for (int i = 2; i < 4; i++) MUST(!pthread_create(&threads[i], NULL, asking, asked));
    for (uint64_t round = 0; round < 12; round++) {
        MUST(us_page_out_all(engine) == US_OK);
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            // Nothing here takes this long: a child that hangs ends.
            alarm(60);
            check(region + 8 * MIB, 16 * MIB - PAGE, 10 + MIB);
            use_in_child(region, block, others, 1000 * round);
            _exit(0);
        }
        use(region, block, others, 100 * round);
        ended_well(child);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
    MUST(counter(engine, "pswpin") > 1000 && counter(engine, "pages_lost") == 0);
    // A fork that was not prepared is told so, and nothing else happens.
    us_fork_parent();
    MUST(us_last_code() == US_INVALID && strstr(us_last_error(), "call us_fork_prepare before fork"));
    puts("ok");
    return 0;
}
