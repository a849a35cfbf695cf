// A thread with a descriptor table of its own has a file of its own at every number that the engine's later descriptors have:
// it is read and written as all others are, and keeps its file. A child that it forks does not begin where such a number is
// something else in it, and has all pages where it is nothing. Argument: the file. Told by lines.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 40 << 20, PAGE = 4096, NUMBERS = 1300, HIGH = 900, FILE_PAGES = BYTES / PAGE };
static char *memory;
static int file;
// Of children that have begun.
static int *begun;

static void fill_file(const char *path) {
    char text[PAGE];
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0);
    memset(text, 'a', PAGE);
    for (long page = 0; page < FILE_PAGES; page++) MUST(write(file, text, PAGE) == PAGE);
}

static void take_numbers(void) {
    for (int number = 3; number < NUMBERS; number++)
        if (fcntl(number, F_GETFD) < 0) MUST(dup2(file, number) == number);
}

static void look_at_file(void) {
    char text[PAGE], right[PAGE];
    struct stat now;
    memset(right, 'a', PAGE);
    MUST(!fstat(file, &now) && now.st_size == BYTES);
    for (long page = 0; page < FILE_PAGES; page++)
        MUST(pread(file, text, PAGE, page * PAGE) == PAGE && !memcmp(text, right, PAGE));
}

static int is_of_file(int number) {
    struct stat there, own;
    MUST(!fstat(file, &own));
    return !fstat(number, &there) && there.st_ino == own.st_ino;
}

static void free_numbers(void) {
    for (int number = HIGH; number < NUMBERS; number++)
        if (number != file && is_of_file(number)) MUST(!close(number));
}

static void look_and_write(long round) {
    for (int times = 0; times < 3; times++)
        for (long at = 0; at < BYTES; at += PAGE) MUST(((long *)(memory + at))[0] == 7 && ((long *)(memory + at))[1]++ == round + times);
    look_at_file();
}

static int count_open(void) {
    int count = 0;
    for (int number = 0; number < NUMBERS; number++) count += fcntl(number, F_GETFD) >= 0;
    return count;
}

static int begins_and_is_right_in_child(long round) {
    int status, before = count_open();
    *begun = 0;
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        *begun = 1;
        look_and_write(round);
        _exit(0);
    }
    MUST(waitpid(child, &status, 0) == child);
    look_at_file();
    // What the fork needs is there for it alone.
    MUST(count_open() == before);
    // One that is not served ends before it begins, by itself.
    MUST(WIFEXITED(status) && !*begun == !!WEXITSTATUS(status));
    return *begun;
}

static void *apart(void *path) {
    char line[16];
    long round = 0;
    MUST(unshare(CLONE_FILES) == 0);
    fill_file(path);
    take_numbers();
    puts("filled");
    while (fgets(line, sizeof line, stdin) && strcmp(line, "end\n")) {
        if (!strcmp(line, "free\n")) {
            free_numbers();
            puts("free");
        } else if (!strcmp(line, "child\n")) {
            puts(begins_and_is_right_in_child(round) ? "right" : "refused");
        } else {
            look_and_write(round);
            round += 3;
            puts("right");
        }
    }
    return 0;
}

int main(int count, char **arguments) {
    MUST(count == 2);
    setvbuf(stdout, 0, _IOLBF, 0);
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    begun = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED && begun != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = 7;
    pthread_t thread;
    MUST(!pthread_create(&thread, 0, apart, arguments[1]) && !pthread_join(thread, 0));
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == 7);
    puts("exact");
}
