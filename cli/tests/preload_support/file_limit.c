// A program that allows itself no files (RLIMIT_FSIZE), as daemons do that separate their privileges, and outgrows its budget.
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 4, PART = 7 << 20, WORDS = PART / 8 };

static uint64_t *memory;

static void *fill(void *argument) {
    uint64_t part = (uintptr_t)argument, *words = memory + part * WORDS;
    for (uint64_t turn = 0; turn < 2; turn++) {
        for (uint64_t at = 0; at < WORDS; at++) words[at] = (at * 0x9e3779b97f4a7c15) ^ (turn << 8) ^ part;
        for (uint64_t at = 0; at < WORDS; at++) MUST(words[at] == ((at * 0x9e3779b97f4a7c15) ^ (turn << 8) ^ part));
    }
    return 0;
}

static void fill_all(void) {
    pthread_t threads[THREADS];
    for (uintptr_t part = 0; part < THREADS; part++) MUST(!pthread_create(&threads[part], 0, fill, (void *)part));
    for (int part = 0; part < THREADS; part++) MUST(!pthread_join(threads[part], 0));
}

static void check_all(void) {
    for (uint64_t part = 0; part < THREADS; part++)
        for (uint64_t at = 0; at < WORDS; at += 8)
            MUST(memory[part * WORDS + at] == ((at * 0x9e3779b97f4a7c15) ^ (1 << 8) ^ part));
}

// before: the engine starts under the limit. after: the limit comes later. back: it is lowered for a while only.
int main(int count, char **arguments) {
    MUST(count == 2);
    memory = mmap(0, (size_t)THREADS * PART, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    if (strcmp(arguments[1], "before")) fill_all();
    struct rlimit now, none = {0, 0};
    MUST(!getrlimit(RLIMIT_FSIZE, &now));
    if (!strcmp(arguments[1], "back")) none.rlim_max = now.rlim_max;
    MUST(!setrlimit(RLIMIT_FSIZE, &none));
    fill_all();
    // The program's own files are limited as it has asked for.
    int fd = open("/var/tmp", O_TMPFILE | O_RDWR, 0600);
    pid_t child = fork();
    if (child == 0) {
        write(fd, "x", 1);
        _exit(1);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
    child = fork();
    if (child == 0) {
        check_all();
        fill_all();
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    check_all();
    if (none.rlim_max) {
        MUST(!setrlimit(RLIMIT_FSIZE, &now));
        fill_all();
        MUST(write(fd, "x", 1) == 1);
    }
    check_all();
    puts("exact");
    return 0;
}
