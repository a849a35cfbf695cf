// fork: parent and child see their memory exactly, while other threads are in the middle of calls. The argument: thread or signal.
#include "must.h"
#include <pthread.h>
#include <stdatomic.h>
#include <sys/wait.h>
#include <unistd.h>

static us_engine *engine, *other;
static us_heap *heap;
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

static void use(char *region, char *block, char *others, uint64_t stamp) {
    fill(region, 8 * MIB, stamp + 1);
    void *more = us_malloc(heap, 2 * MIB);
    fill(more, 2 * MIB, stamp + 2);
    check(region, 8 * MIB, stamp + 1);
    check(more, 2 * MIB, stamp + 2);
    check(block, 4 * MIB, 20);
    check(others, 4 * MIB, 30);
    MUST(us_free(heap, more) == US_OK);
    us_region *mapped = us_map(other, MIB);
    MUST(mapped && us_unmap(mapped) == US_OK);
}

int main(int argc, char **argv) {
    const char *fault = argc > 1 ? argv[1] : "thread";
    MUST(!pthread_atfork(us_fork_prepare, us_fork_parent, us_fork_child));
    engine = small_engine(fault);
    other = small_engine(fault);
    heap = us_heap_new(engine);
    char *region = us_region_address(us_map(engine, 24 * MIB));
    char *block = us_malloc(heap, 4 * MIB), *others = us_region_address(us_map(other, 4 * MIB));
    fill(region, 24 * MIB, 10);
    fill(block, 4 * MIB, 20);
    fill(others, 4 * MIB, 30);
    pthread_t threads[3];
    MUST(!pthread_create(&threads[0], NULL, busy, NULL));
    us_region *asked = us_map(other, MIB);
    for (int i = 1; i < 3; i++) MUST(!pthread_create(&threads[i], NULL, asking, asked));
    for (uint64_t round = 0; round < 12; round++) {
        MUST(us_page_out_all(engine) == US_OK);
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            // Nothing here takes this long: a child that hangs ends.
            alarm(60);
            check(region + 8 * MIB, 16 * MIB - PAGE, 10 + MIB);
            use(region, block, others, 1000 * round);
            _exit(0);
        }
        use(region, block, others, 100 * round);
        int status;
        MUST(waitpid(child, &status, 0) == child);
        MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    }
    atomic_store(&is_over, 1);
    for (int i = 0; i < 3; i++) pthread_join(threads[i], NULL);
    MUST(counter(engine, "pswpin") > 1000 && counter(engine, "pages_lost") == 0);
    // A fork that was not prepared is told so, and nothing else happens.
    us_fork_parent();
    MUST(us_last_code() == US_INVALID && strstr(us_last_error(), "call us_fork_prepare before fork"));
    puts("ok");
    return 0;
}
