// Messages that are longer than what a call keeps in RAM at once, in memory that is swapped out: a stream's bytes come as
// many as were asked for, and a datagram stays one. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <pthread.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { BYTES = 24 << 20, LONG = 3 << 20, DATAGRAM = 1280 << 10, PARTS = 24, MANY = 64, EACH = 32 << 10 };
static char *memory, *source;
static char outside[LONG];

static char byte_at(long i) { return (char)(i / 4096 * 31 + i * 7); }
static char *map(void) {
    char *new = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(new != MAP_FAILED);
    memset(new, 1, BYTES);
    return new;
}
static void out(void) { MUST(madvise(memory, BYTES, MADV_PAGEOUT) == 0 && madvise(source, BYTES, MADV_PAGEOUT) == 0); }
static void check(const char *from, long bytes) {
    for (long i = 0; i < bytes; i++) MUST(from[i] == byte_at(i));
    memset((char *)from, 0, bytes);
}

// A list of parts that reaches over `bytes` bytes, for a message.
static struct iovec parts[PARTS];
static struct msghdr message_of(char *from, long bytes) {
    for (int i = 0; i < PARTS; i++) {
        long start = bytes / PARTS * i, end = i + 1 < PARTS ? bytes / PARTS * (i + 1) : bytes;
        parts[i] = (struct iovec){from + start, end - start};
    }
    return (struct msghdr){.msg_iov = parts, .msg_iovlen = PARTS};
}

static int streams[2];
static void *feed(void *count) {
    // Memory that no test sends out, in one call.
    static char bytes[LONG];
    for (long i = 0; i < LONG; i++) bytes[i] = byte_at(i);
    for (long i = 0; i < (long)count; i++) MUST(write(streams[0], bytes, LONG) == LONG);
    return 0;
}
static void *drain(void *bytes) {
    for (long i = 0; i < (long)bytes;) {
        static char buffer[65536];
        long got = read(streams[1], buffer, sizeof buffer);
        MUST(got > 0);
        for (long j = 0; j < got; j++, i++) MUST(buffer[j] == byte_at(i));
    }
    return 0;
}

static void whole_streams(void) {
    pthread_t thread;
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, streams) == 0);
    MUST(pthread_create(&thread, 0, feed, (void *)6) == 0);
    int in = streams[1];
    MUST((out(), recv(in, memory, LONG, MSG_WAITALL)) == LONG);
    check(memory, LONG);
    // The same bytes twice: what is looked at is not taken.
    MUST((out(), recv(in, memory, 100, MSG_WAITALL | MSG_PEEK)) == 100);
    check(memory, 100);
    MUST(recv(in, outside, LONG, MSG_WAITALL) == LONG);
    check(outside, LONG);
    MUST((out(), syscall(SYS_recvfrom, in, memory, (long)LONG, (long)MSG_WAITALL, 0L, 0L)) == LONG);
    check(memory, LONG);
    MUST((out(), RAW(SYS_recvfrom, in, memory, LONG, MSG_WAITALL, 0, 0)) == LONG);
    check(memory, LONG);
    struct msghdr message = message_of(memory, LONG);
    MUST((out(), recvmsg(in, &message, MSG_WAITALL)) == LONG);
    check(memory, LONG);
    MUST((out(), RAW(SYS_recvmsg, in, &message, MSG_WAITALL)) == LONG);
    check(memory, LONG);
    MUST(pthread_join(thread, 0) == 0);
    // As many as are asked for are sent, with what comes beside them once.
    MUST(pthread_create(&thread, 0, drain, (void *)(long)BYTES) == 0);
    message = message_of(source, BYTES);
    MUST((out(), sendmsg(streams[0], &message, 0)) == BYTES);
    MUST(pthread_join(thread, 0) == 0);
    close(streams[0]), close(streams[1]);
}

