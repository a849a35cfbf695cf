// The main thread ends by pthread_exit or thrd_exit, or is cancelled, before or after the program outgrows its budget; another one goes on.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#include <unistd.h>

enum { BYTES = 48 << 20 };
static volatile char *memory;
static pthread_t first;
static int is_cancelled;

static void fill(void) {
    memory = malloc(BYTES);
    for (int i = 0; i < BYTES; i += 4096)
        memory[i] = (char)(i >> 12);
}

static void at_end(void) { puts("ended"); }

static void *go_on(void *before) {
    usleep(100000);
    if (is_cancelled)
        pthread_cancel(first);
    usleep(100000);
    if (!before)
        fill();
    for (int i = 0; i < BYTES; i += 4096)
        if (memory[i] != (char)(i >> 12))
            _exit(1);
    puts("exact");
    return 0;
}

int main(int count, char **arguments) {
    int before = count > 1 && !strcmp(arguments[1], "before");
    atexit(at_end);
    if (before)
        fill();
    const char *how = count > 2 ? arguments[2] : "";
    is_cancelled = !strcmp(how, "cancelled");
    first = pthread_self();
    pthread_t thread;
    pthread_create(&thread, 0, go_on, before ? (void *)1 : 0);
    pthread_detach(thread);
    while (is_cancelled)
        pause();
    if (!strcmp(how, "thrd"))
        thrd_exit(0);
    pthread_exit(0);
}
