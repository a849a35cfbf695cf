// Threads fork at the same time: each child's malloc is still the managed one, which rounds sizes as it did before.
#include "must.h"
#include <malloc.h>
#include <pthread.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, FORKS = 250, BYTES = 100 };
static size_t usable_bytes;

static void *fork_on(void *argument) {
    for (int i = 0; i < FORKS; i++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (!child) {
            for (int block = 0; block < 100; block++)
                if (malloc_usable_size(malloc(BYTES)) != usable_bytes)
                    _exit(1);
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    return argument;
}

int main(void) {
    usable_bytes = malloc_usable_size(malloc(BYTES));
    // glibc's own would be this, and the test of no use.
    MUST(usable_bytes != 104);
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        MUST(!pthread_create(&threads[i], 0, fork_on, 0));
    for (int i = 0; i < THREADS; i++)
        pthread_join(threads[i], 0);
    puts("exact");
    return 0;
}
