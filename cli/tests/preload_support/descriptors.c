// Threads open and close descriptors while the engine starts: each is theirs to close.
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, THREADS = 4, OPEN = 100 };
static int done;

static int open_one(void) {
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    MUST(fd >= 0);
    return fd;
}
// Each stays open for longer than the engine takes to start.
static void *open_and_close(void *unused) {
    int mine[OPEN];
    (void)unused;
    for (int i = 0; i < OPEN; i++) mine[i] = open_one();
    for (int i = 0; !__atomic_load_n(&done, __ATOMIC_RELAXED); i = (i + 1) % OPEN) {
        MUST(close(mine[i]) == 0);
        mine[i] = open_one();
        nanosleep(&(struct timespec){0, 20000}, 0);
    }
    for (int i = 0; i < OPEN; i++) MUST(close(mine[i]) == 0);
    return 0;
}
int main(void) {
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], 0, open_and_close, 0) == 0);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    __atomic_store_n(&done, 1, __ATOMIC_RELAXED);
    for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], 0) == 0);
    puts("exact");
    return 0;
}
