// Forks while other threads make threads and allocate: no child finds a lock of the allocator's taken.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORKERS = 3, BLOCKS = 200, FORKS = 700 * TIMES };
static volatile int stop;

static void *allocate(void *argument) {
    void *blocks[BLOCKS];
    for (int i = 0; i < BLOCKS; i++)
        memset(blocks[i] = malloc(100 + i * 97), 1, 100);
    for (int i = 0; i < BLOCKS; i++)
        free(blocks[i]);
    return argument;
}

static void in_new_thread(void) {
    pthread_t thread;
    if (!pthread_create(&thread, 0, allocate, 0))
        pthread_join(thread, 0);
}

static void *work(void *argument) {
    while (!stop)
        in_new_thread();
    return argument;
}

int main(void) {
    pthread_t workers[WORKERS];
    for (int i = 0; i < WORKERS; i++)
        pthread_create(&workers[i], 0, work, 0);
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        if (child == 0) {
            alarm(20);
            allocate(0);
            in_new_thread();
            _exit(0);
        }
        int status;
        if (waitpid(child, &status, 0) != child || status != 0) {
            fprintf(stderr, "fork %d: %x\n", i, status);
            return 1;
        }
    }
    stop = 1;
    for (int i = 0; i < WORKERS; i++)
        pthread_join(workers[i], 0);
    puts("exact");
    return 0;
}
