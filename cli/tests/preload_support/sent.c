// io_uring's SEND_ZC of managed memory, which leaves before the bytes have gone.
#define _GNU_SOURCE
#include <linux/io_uring.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 96 << 20, SENT = 1 << 20, PAGE = 4096 };
static unsigned long word(size_t offset) { return 0xABCD000000000000UL | offset; }
static char *fresh(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}
static void submit(int socket, void *buffer) {
    struct io_uring_params p = {0};
    int fd = syscall(SYS_io_uring_setup, 8L, &p);
    if (fd < 0) { puts("io_uring is not allowed here"); exit(0); }
    char *queue = mmap(0, p.sq_off.array + p.sq_entries * 4, 3, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQ_RING);
    struct io_uring_sqe *entry = mmap(0, p.sq_entries * sizeof *entry, 3, MAP_SHARED | MAP_POPULATE, fd, IORING_OFF_SQES);
    MUST(queue != MAP_FAILED && entry != MAP_FAILED && (p.features & IORING_FEAT_SINGLE_MMAP));
    *entry = (struct io_uring_sqe){.opcode = IORING_OP_SEND_ZC, .fd = socket, .addr = (unsigned long)buffer, .len = SENT, .msg_flags = MSG_NOSIGNAL | MSG_DONTWAIT};
    *(unsigned *)(queue + p.sq_off.array) = 0;
    __atomic_store_n((unsigned *)(queue + p.sq_off.tail), 1, __ATOMIC_RELEASE);
    MUST(syscall(SYS_io_uring_enter, fd, 1L, 1L, (long)IORING_ENTER_GETEVENTS, 0L, 0L) == 1);
    MUST(((struct io_uring_cqe *)(queue + p.cq_off.cqes))->res == SENT);
}
int main(void) {
    char *load = fresh(BYTES), *buffer = fresh(SENT), *got = malloc(SENT);
    for (size_t i = 0; i < BYTES; i += 8) *(unsigned long *)(load + i) = 0x1111111111111111UL;
    for (size_t i = 0; i < SENT; i += 8) *(unsigned long *)(buffer + i) = word(i);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    socklen_t bytes = sizeof address;
    int small = 65536, big = 8 << 20, listener = socket(AF_INET, SOCK_STREAM, 0), from = socket(AF_INET, SOCK_STREAM, 0);
    MUST(setsockopt(listener, SOL_SOCKET, SO_RCVBUF, &small, sizeof small) == 0);
    MUST(setsockopt(from, SOL_SOCKET, SO_SNDBUFFORCE, &big, sizeof big) == 0);
    MUST(bind(listener, (void *)&address, bytes) == 0 && listen(listener, 1) == 0);
    MUST(getsockname(listener, (void *)&address, &bytes) == 0 && connect(from, (void *)&address, bytes) == 0);
    int to = accept(listener, 0, 0);
    submit(from, buffer);
    for (int round = 0; round < 3; round++)
        for (size_t i = 0; i < BYTES; i += PAGE) load[i + 64]++;
    for (size_t done = 0; done < SENT;) {
        ssize_t more = recv(to, got + done, SENT - done, 0);
        MUST(more > 0);
        done += more;
    }
    for (size_t i = 0; i < SENT; i += 8) MUST(*(unsigned long *)(got + i) == word(i) && *(unsigned long *)(buffer + i) == word(i));
    puts("exact");
    return 0;
}
