// System calls and streams on buffers that are swapped out.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 24 << 20 };

static char *fresh(int fill) {
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (int i = 0; fill && i < BYTES; i++) memory[i] = (char)(i / 4096 * 31 + i * 7);
    return memory;
}
static void out(char *memory) { MUST(madvise(memory, BYTES, MADV_PAGEOUT) == 0); }
static void compare(const char *memory, size_t bytes) {
    for (size_t i = 0; i < bytes; i++)
        if (memory[i] != (char)(i / 4096 * 31 + i * 7)) { fprintf(stderr, "byte %zu\n", i); exit(1); }
}
static void *drain(void *end) {
    char *memory = fresh(0);
    size_t done = 0;
    ssize_t got;
    out(memory);
    while ((got = read((int)(long)end, memory + done, BYTES - done)) > 0) done += got;
    MUST(got == 0 && done == BYTES);
    compare(memory, BYTES);
    MUST(munmap(memory, BYTES) == 0);
    return 0;
}
static void files(const char *path, char *memory) {
    int file = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    out(memory);
    errno = 0;
    MUST(write(file, memory, BYTES) == BYTES && errno == 0);
    char *back = fresh(1);
    memset(back, 0, BYTES);
    out(back);
    MUST(pread(file, back, BYTES, 0) == BYTES);
    compare(back, BYTES);
    out(back);
    struct iovec parts[] = {{back, 100000}, {back + 100000, 900000 - 100000}};
    MUST(preadv(file, parts, 0, 0) == 0);
    MUST(lseek(file, 0, SEEK_SET) == 0);
    MUST(readv(file, parts, 2) == 900000);
    compare(back, 900000);
    // Long lists: what a file has room for is read and written by one call, whatever its parts.
    enum { PARTS = 40 };
    struct iovec many[PARTS];
    for (int i = 0; i < PARTS; i++) {
        size_t from = (size_t)BYTES / PARTS * i + i * 3, to = (size_t)BYTES / PARTS * (i + 1) + (i + 1) * 3;
        many[i] = (struct iovec){memory + from, (i + 1 < PARTS ? to : BYTES) - from};
    }
    out(memory);
    MUST(pwritev(file, many, PARTS, 0) == BYTES);
    for (int i = 0; i < PARTS; i++) many[i].iov_base = (char *)many[i].iov_base - memory + back;
    memset(back, 0, BYTES);
    out(back);
    MUST(preadv(file, many, PARTS, 0) == BYTES);
    compare(back, BYTES);
    MUST(lseek(file, 0, SEEK_SET) == 0);
    memset(back, 0, BYTES);
    out(back);
    MUST(preadv2(file, many, PARTS, -1, 0) == BYTES && lseek(file, 0, SEEK_CUR) == BYTES);
    compare(back, BYTES);
    static struct iovec too_many[1025];
    MUST(writev(file, too_many, 1025) == -1 && errno == EINVAL);
    close(file);
    FILE *stream = fopen(path, "w+");
    out(memory);
    MUST(fwrite(memory, 4, BYTES / 4, stream) == BYTES / 4);
    rewind(stream);
    memset(back, 0, BYTES);
    out(back);
    MUST(fread(back, 1, BYTES, stream) == BYTES);
    compare(back, BYTES);
    fclose(stream);
    // Names and results in swapped memory.
    strcpy(back + 5 * 4096, path);
    out(back);
    MUST(stat(back + 5 * 4096, (struct stat *)(back + 4096)) == 0);
    MUST(((struct stat *)(back + 4096))->st_size == BYTES);
    out(back);
    MUST(access(back + 5 * 4096, R_OK) == 0);
    MUST(munmap(back, BYTES) == 0);
}
/* Items of a stream that are as small as lines, and a little larger; the last one is not whole. */
static void lines(const char *path, char *memory, int mode) {
    enum { END = 1 << 20 };
    char *back = fresh(0);
    FILE *stream = fopen(path, "w+");
    MUST(setvbuf(stream, 0, mode, 4096) == 0);
    out(memory);
    for (size_t at = 0, bytes = 1; at < END; at += bytes, bytes = bytes % 701 + 1) {
        if (bytes > END - at) bytes = END - at;
        MUST(fwrite(memory + at, 1, bytes, stream) == bytes);
    }
    rewind(stream);
    out(back);
    // Of an item that is not whole the bytes come as well, and are not counted.
    for (size_t each = 1; !feof(stream); each = each % 97 + 1) {
        long at = ftell(stream);
        size_t whole = fread(back + at, each, 5, stream), bytes = ftell(stream) - at;
        MUST(whole == bytes / each && (whole == 5 || feof(stream)));
    }
    MUST(memcmp(memory, back, END) == 0 && back[END] == 0);
    MUST(fread(back, 1, 5, stream) == 0 && memcmp(memory, back, 5) == 0);
    fclose(stream);
    MUST(munmap(back, BYTES) == 0);
}
int main(int count, char **arguments) {
    MUST(count == 2);
    char *memory = fresh(1);
    files(arguments[1], memory);
    lines(arguments[1], memory, _IOFBF);
    lines(arguments[1], memory, _IONBF);
    int ends[2];
    pthread_t thread;
    MUST(pipe(ends) == 0);
    MUST(pthread_create(&thread, 0, drain, (void *)(long)ends[0]) == 0);
    out(memory);
    MUST(write(ends[1], memory, BYTES) == BYTES);
    close(ends[1]);
    pthread_join(thread, 0);
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    for (int i = 0; i < 50; i++) {
        char *from = memory + i * 40000, *to = memory + (BYTES / 2) + i * 40000;
        out(memory);
        MUST(send(ends[0], from, 30000, 0) == 30000);
        MUST(recv(ends[1], to, 30000, 0) == 30000);
        MUST(memcmp(from, to, 30000) == 0);
    }
    // The parts of a datagram are sent as one, however many they are.
    struct iovec pieces[100];
    for (int i = 0; i < 100; i++) pieces[i] = (struct iovec){memory + i * 5000, 300};
    out(memory);
    MUST(writev(ends[0], pieces, 100) == 30000);
    for (int i = 0; i < 100; i++) pieces[i].iov_base = memory + BYTES / 2 + i * 5000;
    out(memory);
    MUST(readv(ends[1], pieces, 100) == 30000);
    for (int i = 0; i < 100; i++) MUST(memcmp(memory + i * 5000, pieces[i].iov_base, 300) == 0);
    // What the program may not touch stays the kernel's to refuse.
    MUST(mprotect(memory, BYTES, PROT_NONE) == 0);
    MUST(write(ends[0], memory, 10) == -1 && errno == EFAULT);
    MUST(mprotect(memory, BYTES, PROT_READ | PROT_WRITE) == 0);
    strcpy(memory, "exit 7");
    char **words = (char **)(memory + 8192);
    words[0] = strcpy(memory + 12288, "sh"), words[1] = strcpy(memory + 16384, "-c"), words[2] = memory, words[3] = 0;
    out(memory);
    pid_t child = vfork();
    if (child == 0) { execvp(words[0], words); _exit(99); }
    int status;
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    close_range(3, 100000, 0);
    for (int fd = 3; fd < 2000; fd++) close(fd);
    out(memory);
    for (int i = 65536; i < BYTES / 2; i += 4096) MUST(memory[i] == (char)(i / 4096 * 31 + i * 7));
    puts("exact");
    return 0;
}
