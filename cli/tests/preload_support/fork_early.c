/* Threads fork all the time, one flushes all streams and one prints what may be swapped out, while the engine starts in
 * another: in children of the first process, so that it starts many times. */
#include "children.h"
#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 96 << 20, TIMES_EACH = 3, BESIDE = 4 };

static char *memory;
static long filled;
static int is_done;

static int done(void) { return __atomic_load_n(&is_done, __ATOMIC_SEQ_CST); }

static void *fork_always(void *argument) {
    while (!done()) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) _exit(0);
        end_well(child);
    }
    return argument;
}

static void *flush_always(void *argument) {
    while (!done()) MUST(fflush(0) == 0);
    return argument;
}

static void *print_always(void *argument) {
    FILE *file = fopen("/dev/null", "w");
    MUST(file);
    for (unsigned random = 1; !done(); random = random * 1103515245 + 12345) {
        long pages = __atomic_load_n(&filled, __ATOMIC_ACQUIRE) / PAGE;
        if (pages) MUST(fprintf(file, "%.8s\n", memory + random / 65536 % pages * (long)PAGE) > 0);
    }
    MUST(fclose(file) == 0);
    return argument;
}

static void outgrow(void) {
    void *(*bodies[BESIDE])(void *) = {fork_always, fork_always, flush_always, print_always};
    pthread_t threads[BESIDE];
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (int i = 0; i < BESIDE; i++) MUST(pthread_create(&threads[i], 0, bodies[i], 0) == 0);
    usleep(5000);
    for (long at = 0; at < BYTES; at += PAGE) {
        *(long *)(memory + at) = at + 1;
        __atomic_store_n(&filled, at + PAGE, __ATOMIC_RELEASE);
    }
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + 1);
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < BESIDE; i++) MUST(pthread_join(threads[i], 0) == 0);
}

int main(void) {
    in_children(TIMES_EACH * TIMES, outgrow);
    puts("exact");
    return 0;
}
