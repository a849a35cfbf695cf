// What POSIX aio does beside reading and writing: it tells by signals and functions, of one request and of lists, waits for a
// time, cancels, reads pipes, appends in order, and refuses. Prints "exact" if it does all of that while memory keeps leaving.
#define _GNU_SOURCE
#include "must.h"
#include <aio.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { BYTES = 32 << 20, PAGE = 4096, LINES = 200, LINE = 64 };

static char *memory;
static int is_over, signals, calls, value;

static void *disturb(void *argument) {
    while (!__atomic_load_n(&is_over, __ATOMIC_SEQ_CST))
        for (long i = 0; i < BYTES; i += PAGE) ++*(volatile char *)(memory + i);
    return argument;
}

static void on_signal(int number, siginfo_t *info, void *context) {
    (void)number, (void)context;
    if (info->si_code == SI_ASYNCIO && info->si_pid == getpid()) value += info->si_value.sival_int;
    __atomic_fetch_add(&signals, 1, __ATOMIC_SEQ_CST);
}

static void on_end(union sigval told) {
    MUST(malloc(1) && told.sival_int == 7);
    __atomic_fetch_add(&calls, 1, __ATOMIC_SEQ_CST);
}

static void until(int *counter, int wanted) {
    for (int i = 0; i < 20000 && __atomic_load_n(counter, __ATOMIC_SEQ_CST) < wanted; i++) usleep(1000);
    MUST(__atomic_load_n(counter, __ATOMIC_SEQ_CST) == wanted);
}

static struct aiocb *request(int fd, void *buffer, long bytes) {
    struct aiocb *one = calloc(1, PAGE);
    MUST(one);
    one->aio_fildes = fd;
    one->aio_buf = buffer;
    one->aio_nbytes = bytes;
    one->aio_sigevent.sigev_notify = SIGEV_NONE;
    return one;
}

static long finish(struct aiocb *one) {
    const struct aiocb *list[] = {0, one};
    while (aio_error(one) == EINPROGRESS) MUST(!aio_suspend(list, 2, 0) || errno == EINTR);
    long result = aio_return(one);
    free(one);
    return result;
}

static int temporary(int flags) {
    char name[] = "/var/tmp/aio-XXXXXX";
    int fd = mkostemp(name, flags);
    MUST(fd >= 0 && !unlink(name));
    return fd;
}

static void tell_of_one(void) {
    int fd = temporary(0);
    struct aiocb *one = request(fd, "0123456789", 10), *other = request(fd, "abcdefghij", 10);
    one->aio_sigevent = (struct sigevent){.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 5};
    other->aio_sigevent =
        (struct sigevent){.sigev_notify = SIGEV_THREAD, .sigev_notify_function = on_end, .sigev_value.sival_int = 7};
    other->aio_offset = 10;
    MUST(!aio_write(one) && !aio_write(other));
    until(&signals, 1);
    until(&calls, 1);
    MUST(value == 5 && finish(one) == 10 && finish(other) == 10);
    char text[21] = "";
    MUST(pread(fd, text, 20, 0) == 20 && !strcmp(text, "0123456789abcdefghij") && !close(fd));
}

static void tell_of_many(void) {
    int fd = temporary(O_APPEND);
    struct aiocb *list[LINES + 1] = {0};
    for (int i = 0; i < LINES; i++) {
        char *line = malloc(LINE);
        memset(line, i, LINE);
        list[i] = request(fd, line, LINE);
        list[i]->aio_lio_opcode = LIO_WRITE;
    }
    struct sigevent event = {.sigev_notify = SIGEV_SIGNAL, .sigev_signo = SIGUSR1, .sigev_value.sival_int = 100};
    MUST(!lio_listio(LIO_NOWAIT, list, LINES + 1, &event));
    until(&signals, 2);
    MUST(value == 105);
    for (int i = 0; i < LINES; i++) {
        MUST(!aio_error(list[i]));
        free((void *)list[i]->aio_buf);
        MUST(finish(list[i]) == LINE);
    }
    unsigned char bytes[LINE];
    for (int i = 0; i < LINES; i++) {
        MUST(pread(fd, bytes, LINE, i * LINE) == LINE);
        for (int at = 0; at < LINE; at++) MUST(bytes[at] == i % 256);
    }
    MUST(!close(fd));
}

static void wait_and_cancel(void) {
    int ends[2];
    MUST(!pipe(ends));
    char *buffers = malloc(2 * PAGE);
    struct aiocb *first = request(ends[0], buffers, 5), *second = request(ends[0], buffers + PAGE, 5);
    MUST(!aio_read(first) && !aio_read(second));
    const struct aiocb *list[] = {first, second};
    struct timespec soon = {.tv_nsec = 50000000};
    MUST(aio_suspend(list, 2, &soon) == -1 && errno == EAGAIN);
    MUST(aio_cancel(ends[0], second) == AIO_CANCELED && aio_error(second) == ECANCELED && finish(second) == -1);
    MUST(aio_cancel(ends[0], 0) == AIO_NOTCANCELED && aio_error(first) == EINPROGRESS);
    MUST(write(ends[1], "hello", 5) == 5);
    MUST(finish(first) == 5 && !memcmp(buffers, "hello", 5));
    MUST(aio_cancel(ends[0], 0) == AIO_ALLDONE && !close(ends[0]) && !close(ends[1]));
    MUST(aio_cancel(ends[0], 0) == -1 && errno == EBADF);
    free(buffers);
}

static void refuse(void) {
    struct aiocb *one = request(-1, memory, 5);
    one->aio_lio_opcode = LIO_READ;
    MUST(lio_listio(LIO_WAIT, &one, 1, 0) == -1 && errno == EIO && aio_error(one) == EBADF && finish(one) == -1);
    MUST(lio_listio(5, &one, 1, 0) == -1 && errno == EINVAL);
    one = request(1, memory, 5);
    MUST(aio_fsync(77, one) == -1 && errno == EINVAL);
    one->aio_fildes = -1;
    MUST(aio_fsync(O_SYNC, one) == -1 && errno == EBADF);
    free(one);
}

int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    struct sigaction action = {.sa_sigaction = on_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
    MUST(!sigaction(SIGUSR1, &action, 0));
    pthread_t thread;
    MUST(!pthread_create(&thread, 0, disturb, 0));
    for (int time = 0; time < 20; time++) {
        signals = calls = value = 0;
        tell_of_one();
        tell_of_many();
        wait_and_cancel();
        refuse();
        usleep(20000);
    }
    __atomic_store_n(&is_over, 1, __ATOMIC_SEQ_CST);
    MUST(!pthread_join(thread, 0));
    puts("exact");
    return 0;
}
