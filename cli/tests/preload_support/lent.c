// Lends pages to a pipe, makes them leave, and reads the pipe: its bytes are those that were there.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

enum { PAGE = 4096, LENT = 8, OTHERS = 24576, ROUNDS = 3 };

static void fail(const char *what) {
    perror(what);
    exit(1);
}

int main(void) {
    unsigned long *memory = mmap(NULL, (LENT + OTHERS) * (size_t)PAGE, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) fail("mmap");
    static unsigned long got[LENT * PAGE / 8];
    int fds[2];
    if (pipe(fds)) fail("pipe");
    for (unsigned long round = 1; round <= ROUNDS; round++) {
        for (long word = 0; word < LENT * PAGE / 8; word++) memory[word] = round << 32 | word;
        struct iovec part = {memory, LENT * PAGE};
        long lent = vmsplice(fds[1], &part, 1, 0);
        if (lent <= 0) fail("vmsplice");
        for (long page = 0; page < OTHERS; page++)
            memset((char *)memory + (LENT + page) * (long)PAGE, page + round, PAGE);
        long have = 0;
        while (have < lent) {
            long count = read(fds[0], (char *)got + have, lent - have);
            if (count <= 0) fail("read");
            have += count;
        }
        for (long word = 0; word < lent / 8; word++)
            if (got[word] != (round << 32 | word)) {
                printf("word %ld of round %lu is %lx\n", word, round, got[word]);
                return 1;
            }
        struct iovec one = {memory, 100};
        if (vmsplice(fds[1], &one, 1, SPLICE_F_NONBLOCK) != 100) fail("vmsplice without waiting");
        if (read(fds[0], got, sizeof got) != 100) fail("read what was left");
    }
    int sockets[2], yes = 1;
    if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets)) fail("socketpair");
    if (!setsockopt(sockets[0], SOL_SOCKET, SO_ZEROCOPY, &yes, sizeof yes)) {
        puts("SO_ZEROCOPY was granted");
        return 1;
    }
    puts("exact");
    return 0;
}
