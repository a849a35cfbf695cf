// Reads a file past the page cache into memory that is four times the budget, again and again, while another
// thread walks over the rest: what the device has written must be there.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { PAGE = 4096, FILE_PAGES = 2048, PIECE = 64, WALK_PAGES = 14336, ROUNDS = 2 * TIMES };

static unsigned char *walked;
static volatile int done;

static void *walk(void *unused) {
    for (unsigned long turn = 1; !done; turn++)
        for (long page = 0; page < WALK_PAGES && !done; page++)
            *(unsigned long *)(walked + page * PAGE) = turn;
    return unused;
}

static void fail(const char *what) {
    perror(what);
    exit(1);
}

static void *memory(long pages) {
    void *found = mmap(NULL, pages * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED) fail("mmap");
    return found;
}

int main(int count, char **arguments) {
    if (count < 2) return 2;
    int fd = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC, 0600);
    unsigned long *page = memory(1);
    for (long number = 0; number < FILE_PAGES; number++) {
        for (int word = 0; word < PAGE / 8; word++) page[word] = number * 512 + word + 1;
        if (write(fd, page, PAGE) != PAGE) fail("write");
    }
    if (fsync(fd) || close(fd)) fail("fsync");
    fd = open(arguments[1], O_RDONLY | O_DIRECT);
    if (fd < 0) fail("open");
    unsigned char *buffer = memory(FILE_PAGES);
    walked = memory(WALK_PAGES);
    pthread_t walker;
    if (pthread_create(&walker, NULL, walk, NULL)) fail("pthread_create");
    for (int round = 0; round < ROUNDS; round++) {
        memset(buffer, round, FILE_PAGES * PAGE);
        for (long from = 0; from < FILE_PAGES; from += PIECE)
            if (pread(fd, buffer + from * PAGE, PIECE * PAGE, from * PAGE) != PIECE * PAGE) fail("pread");
        for (long number = 0; number < FILE_PAGES; number++)
            for (int word = 0; word < PAGE / 8; word++)
                if (((unsigned long *)(buffer + number * PAGE))[word] != (unsigned long)number * 512 + word + 1) {
                    fprintf(stderr, "round %d: page %ld word %d is wrong\n", round, number, word);
                    return 1;
                }
    }
    done = 1;
    pthread_join(walker, NULL);
    puts("exact");
}
