// Blocks of a size that is asked for again and again, between others: their content, and how much memory they take.
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, BLOCKS = 1500, ROUNDS = 2, PLAIN = 10000, PAGE_OF_A_DATABASE = 4368 };

static const size_t sizes[] = { 1100, 4368, 4368, 4368, 9000, 33000, 260 << 10 };
static void *_Atomic passed[THREADS * 64];

static uint64_t mixed(uint64_t number) {
    number *= 0x9e3779b97f4a7c15;
    return number ^ number >> 29;
}

static void fill(uint64_t *block, size_t bytes) {
    for (size_t word = 1; word < bytes / 8; word += 61)
        block[word] = mixed((uintptr_t)block + word);
    block[0] = bytes;
}

static void check(uint64_t *block) {
    size_t bytes = block[0];
    if (malloc_usable_size(block) < bytes)
        exit(3);
    for (size_t word = 1; word < bytes / 8; word += 61)
        if (block[word] != mixed((uintptr_t)block + word))
            exit(4);
}

static uint64_t *make(uint64_t random) {
    size_t bytes = sizes[random % 7];
    if (random % 5) {
        uint64_t *block = malloc(bytes);
        fill(block, bytes);
        return block;
    }
    uint64_t *block = calloc(1, bytes);
    for (size_t word = 0; word < bytes / 8; word++)
        if (block[word])
            exit(5);
    fill(block, bytes);
    return block;
}

// Larger or smaller, with what was in it.
static uint64_t *change(uint64_t *block, uint64_t random) {
    size_t old = block[0], bytes = sizes[random % 7] + random % 600;
    uint64_t first = block[1], middle = block[62], expected = mixed((uintptr_t)block + 1);
    block = realloc(block, bytes);
    if (block[0] != old || block[1] != first || block[62] != middle || first != expected)
        exit(6);
    fill(block, bytes);
    return block;
}

static void *work(void *number) {
    uint64_t random = (uintptr_t)number, **blocks = calloc(BLOCKS, sizeof *blocks);
    for (int step = 0; step < BLOCKS * ROUNDS; step++) {
        random = mixed(random + step);
        uint64_t **block = &blocks[random >> 32 & 0xffff ? (random >> 32) % (BLOCKS / 6) : random % BLOCKS];
        if (!*block) {
            *block = make(random);
        } else if (random % 3 == 0) {
            check(*block);
            *block = change(*block, random >> 8);
        } else {
            // Another thread gives it back.
            uint64_t *other = __atomic_exchange_n((void **)&passed[random % (THREADS * 64)], *block, __ATOMIC_ACQ_REL);
            *block = 0;
            if (other) {
                check(other);
                free(other);
            }
        }
    }
    for (int block = 0; block < BLOCKS; block++)
        if (blocks[block]) {
            check(blocks[block]);
            free(blocks[block]);
        }
    free(blocks);
    return 0;
}

// Forks while other threads are in malloc; the child goes on with it.
static void *fork_now_and_then(void *unused) {
    for (int times = 0; times < 2; times++) {
        usleep(20000);
        pid_t child = fork();
        if (child == 0) {
            work((void *)77);
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status)
            exit(7);
    }
    return unused;
}

static volatile int forks;

// Comes in the middle of malloc.
static void fork_here(int number) {
    int saved = errno, status;
    pid_t child = fork();
    if (child == 0)
        _exit(0);
    if (waitpid(child, &status, 0) != child || status)
        _exit(8);
    forks += number == SIGALRM;
    errno = saved;
}

static void fork_in_malloc(void) {
    struct itimerval soon = { { 0, 1000 }, { 0, 1000 } };
    signal(SIGALRM, fork_here);
    setitimer(ITIMER_REAL, &soon, 0);
    void *blocks[64] = { 0 };
    for (unsigned step = 0; forks < 200; step++) {
        void **block = &blocks[step * 7 % 64];
        free(*block);
        *block = malloc(PAGE_OF_A_DATABASE);
        memset(*block, (int)step, 64);
    }
    puts("exact");
    fflush(stdout);
    _exit(0);
}

static long anonymous(void) {
    long kilobytes = 0;
    char line[200];
    FILE *file = fopen("/proc/self/status", "r");
    while (fgets(line, sizeof line, file))
        if (!strncmp(line, "RssAnon:", 8))
            kilobytes = atol(line + 8);
    fclose(file);
    return kilobytes;
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "handler"))
        fork_in_malloc();
    if (argc > 1) {
        // How many bytes of memory a block of a database takes.
        long before = anonymous();
        for (int block = 0; block < PLAIN; block++)
            memset(malloc(PAGE_OF_A_DATABASE), 1, PAGE_OF_A_DATABASE);
        printf("%ld\n", (anonymous() - before) * 1024 / PLAIN);
        return 0;
    }
    pthread_t threads[THREADS + 1];
    for (long thread = 0; thread < THREADS; thread++)
        pthread_create(&threads[thread], 0, work, (void *)(thread + 1));
    pthread_create(&threads[THREADS], 0, fork_now_and_then, 0);
    for (int thread = 0; thread <= THREADS; thread++)
        pthread_join(threads[thread], 0);
    puts("exact");
}
