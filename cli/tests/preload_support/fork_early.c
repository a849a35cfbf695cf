/* A thread forks all the time, while the engine starts in another: in children of the first process, so that it starts
 * many times. */
#include "must.h"
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 96 << 20, TIMES_EACH = 8 };

static int is_done;

static void end_well(pid_t child) {
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

static void *fork_always(void *argument) {
    while (!__atomic_load_n(&is_done, __ATOMIC_SEQ_CST)) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) _exit(0);
        end_well(child);
    }
    return argument;
}

static void outgrow(void) {
    pthread_t forking;
    MUST(pthread_create(&forking, 0, fork_always, 0) == 0);
    usleep(5000);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at;
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at);
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    MUST(pthread_join(forking, 0) == 0);
}

int main(void) {
    for (int time = 0; time < TIMES_EACH * TIMES; time++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            outgrow();
            _exit(0);
        }
        end_well(child);
    }
    puts("exact");
    return 0;
}
