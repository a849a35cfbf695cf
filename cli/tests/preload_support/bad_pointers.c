// Calls whose memory names other memory, which is not there: the kernel says so, and nobody else looks.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/aio_abi.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

#define REFUSED(call)                          \
    do {                                       \
        errno = 0;                             \
        MUST((call) == -1 && errno == EFAULT); \
    } while (0)

static void buffers(void *nowhere, int file) {
    REFUSED(readv(file, nowhere, 2));
    REFUSED(preadv(file, nowhere, 2, 0));
    REFUSED(syscall(SYS_readv, file, nowhere, 2));
    REFUSED(process_vm_readv(getpid(), nowhere, 1, nowhere, 1, 0));
    int ends[2];
    MUST(pipe(ends) == 0);
    REFUSED(writev(ends[1], nowhere, 2));
    REFUSED(vmsplice(ends[1], nowhere, 2, 0));
    // The second entry of a list is on the page that is not there.
    struct iovec *last = (struct iovec *)nowhere - 1;
    last->iov_base = ends;
    last->iov_len = 4;
    REFUSED(readv(file, last, 2));
    close(ends[0]);
    close(ends[1]);
}
static void messages(void *nowhere) {
    int ends[2], number = 0;
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, ends) == 0);
    struct msghdr message = {.msg_iov = nowhere, .msg_iovlen = 3};
    struct mmsghdr many = {.msg_hdr = message};
    REFUSED(recvmsg(ends[0], nowhere, MSG_DONTWAIT));
    REFUSED(sendmsg(ends[0], nowhere, 0));
    REFUSED(sendmsg(ends[0], &message, 0));
    REFUSED(recvmsg(ends[0], &message, MSG_DONTWAIT));
    REFUSED(sendmmsg(ends[0], nowhere, 1, 0));
    REFUSED(sendmmsg(ends[0], &many, 1, 0));
    REFUSED(ioctl(ends[0], SIOCGIFCONF, nowhere));
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_ATTACH_FILTER, nowhere, 16) == -1 && errno == EFAULT);
    MUST(setsockopt(ends[0], SOL_SOCKET, SO_REUSEADDR, &number, sizeof number) == 0);
    close(ends[0]);
    close(ends[1]);
}
static void requests(void *nowhere) {
    aio_context_t context = 0;
    MUST(syscall(SYS_io_setup, 4, &context) == 0);
    struct iocb request = {.aio_lio_opcode = IOCB_CMD_PREADV, .aio_buf = (long)nowhere, .aio_nbytes = 2};
    struct iocb *list[1] = {nowhere}, *good[1] = {&request};
    REFUSED(syscall(SYS_io_submit, context, 1, nowhere));
    REFUSED(syscall(SYS_io_submit, context, 1, list));
    REFUSED(syscall(SYS_io_submit, context, 1, good));
    MUST(syscall(SYS_io_destroy, context) == 0);
}
static void programs(void *nowhere) {
    char *arguments[] = {nowhere, NULL}, *none[] = {NULL};
    REFUSED(execve(nowhere, none, none));
    REFUSED(execve("/bin/true", nowhere, none));
    REFUSED(execve("/bin/true", arguments, none));
    REFUSED(execve("/bin/true", none, arguments));
    REFUSED(syscall(SYS_execve, nowhere, none, none));
    REFUSED(syscall(SYS_clone3, nowhere, 88));
    REFUSED(syscall(SYS_rt_sigaction, 10, nowhere, 0, 8));
    REFUSED(syscall(SYS_rt_sigprocmask, 0, nowhere, 0, 8));
    REFUSED(sigaltstack(nowhere, NULL));
    REFUSED(setrlimit(RLIMIT_AS, nowhere));
    REFUSED(setrlimit(RLIMIT_NPROC, nowhere));
    REFUSED(getrlimit(RLIMIT_AS, nowhere));
    REFUSED(prlimit(0, RLIMIT_NOFILE, nowhere, NULL));
}
int main(void) {
    enum { BYTES = 40 << 20, PAGE = 4096 };
    int file = open("/proc/self/exe", O_RDONLY);
    MUST(file >= 0);
    char *pages = mmap(NULL, 2 * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    char *block = mmap(NULL, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(pages != MAP_FAILED && block != MAP_FAILED);
    // Of pages that were never managed, and of managed ones; without an engine, and with one.
    void *places[] = {pages + PAGE, block + BYTES / 2};
    MUST(mprotect(places[0], PAGE, PROT_NONE) == 0);
    MUST(mprotect(places[1], PAGE, PROT_NONE) == 0);
    for (int round = 0; round < 2; round++) {
        for (int place = 0; place < 2; place++) {
            buffers(places[place], file);
            messages(places[place]);
            requests(places[place]);
            programs(places[place]);
        }
        for (long at = 0; at < BYTES; at += PAGE)
            if (block + at != places[1]) block[at] = (char)(at / PAGE + round);
    }
    for (long at = 0; at < BYTES - PAGE; at += PAGE)
        if (block + at != places[1] && at / PAGE + 1 != BYTES / 2 / PAGE) MUST(block[at] == (char)(at / PAGE + 1));
    puts("exact");
}
