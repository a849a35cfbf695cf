// Reads and writes by POSIX aio, by all its calls, on requests and buffers that have been swapped out and while more is;
// in a child as well, which has no request of its parent's. Prints "exact" if every byte is as it should be.
#define _GNU_SOURCE
#include "must.h"
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 48 << 20, PIECE = 256 << 10, PIECES = BYTES / PIECE, PAGE = 4096, AT_ONCE = 8, MANY = 300 };

static char *memory, *other;
static struct aiocb *requests;
static int fd, is_over;

static char *map(long bytes) {
    char *at = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(at != MAP_FAILED);
    return at;
}

static unsigned long word_at(long i) { return (i + 1) * 0x9e3779b97f4a7c15ul; }

static void check(long first, long bytes) {
    for (long i = first; i < first + bytes; i += 512) MUST(*(unsigned long *)(memory + i) == word_at(i));
}

// Keeps pages going.
static void *disturb(void *argument) {
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST))
        for (long i = 0; i < BYTES / 2; i += PAGE) ++*(long *)(other + i);
    return argument;
}

// A page for each, seldom used.
static struct aiocb *request(long index) { return (struct aiocb *)((char *)requests + index % AT_ONCE * PAGE); }

static struct aiocb *prepare(long piece, int operation) {
    struct aiocb *one = request(piece);
    memset(one, 0, sizeof *one);
    one->aio_fildes = fd;
    one->aio_lio_opcode = operation;
    one->aio_buf = memory + piece * PIECE;
    one->aio_nbytes = PIECE;
    one->aio_offset = piece * PIECE;
    return one;
}

static void finish(struct aiocb *one) {
    const struct aiocb *list[] = {one};
    while (aio_error(one) == EINPROGRESS) MUST(!aio_suspend(list, 1, 0) || errno == EINTR);
    MUST(!aio_error(one) && aio_return(one) == PIECE);
}

static void one_by_one(int operation) {
    for (long piece = 0; piece < PIECES; piece += AT_ONCE) {
        for (long i = piece; i < piece + AT_ONCE; i++) {
            struct aiocb *one = prepare(i, operation);
            MUST(!(operation == LIO_READ ? aio_read(one) : aio_write(one)));
        }
        for (long i = piece; i < piece + AT_ONCE; i++) finish(request(i));
    }
}

static void by_lists(int operation) {
    for (long piece = 0; piece < PIECES; piece += AT_ONCE) {
        struct aiocb *list[AT_ONCE];
        for (long i = 0; i < AT_ONCE; i++) list[i] = prepare(piece + i, operation);
        MUST(!lio_listio(piece / AT_ONCE % 2 ? LIO_WAIT : LIO_NOWAIT, list, AT_ONCE, 0));
        for (long i = 0; i < AT_ONCE; i++) finish(list[i]);
    }
}

// More at once than are looked at one by one, and most of them not asked for until all have ended.
static void many(int operation) {
    static struct aiocb all[MANY];
    for (long i = 0; i < MANY; i++) {
        all[i] = *prepare(0, operation);
        all[i].aio_buf = memory + i * PAGE;
        all[i].aio_offset = i * PAGE;
        all[i].aio_nbytes = PAGE;
        MUST(!(operation == LIO_READ ? aio_read(&all[i]) : aio_write(&all[i])));
    }
    for (long i = MANY - 1; i >= 0; i--) {
        const struct aiocb *list[] = {&all[i]};
        while (aio_error(&all[i]) == EINPROGRESS) MUST(!aio_suspend(list, 1, 0) || errno == EINTR);
        MUST(aio_return(&all[i]) == PAGE);
    }
}

static void clear(void) {
    for (long i = 0; i < BYTES; i += 8) *(long *)(memory + i) = -1;
}

int main(void) {
    memory = map(BYTES);
    other = map(BYTES / 2);
    requests = (struct aiocb *)map(AT_ONCE * PAGE);
    char name[] = "/var/tmp/aio-XXXXXX";
    fd = mkstemp(name);
    MUST(fd >= 0 && !unlink(name));
    for (long i = 0; i < BYTES; i += 8) *(unsigned long *)(memory + i) = word_at(i);
    pthread_t thread;
    MUST(!pthread_create(&thread, 0, disturb, 0));
    one_by_one(LIO_WRITE);
    clear();
    one_by_one(LIO_READ);
    check(0, BYTES);
    by_lists(LIO_WRITE);
    clear();
    // Requests are on their way.
    for (long i = 0; i < AT_ONCE; i++) MUST(!aio_read(prepare(i, LIO_READ)));
    int status, child = fork();
    if (!child) {
        clear();
        for (long i = 0; i < BYTES; i += 512) MUST(*(long *)(memory + i) == -1);
        _exit(3);
    }
    MUST(child > 0 && waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    for (long i = 0; i < AT_ONCE; i++) finish(request(i));
    check(0, AT_ONCE * PIECE);
    by_lists(LIO_READ);
    check(0, BYTES);
    many(LIO_WRITE);
    clear();
    many(LIO_READ);
    check(0, MANY * PAGE);
    struct aiocb *last = prepare(0, LIO_NOP);
    MUST(!aio_fsync(O_SYNC, last));
    while (aio_error(last) == EINPROGRESS) usleep(1000);
    MUST(!aio_return(last));
    // What is refused is not on its way.
    last->aio_reqprio = -1;
    MUST(aio_read(last) == -1 && errno == EINVAL);
    is_over = 1;
    MUST(!pthread_join(thread, 0));
    puts("exact");
    return 0;
}
