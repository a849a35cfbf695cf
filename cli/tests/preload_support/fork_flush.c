/* A thread forks while others print what is swapped out, and one flushes all streams: who has the list of streams waits for a
 * stream whose holder waits for a page. */
#include "must.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20, PRINTING = 3, FORKS = 20 };

static char *memory;
static int is_done;

static int done(void) { return __atomic_load_n(&is_done, __ATOMIC_SEQ_CST); }

static void *print(void *argument) {
    FILE *file = tmpfile();
    MUST(file);
    for (unsigned random = 1; !done(); random = random * 1103515245 + 12345) {
        long at = random / 65536 % (BYTES / PAGE) * (long)PAGE;
        MUST(fprintf(file, "%s\n", memory + at) == 5);
        if (ftell(file) > 1 << 20) rewind(file);
    }
    MUST(fclose(file) == 0);
    return argument;
}

static void *flush(void *argument) {
    while (!done()) MUST(!fflush(0));
    return argument;
}

int main(void) {
    pthread_t threads[PRINTING + 1];
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) strcpy(memory + at, "text");
    for (int i = 0; i <= PRINTING; i++) MUST(!pthread_create(&threads[i], 0, i ? print : flush, 0));
    for (int i = 0; i < FORKS * TIMES; i++) {
        int status;
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) _exit(0);
        MUST(waitpid(child, &status, 0) == child && status == 0);
    }
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i <= PRINTING; i++) MUST(!pthread_join(threads[i], 0));
    puts("exact");
    return 0;
}
