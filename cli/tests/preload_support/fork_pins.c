/* What calls of the parent's other threads keep in RAM, and what the parent has locked, takes no room in the child. */
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, FILLED = 48 << 20, READ = 1 << 20, READERS = 6, LOCKED = 7 << 20, GENERATIONS = 3 };

static int ends[2];

static char *map(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

static pid_t readers_ids[READERS];

static void *wait_for_end(void *memory) {
    static int count;
    __atomic_store_n(&readers_ids[__atomic_fetch_add(&count, 1, __ATOMIC_RELAXED)], gettid(), __ATOMIC_RELEASE);
    MUST(read(ends[0], memory, READ) == 0);
    return 0;
}

/* Until the kernel says of every reader that it waits in read: what it reads into is kept by then. */
static void wait_for_readers(void) {
    for (int i = 0; i < READERS; i++) {
        char path[64], call[16] = "", wanted[16];
        snprintf(wanted, sizeof wanted, "0 0x%x ", ends[0]);
        do {
            usleep(1000);
            snprintf(path, sizeof path, "/proc/self/task/%d/syscall", __atomic_load_n(&readers_ids[i], __ATOMIC_ACQUIRE));
            int file = open(path, O_RDONLY | O_CLOEXEC);
            if (file < 0) continue;
            MUST(read(file, call, sizeof call - 1) > 0);
            close(file);
        } while (strncmp(call, wanted, strlen(wanted)) != 0);
    }
}

static int lock_and_unlock(void) {
    char *memory = map(LOCKED);
    int failure = mlock(memory, LOCKED) == 0 ? 0 : errno;
    MUST(munmap(memory, LOCKED) == 0);
    return failure;
}

static void end_well(pid_t child) {
    int status;
    MUST(child > 0 && waitpid(child, &status, 0) == child && status == 0);
}

/* In processes of more and more generations. */
static void fork_and_lock(const char *filled, int generations) {
    pid_t child = fork();
    if (child == 0) {
        close(ends[1]);
        MUST(lock_and_unlock() == 0);
        for (long at = 0; at < FILLED; at += PAGE) MUST(*(const long *)(filled + at) == at + 1);
        if (generations > 1) fork_and_lock(filled, generations - 1);
        _exit(0);
    }
    end_well(child);
}

int main(int count, char **arguments) {
    MUST(pipe(ends) == 0 && count == 2);
    char *filled = map(FILLED);
    for (long at = 0; at < FILLED; at += PAGE) *(long *)(filled + at) = at + 1;
    if (strcmp(arguments[1], "locked") == 0) {
        char *locked = map(LOCKED);
        MUST(mlock(locked, LOCKED) == 0);
        MUST(lock_and_unlock() == ENOMEM);
        fork_and_lock(filled, GENERATIONS);
        MUST(lock_and_unlock() == ENOMEM);
    } else {
        pthread_t readers[READERS];
        for (int i = 0; i < READERS; i++) MUST(pthread_create(&readers[i], 0, wait_for_end, map(READ)) == 0);
        wait_for_readers();
        MUST(lock_and_unlock() == ENOMEM);
        fork_and_lock(filled, GENERATIONS);
        MUST(lock_and_unlock() == ENOMEM);
        close(ends[1]);
        for (int i = 0; i < READERS; i++) MUST(pthread_join(readers[i], 0) == 0);
        MUST(lock_and_unlock() == 0);
    }
    puts("exact");
    return 0;
}
