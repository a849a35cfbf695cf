// A program with an allocator of its own (allocator.c): blocks of all kinds, threads, streams and forks.
#define _GNU_SOURCE
#include <locale.h>
#include <pthread.h>
#include <pwd.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

void *own_new(size_t bytes);
void own_delete(void *pointer);

enum { THREADS = 4, BLOCKS = 4000, BYTES = 4000, FORKS = 4, MANY = 24 };
static char *blocks[THREADS][BLOCKS];

static void fail(const char *what) {
    fprintf(stderr, "%s\n", what);
    _exit(1);
}

static void strings(void) {
    for (int i = 0; i < 100; i++) {
        char *text = strdup("some text"), *part = strndup(text, 4), *printed = 0, *line = 0;
        size_t room = 0;
        uint64_t *numbers = reallocarray(0, 100, sizeof *numbers);
        numbers = reallocarray(numbers, 1000, sizeof *numbers);
        if (asprintf(&printed, "%s %d", text, i) < 0)
            fail("asprintf");
        FILE *file = fopen("/proc/self/status", "r");
        if (!file || getline(&line, &room, file) < 0)
            fail("getline");
        fclose(file);
        void *apart = 0;
        if (posix_memalign(&apart, 256, 1000) || (uintptr_t)apart % 256)
            fail("posix_memalign");
        char *made = own_new(100);
        char *resolved = realpath("/proc", 0);
        free(text), free(part), free(printed), free(line), free(numbers), free(resolved);
        free(aligned_alloc(64, 640)), free(calloc(10, 10)), free(realloc(malloc(10), 5000));
        own_delete(made);
    }
}

static char value(int thread, int block, int byte) { return (char)(thread * 31 + block * 7 + byte / 512); }

static void *fill(void *argument) {
    int thread = (int)(intptr_t)argument;
    for (int block = 0; block < BLOCKS; block++) {
        char *bytes = block % 2 ? malloc(BYTES) : own_new(BYTES);
        for (int byte = 0; byte < BYTES; byte += 512)
            bytes[byte] = value(thread, block, byte);
        blocks[thread][block] = bytes;
        if (block % 500 == 0)
            strings();
    }
    return 0;
}

static void check(int every) {
    for (int thread = 0; thread < THREADS; thread++)
        for (int block = 0; block < BLOCKS; block += every)
            for (int byte = 0; byte < BYTES; byte += 512)
                if (blocks[thread][block][byte] != value(thread, block, byte))
                    fail("a block has lost its bytes");
}

static void *in_thread(void *argument) {
    strings();
    return argument;
}

static pthread_barrier_t together;
static int last;
static void *volatile beside;

// The next block for a table begins 16 bytes before a page: what comes first lies on another page than all else, beside blocks
// that are not in use, and no other table.
static void put_next_across_pages(void) {
    for (int i = 0; i < 1000; i++) {
        beside = malloc(400);
        if (i > 16 && (uintptr_t)beside % 4096 == 4080 - 512)
            return;
        if ((uintptr_t)beside % 512 != 4080 % 512)
            beside = malloc(10);
    }
    fail("no such block");
}

static void *meet(void *argument) {
    __atomic_store_n(&last, gettid(), __ATOMIC_RELAXED);
    pthread_barrier_wait(&together);
    return argument;
}

// Threads that end leave their stacks to the C library, which gives up those of others as one ends that nobody waits for, with
// all signals blocked: each has a table in a block of malloc's.
static void start_waiting(int count, size_t stack_bytes) {
    pthread_t threads[MANY];
    pthread_attr_t attributes;
    pthread_barrier_init(&together, 0, (unsigned)count + 1);
    if (pthread_attr_init(&attributes) || pthread_attr_setstacksize(&attributes, stack_bytes))
        fail("the stacks' size");
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    for (int i = 0; i < count; i++) {
        put_next_across_pages();
        if (pthread_create(&threads[i], &attributes, meet, 0))
            fail("a thread with a large stack");
    }
}

static void let_go(void) {
    pthread_barrier_wait(&together);
    while (tgkill(getpid(), last, 0) == 0)
        sched_yield();
}

int main(void) {
    alarm(120);
    // The C library keeps a part of it in a block of malloc's, which each new thread reads.
    setlocale(LC_ALL, "C.UTF-8");
    FILE *open[20];
    for (int i = 0; i < 20; i++)
        open[i] = fopen("/proc/self/status", "r");
    strings();
    pthread_t threads[THREADS];
    for (intptr_t i = 0; i < THREADS; i++)
        pthread_create(&threads[i], 0, fill, (void *)i);
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    // The blocks go round in the budget; what a thread reads before its signals are unblocked has to be there.
    for (int round = 0; round < 3; round++) {
        check(1);
        if (pthread_create(&threads[0], 0, in_thread, 0) || pthread_join(threads[0], 0))
            fail("a late thread");
        start_waiting(THREADS, 9 << 20);
        let_go();
        check(1);
        start_waiting(1, (size_t)(38 + round) << 20);
        let_go();
    }
    // Name services are configured, in a block that fork reads after the engine has stopped; nothing in use is beside it.
    for (int i = 0; i < 400; i++)
        beside = malloc(200);
    if (!getpwuid(0))
        fail("no user 0");
    for (int i = 0; i < 64; i++)
        beside = malloc(200);
    // With stacks such as an engine's threads take, those of a child before all others.
    start_waiting(MANY, 2 << 20);
    check(1);
    for (int round = 0; round < FORKS; round++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(30);
            char line[100];
            pthread_t thread;
            if (pthread_create(&thread, 0, in_thread, 0) || pthread_join(thread, 0))
                fail("a thread in the child");
            if (!fgets(line, sizeof line, open[round]))
                fail("a stream in the child");
            check(round + 1);
            strings();
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "child %d: %x\n", round, status);
            return 1;
        }
        check(7);
    }
    let_go();
    for (int thread = 0; thread < THREADS; thread++)
        for (int block = 0; block < BLOCKS; block++)
            block % 3 ? free(blocks[thread][block]) : own_delete(blocks[thread][block]);
    for (int i = 0; i < 20; i++)
        fclose(open[i]);
    puts("exact");
    return 0;
}