// A descriptor comes with the first bytes, and only there.
static void descriptors(void) {
    union { struct cmsghdr header; char room[CMSG_SPACE(sizeof(int))]; } beside = {.header = {CMSG_LEN(sizeof(int)), SOL_SOCKET, SCM_RIGHTS}};
    int number = 0;
    memcpy(CMSG_DATA(&beside.header), &number, sizeof number);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, streams) == 0);
    int big = LONG;
    setsockopt(streams[0], SOL_SOCKET, SO_SNDBUF, &big, sizeof big);
    struct msghdr message = message_of(source, LONG);
    message.msg_control = &beside, message.msg_controllen = sizeof beside;
    long sent = (out(), sendmsg(streams[0], &message, MSG_DONTWAIT));
    MUST(sent > 0 && shutdown(streams[0], SHUT_WR) == 0);
    int found = 0;
    for (long done = 0; done < sent;) {
        message = message_of(memory + done, LONG - done);
        message.msg_control = &beside, message.msg_controllen = sizeof beside;
        long got = (out(), recvmsg(streams[1], &message, MSG_WAITALL));
        MUST(got > 0 && (message.msg_controllen == 0 || done == 0));
        found += message.msg_controllen > 0;
        done += got;
    }
    MUST(found == 1);
    check(memory, sent);
    close(streams[0]), close(streams[1]);
}

// Who may not have room for a long datagram sends a shorter one.
static long room_for_datagrams(int fd) {
    int wanted = 4 * DATAGRAM, got;
    socklen_t length = sizeof got;
    if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &wanted, sizeof wanted))
        MUST(errno == EPERM && setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &wanted, sizeof wanted) == 0);
    MUST(getsockopt(fd, SOL_SOCKET, SO_SNDBUF, &got, &length) == 0);
    return got > DATAGRAM + 65536 ? DATAGRAM : 100000;
}

static void datagrams(int type) {
    int ends[2];
    MUST(socketpair(AF_UNIX, type, 0, ends) == 0);
    long bytes = room_for_datagrams(ends[0]);
    // The buffer has more room than the datagram needs.
    struct msghdr message = message_of(source, bytes), back;
    MUST((out(), send(ends[0], source, bytes, 0)) == bytes);
    MUST((out(), recv(ends[1], memory, LONG, 0)) == bytes);
    check(memory, bytes);
    MUST((out(), write(ends[0], source, bytes)) == bytes);
    MUST((out(), read(ends[1], memory, LONG)) == bytes);
    check(memory, bytes);
    MUST((out(), sendmsg(ends[0], &message, 0)) == bytes);
    back = message_of(memory, LONG);
    MUST((out(), recvmsg(ends[1], &back, MSG_WAITALL)) == bytes && !(back.msg_flags & MSG_TRUNC));
    check(memory, bytes);
    message_of(source, bytes);
    MUST((out(), writev(ends[0], parts, PARTS)) == bytes);
    message_of(memory, LONG);
    MUST((out(), readv(ends[1], parts, PARTS)) == bytes);
    check(memory, bytes);
    close(ends[0]), close(ends[1]);
}

static int packets[2];
static void list(struct mmsghdr *messages, struct iovec *each, char *from) {
    for (int i = 0; i < MANY; i++) {
        each[i] = (struct iovec){from + i * EACH, EACH};
        messages[i] = (struct mmsghdr){.msg_hdr = {.msg_iov = each + i, .msg_iovlen = 1}};
    }
}
static void *send_many(void *unused) {
    static struct mmsghdr messages[MANY];
    static struct iovec each[MANY];
    list(messages, each, source);
    MUST(sendmmsg(packets[0], messages, MANY, 0) == MANY);
    return unused;
}
static void many(void) {
    static struct mmsghdr messages[MANY];
    static struct iovec each[MANY];
    pthread_t thread;
    MUST(socketpair(AF_UNIX, SOCK_SEQPACKET, 0, packets) == 0);
    list(messages, each, memory);
    out();
    MUST(pthread_create(&thread, 0, send_many, 0) == 0);
    MUST(recvmmsg(packets[1], messages, MANY, 0, 0) == MANY);
    MUST(pthread_join(thread, 0) == 0);
    check(memory, MANY * EACH);
}

int main(void) {
    memory = map(), source = map();
    for (long i = 0; i < BYTES; i++) source[i] = byte_at(i);
    whole_streams();
    descriptors();
    datagrams(SOCK_DGRAM);
    datagrams(SOCK_SEQPACKET);
    many();
    puts("exact");
    return 0;
}
