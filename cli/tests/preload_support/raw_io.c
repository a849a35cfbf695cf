// Reads and writes by aio and, if asked for, by io_uring, as their static libraries make them: with calls of their own, on
// buffers that have been swapped out. Prints "exact" if every byte is as it should be.
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <linux/io_uring.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 48 << 20, PIECE = 256 << 10, PIECES = BYTES / PIECE };

static char *map(long bytes) {
    char *memory = (char *)RAW(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST((unsigned long)memory < -4096ul);
    return memory;
}

static unsigned long word_at(long i) { return (i + 1) * 0x9e3779b97f4a7c15ul; }

static void check(const char *memory) {
    for (long i = 0; i < BYTES; i += 512) MUST(*(unsigned long *)(memory + i) == word_at(i));
}

static aio_context_t context;

static void by_aio(int fd, char *memory, long piece, int is_write) {
    struct iocb request = {
        .aio_fildes = fd,
        .aio_lio_opcode = is_write ? IOCB_CMD_PWRITE : IOCB_CMD_PREAD,
        .aio_buf = (unsigned long)(memory + piece * PIECE),
        .aio_nbytes = PIECE,
        .aio_offset = piece * PIECE,
    };
    struct iocb *list = &request;
    struct io_event event;
    MUST(RAW(SYS_io_submit, context, 1, &list) == 1);
    MUST(RAW(SYS_io_getevents, context, 1, 1, &event, 0) == 1);
    MUST(event.res == PIECE);
}

static int ring_fd;
static unsigned *sq_tail, *sq_array, *cq_head, *cq_tail, mask;
static struct io_uring_sqe *entries;
static struct io_uring_cqe *results;

static void make_ring(void) {
    struct io_uring_params params;
    memset(&params, 0, sizeof params);
    ring_fd = RAW(SYS_io_uring_setup, 4, &params);
    MUST(ring_fd >= 0 && params.features & IORING_FEAT_SINGLE_MMAP);
    long bytes = params.cq_off.cqes + params.cq_entries * sizeof *results;
    if (bytes < params.sq_off.array + params.sq_entries * 4l) bytes = params.sq_off.array + params.sq_entries * 4l;
    char *ring = (char *)RAW(SYS_mmap, 0, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, ring_fd, IORING_OFF_SQ_RING);
    entries = (void *)RAW(SYS_mmap, 0, params.sq_entries * sizeof *entries, PROT_READ | PROT_WRITE, MAP_SHARED,
                          ring_fd, IORING_OFF_SQES);
    MUST((unsigned long)ring < -4096ul && (unsigned long)entries < -4096ul);
    sq_tail = (unsigned *)(ring + params.sq_off.tail);
    sq_array = (unsigned *)(ring + params.sq_off.array);
    cq_head = (unsigned *)(ring + params.cq_off.head);
    cq_tail = (unsigned *)(ring + params.cq_off.tail);
    results = (struct io_uring_cqe *)(ring + params.cq_off.cqes);
    mask = *(unsigned *)(ring + params.sq_off.ring_mask);
}

static int answer_of(int operation, int fd, char *memory, long piece) {
    unsigned at = *sq_tail & mask;
    entries[at] = (struct io_uring_sqe){
        .opcode = operation,
        .fd = fd,
        .addr = (unsigned long)(memory + piece * PIECE),
        .len = PIECE,
        .off = piece * PIECE,
    };
    sq_array[at] = at;
    __atomic_store_n(sq_tail, *sq_tail + 1, __ATOMIC_RELEASE);
    MUST(RAW(SYS_io_uring_enter, ring_fd, 1, 1, IORING_ENTER_GETEVENTS, 0, 0) == 1);
    unsigned head = *cq_head;
    MUST(__atomic_load_n(cq_tail, __ATOMIC_ACQUIRE) == head + 1);
    // The queue of results has twice the entries.
    int result = results[head & (2 * mask + 1)].res;
    __atomic_store_n(cq_head, head + 1, __ATOMIC_RELEASE);
    return result;
}

static void by_ring(int fd, char *memory, long piece, int is_write) {
    MUST(answer_of(is_write ? IORING_OP_WRITE : IORING_OP_READ, fd, memory, piece) == PIECE);
}

// Where the kernel cannot bring memory in, a request fails or ends early, and has done right what it has done.
static void as_far_as_it_goes(int fd, char *memory, long piece, int is_write) {
    int done = answer_of(is_write ? IORING_OP_WRITE : IORING_OP_READ, fd, memory, piece);
    MUST(done == -EFAULT || (done >= 0 && done <= PIECE));
    char *from = memory + piece * PIECE;
    for (done = done < 0 ? 0 : done; done < PIECE;) {
        long at = piece * PIECE + done, bytes = PIECE - done;
        long count = RAW(is_write ? SYS_pwrite64 : SYS_pread64, fd, from + done, bytes, at);
        MUST(count > 0);
        done += count;
    }
}

// The kernel pins registered buffers, which have been swapped out by then.
static void by_registered(int fd, char *memory, long piece, int is_write) {
    struct iovec buffer = {memory + piece * PIECE, PIECE};
    MUST(!RAW(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS, &buffer, 1));
    MUST(answer_of(is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, fd, memory, piece) == PIECE);
    MUST(!RAW(SYS_io_uring_register, ring_fd, IORING_UNREGISTER_BUFFERS, 0, 0));
}

// The same by way of a table that has no buffers at first.
static void by_updated(int fd, char *memory, long piece, int is_write) {
    struct iovec buffer = {memory + piece * PIECE, PIECE};
    struct io_uring_rsrc_register empty = {.nr = 1, .flags = IORING_RSRC_REGISTER_SPARSE};
    struct io_uring_rsrc_update2 update = {.nr = 1, .data = (unsigned long)&buffer};
    MUST(RAW(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS2, 0, sizeof empty) == -EFAULT);
    MUST(!RAW(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS2, &empty, sizeof empty));
    MUST(RAW(SYS_io_uring_register, ring_fd, IORING_REGISTER_BUFFERS_UPDATE, &update, sizeof update) == 1);
    MUST(answer_of(is_write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED, fd, memory, piece) == PIECE);
    MUST(!RAW(SYS_io_uring_register, ring_fd, IORING_UNREGISTER_BUFFERS, 0, 0));
}

static void there_and_back(const char *name, int flags, void (*transfer)(int, char *, long, int)) {
    int fd = open(name, O_RDWR | O_CREAT | O_TRUNC | flags, 0600);
    MUST(fd >= 0);
    char *memory = map(BYTES), *copy = map(BYTES);
    for (long i = 0; i < BYTES; i += 512) *(unsigned long *)(memory + i) = word_at(i);
    memset(copy, 1, BYTES);
    for (long piece = 0; piece < PIECES; piece++) transfer(fd, memory, piece, 1);
    for (long piece = 0; piece < PIECES; piece++) transfer(fd, copy, piece, 0);
    check(memory);
    check(copy);
    MUST(!RAW(SYS_munmap, memory, BYTES) && !RAW(SYS_munmap, copy, BYTES) && !close(fd) && !unlink(name));
}

int main(int count, char **arguments) {
    MUST(count == 3 && !RAW(SYS_io_setup, 4, &context));
    there_and_back(arguments[2], 0, by_aio);
    there_and_back(arguments[2], O_DIRECT, by_aio);
    MUST(!RAW(SYS_io_destroy, context));
    if (!strcmp(arguments[1], "ring")) {
        make_ring();
        there_and_back(arguments[2], 0, by_ring);
        there_and_back(arguments[2], O_DIRECT, by_ring);
    }
    if (!strcmp(arguments[1], "limited-ring")) {
        make_ring();
        there_and_back(arguments[2], 0, as_far_as_it_goes);
        there_and_back(arguments[2], 0, by_registered);
        there_and_back(arguments[2], O_DIRECT, by_registered);
        there_and_back(arguments[2], 0, by_updated);
    }
    puts("exact");
    return 0;
}
