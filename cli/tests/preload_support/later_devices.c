// A thread with a descriptor table of its own has a file of its own at every number that the engine's later descriptors have:
// it is read and written as all others are, and keeps its file. Argument: the file. Told by lines.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 40 << 20, PAGE = 4096, NUMBERS = 1300, FILE_PAGES = BYTES / PAGE };
static char *memory;
static int file;

static void fill_file(const char *path) {
    char text[PAGE];
    file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(file >= 0);
    memset(text, 'a', PAGE);
    for (long page = 0; page < FILE_PAGES; page++) MUST(write(file, text, PAGE) == PAGE);
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

static void *apart(void *path) {
    char line[16];
    MUST(unshare(CLONE_FILES) == 0);
    fill_file(path);
    puts("filled");
    for (long round = 0; fgets(line, sizeof line, stdin) && strcmp(line, "end\n");) {
        for (int times = 0; times < 3; times++, round++)
            for (long at = 0; at < BYTES; at += PAGE) MUST(((long *)(memory + at))[0] == 7 && ((long *)(memory + at))[1]++ == round);
        look_at_file();
        puts("right");
    }
    return 0;
}

int main(int count, char **arguments) {
    MUST(count == 2);
    setvbuf(stdout, 0, _IOLBF, 0);
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = 7;
    pthread_t thread;
    MUST(!pthread_create(&thread, 0, apart, arguments[1]) && !pthread_join(thread, 0));
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == 7);
    puts("exact");
}
