/* A program limits its own address space: there is room for threads, files and an engine all the same, and what it asks for
 * is what it has set; so for its children, and programs that they become. */
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20 };
static const rlim_t LIMIT = 2ul << 30;

static void *nothing(void *argument) { return argument; }

static void has_room(void) {
    struct rlimit now, then;
    pthread_t thread;
    MUST(getrlimit(RLIMIT_AS, &now) == 0 && now.rlim_cur == LIMIT && now.rlim_max == LIMIT);
    MUST(prlimit(0, RLIMIT_AS, &now, &then) == 0 && then.rlim_cur == LIMIT && then.rlim_max == LIMIT);
    MUST(pthread_create(&thread, 0, nothing, 0) == 0 && pthread_join(thread, 0) == 0);
    int file = open("/proc/self/exe", O_RDONLY);
    MUST(file >= 0);
    void *mapped = mmap(0, PAGE, PROT_READ, MAP_PRIVATE, file, 0);
    MUST(mapped != MAP_FAILED && munmap(mapped, PAGE) == 0 && close(file) == 0);
}

int main(int count, char **arguments) {
    struct rlimit limit = {LIMIT, LIMIT}, files, files_then;
    if (count > 1) {
        has_room();
        return 0;
    }
    MUST(getrlimit(RLIMIT_AS, &files) == 0 && files.rlim_cur == RLIM_INFINITY);
    MUST(setrlimit(RLIMIT_AS, &limit) == 0);
    has_room();
    char *memory = malloc(BYTES);
    MUST(memory);
    for (long at = 0; at < BYTES; at += PAGE) memory[at] = (char)(at / PAGE);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == (char)(at / PAGE));
    has_room();
    MUST(getrlimit(RLIMIT_NOFILE, &files) == 0);
    MUST(setrlimit(RLIMIT_NOFILE, &files) == 0 && getrlimit(RLIMIT_NOFILE, &files_then) == 0);
    MUST(memcmp(&files, &files_then, sizeof files) == 0);
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        has_room();
        execl("/proc/self/exe", arguments[0], "again", (char *)0);
        _exit(1);
    }
    MUST(waitpid(child, &status, 0) == child && status == 0);
    MUST(setrlimit(RLIMIT_AS, &(struct rlimit){LIMIT, 2 * LIMIT}) == -1 || getuid() == 0);
    puts("exact");
    return 0;
}
