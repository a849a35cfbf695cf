// The main thread ends by pthread_exit, before or after the program outgrows its budget; another one goes on.
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 48 << 20 };
static volatile char *memory;

static void fill(void) {
    memory = malloc(BYTES);
    for (int i = 0; i < BYTES; i += 4096)
        memory[i] = (char)(i >> 12);
}

static void at_end(void) { puts("ended"); }

static void *go_on(void *before) {
    usleep(200000);
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
    pthread_t thread;
    pthread_create(&thread, 0, go_on, before ? (void *)1 : 0);
    pthread_detach(thread);
    pthread_exit(0);
}
