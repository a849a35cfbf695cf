// Every kind of system call on memory that is swapped out: as functions, and by number. Checks what comes back.
#define _GNU_SOURCE
#include <fcntl.h>
#include <linux/futex.h>
#include <mntent.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <sys/time.h>
#include <sys/timerfd.h>
#include <sys/times.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/utsname.h>
#include <sys/vfs.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <time.h>
#include <unistd.h>
#include "must.h"

// What calls become where the compiler checks buffers (_FORTIFY_SOURCE), as distributions have it.
extern int __poll_chk(struct pollfd *, nfds_t, int, size_t), __getgroups_chk(int, gid_t *, size_t);
extern int __ppoll_chk(struct pollfd *, nfds_t, const struct timespec *, const sigset_t *, size_t);
extern char *__realpath_chk(const char *, char *, size_t), *__getcwd_chk(char *, size_t, size_t);
extern ssize_t __readlink_chk(const char *, char *, size_t, size_t), __readlinkat_chk(int, const char *, char *, size_t, size_t);
extern ssize_t __recvfrom_chk(int, void *, size_t, size_t, int, struct sockaddr *, socklen_t *);
extern ssize_t __pread_chk(int, void *, size_t, off_t, size_t);
extern int __open_2(const char *, int), __open64_2(const char *, int), __openat_2(int, const char *, int);
extern int __openat64_2(int, const char *, int), __mq_open_2(const char *, int);
// What stat and mknod are in programs that were built before glibc 2.33; version 1 is this machine's form.
extern int __xstat(int, const char *, struct stat *), __xstat64(int, const char *, struct stat64 *);
extern int __lxstat(int, const char *, struct stat *), __lxstat64(int, const char *, struct stat64 *);
extern int __fxstat(int, int, struct stat *), __fxstat64(int, int, struct stat64 *);
extern int __fxstatat(int, int, const char *, struct stat *, int), __fxstatat64(int, int, const char *, struct stat64 *, int);
extern int __xmknod(int, const char *, mode_t, dev_t *), __xmknodat(int, int, const char *, mode_t, dev_t *);
// Since glibc 2.36.
extern void arc4random_buf(void *, size_t) __attribute__((weak));
extern size_t __fread_unlocked_chk(void *, size_t, size_t, size_t, FILE *);

enum { BYTES = 48 << 20, PAGE = 4096 };
static char *memory;
// Two pages, far apart, that each call uses; the results of a call begin in the first.
static char *a, *b;
static void out(void) { MUST(madvise(a, 2 * PAGE, MADV_PAGEOUT) == 0 && madvise(b, 2 * PAGE, MADV_PAGEOUT) == 0); }
// Prepares both, sends them out, and demands something of the call.
#define CALL(prepare, condition) do { memset(a, 0, 2 * PAGE); memset(b, 0, 2 * PAGE); prepare; out(); MUST(condition); } while (0)
#define CHILD() do { if (fork() == 0) _exit(7); } while (0)

static void paths(const char *path) {
    struct timespec times[2] = {{1, 0}, {2, 0}};
    int fd = open(path, O_CREAT | O_RDWR | O_TRUNC, 0644);
    MUST(fd >= 0 && write(fd, "data", 4) == 4);
    CALL(strcpy(a, path), statfs(a, (void *)b) == 0 && ((struct statfs *)b)->f_bsize > 0);
    CALL(strcpy(a, path), statvfs(a, (void *)b) == 0);
    CALL(, fstatfs(fd, (void *)b) == 0);
    CALL(strcpy(a, path), lchown(a, -1, -1) == 0 && fchmodat(AT_FDCWD, a, 0644, 0) == 0);
    CALL(strcpy(a, path), fchownat(AT_FDCWD, a, -1, -1, 0) == 0);
    CALL(strcpy(a, path), truncate64(a, 4) == 0 && euidaccess(a, R_OK) == 0);
    CALL(strcpy(a, path); memcpy(b, times, sizeof times), utimensat(AT_FDCWD, a, (void *)b, 0) == 0);
    CALL(strcpy(a, path), stat(a, (void *)b) == 0 && ((struct stat *)b)->st_mtime == 2);
    CALL(strcpy(a, path); strcpy(b, path); strcat(b, "2"), renameat2(AT_FDCWD, a, AT_FDCWD, b, 0) == 0);
    CALL(strcpy(a, path); strcpy(b, path); strcat(b, "2"), linkat(AT_FDCWD, b, AT_FDCWD, a, 0) == 0);
    CALL(strcpy(b, path); strcat(b, "2"), remove(b) == 0);
    CALL(strcpy(a, path); strcpy(b, path); strcat(b, "2"), symlinkat(a, AT_FDCWD, b) == 0);
    CALL(strcpy(a, path); strcat(a, "2"), readlink(a, b, 1000) == (ssize_t)strlen(path) && memcmp(b, path, strlen(path)) == 0);
    CALL(strcpy(a, path); strcat(a, "2"), unlink(a) == 0 && mkfifo(a, 0600) == 0);
    CALL(strcpy(a, path); strcat(a, "2"), unlink(a) == 0 && mknod(a, S_IFREG | 0600, 0) == 0 && unlink(a) == 0);
    CALL(strcpy(a, path); strcpy(b, "user.x"), getxattr(a, b, b + 100, 10) == -1 && errno != EFAULT);
    CALL(strcpy(a, path); strcpy(b, "user.x"), setxattr(a, b, "1", 1, 0) == 0 || errno != EFAULT);
    CALL(strcpy(a, path), listxattr(a, b, 100) >= 0);
    CALL(strcpy(a, path); strcat(a, "XXXXXX"), (close(mkstemp(a)), unlink(a)) == 0);
    CALL(strcpy(a, path), realpath(a, b) == b && strcmp(b, path) == 0);
    CALL(strcpy(a, path), inotify_add_watch(inotify_init(), a, IN_OPEN) >= 0);
    CALL(strcpy(a, path), syscall(SYS_openat2, AT_FDCWD, a, b, 24L) >= 0);
    CALL(strcpy(a, "/nonexistent"), syscall(SYS_execveat, AT_FDCWD, a, 0L, 0L, 0L) == -1 && errno == ENOENT);
    CALL(strcpy(a, "data"), pwritev(fd, (struct iovec *)memcpy(b, &(struct iovec){a, 4}, 16), 1, 0) == 4);
    CALL(memcpy(b, (&(struct iovec){a, 100}), 16), preadv(fd, (void *)b, 1, 0) == 4 && strcmp(a, "data") == 0);
    CALL(memcpy(b, (&(struct iovec){a, 100}), 16), syscall(SYS_preadv2, fd, b, 1L, 0L, 0L, 0L) == 4 && strcmp(a, "data") == 0);
    CALL(strcpy(a, "more"), syscall(SYS_pwrite64, fd, a, 4L, 0L) == 4);
    CALL(, syscall(SYS_pread64, fd, a, 4L, 0L) == 4 && strcmp(a, "more") == 0);
    CALL(((struct flock *)a)->l_type = F_WRLCK, fcntl(fd, F_GETLK, a) == 0 && ((struct flock *)a)->l_type == F_UNLCK);
    CALL(strcpy(a, path), ftok(a, 1) != -1 && lchmod(a, 0644) == 0);
    CALL(strcpy(a, "/proc/mounts"), setmntent(a, "r") != 0);
    CALL(strcpy(a, path); strcat(a, "2"), symlink(path, a) == 0);
    CALL(strcpy(a, path); strcat(a, "2"), __readlink_chk(a, b, 1000, PAGE) == (ssize_t)strlen(path));
    CALL(strcpy(a, path); strcat(a, "2"), __readlinkat_chk(AT_FDCWD, a, b, 1000, PAGE) == (ssize_t)strlen(path) && unlink(a) == 0);
    CALL(strcpy(a, path), __realpath_chk(a, b, 2 * PAGE) == b && strcmp(b, path) == 0);
    CALL(, __getcwd_chk(a, PAGE, PAGE) == a && a[0] == '/');
    CALL(strcpy(a, path), __xstat(1, a, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path), __xstat64(1, a, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path), __lxstat(1, a, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path), __lxstat64(1, a, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(, __fxstat(1, fd, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(, __fxstat64(1, fd, (void *)b) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path), __fxstatat(1, AT_FDCWD, a, (void *)b, 0) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path), __fxstatat64(1, AT_FDCWD, a, (void *)b, 0) == 0 && ((struct stat *)b)->st_size == 4);
    CALL(strcpy(a, path); strcat(a, "2"), __xmknod(0, a, S_IFREG | 0600, (void *)b) == 0 && unlink(a) == 0);
    CALL(strcpy(a, path); strcat(a, "2"), __xmknodat(0, AT_FDCWD, a, S_IFREG | 0600, (void *)b) == 0 && unlink(a) == 0);
    CALL(strcpy(a, path), close(__open_2(a, O_RDONLY)) == 0);
    CALL(strcpy(a, path), close(__open64_2(a, O_RDONLY)) == 0);
    CALL(strcpy(a, path), close(__openat_2(AT_FDCWD, a, O_RDONLY)) == 0);
    CALL(strcpy(a, path), close(__openat64_2(AT_FDCWD, a, O_RDONLY)) == 0);
    CALL(strcpy(a + PAGE - 5, "/nonexistent"), __mq_open_2(a + PAGE - 5, O_RDONLY) == -1 && errno != EFAULT);
    CALL(, __pread_chk(fd, a, 4, 0, PAGE) == 4 && strcmp(a, "more") == 0);
    // A buffer of the program's, which the C library would read and write.
    FILE *stream = fdopen(fd, "r+");
    MUST(stream && setvbuf(stream, a, _IOFBF, PAGE) == 0);
    MUST(fseek(stream, 0, SEEK_SET) == 0 && (out(), fgetc(stream)) == 'm' && fseek(stream, 0, SEEK_SET) == 0);
    memset(b, 'x', 4000), b[4000] = 0;
    for (int i = 0; i < 20; i++) MUST((out(), fputs(b, stream)) >= 0);
    MUST((out(), fflush(stream)) == 0 && fseek(stream, 0, SEEK_SET) == 0);
    memset(b, 0, PAGE);
    MUST((out(), __fread_unlocked_chk(b, PAGE, 1, 4, stream)) == 4 && b[3] == 'x');
    fclose(stream);
    // Another user may come next.
    MUST(unlink(path) == 0);
}

static void sockets(void) {
    int pair[2], in = socket(AF_INET, SOCK_STREAM, 0);
    socklen_t *length = (void *)b;
    MUST(socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0);
    CALL(*length = 100, getsockname(in, (void *)a, length) == 0 && *length == 16);
    CALL(*length = 100, getpeername(pair[0], (void *)a, length) == 0);
    MUST(write(pair[0], "text", 4) == 4);
    CALL(*length = 100, __recvfrom_chk(pair[1], a, 100, PAGE, 0, (void *)(b + 8), length) == 4 && memcmp(a, "text", 4) == 0);
    struct iovec part = {a, 100};
    struct mmsghdr message = {.msg_hdr = {.msg_iov = (void *)(b + 1000), .msg_iovlen = 1}};
    for (int i = 0; i < 100; i++) {
        CALL(memcpy(b, &message, sizeof message); memcpy(b + 1000, &part, sizeof part); strcpy(a, "text"),
             sendmmsg(pair[0], (void *)b, 1, 0) == 1 && ((struct mmsghdr *)b)->msg_len == 100);
        CALL(memcpy(b, &message, sizeof message); memcpy(b + 1000, &part, sizeof part),
             recvmmsg(pair[1], (void *)b, 1, 0, 0) == 1 && strcmp(a, "text") == 0);
    }
    CALL(memcpy(b, &message, sizeof message); memcpy(b + 1000, &part, sizeof part); strcpy(a, "text"),
         syscall(SYS_sendmsg, pair[0], b, 0L) == 100);
    CALL(memcpy(b, &message, sizeof message); memcpy(b + 1000, &part, sizeof part),
         syscall(SYS_recvmsg, pair[1], b, 0L) == 100 && strcmp(a, "text") == 0);
}

// How a program ends that is started with a list of arguments, some of them on the stack.
static int ended(int way) {
    char *variables[] = {"A=1234", 0};
    int status;
    pid_t child = vfork();
    if (child == 0) {
        if (way == 0) execl(a, "sh", "-c", b, "sh", "1", "2", "3", "4", (char *)0);
        if (way == 1) execlp(a + 5, "sh", "-c", b, "sh", "1", "2", "3", "4", (char *)0);
        if (way == 2) execle(a, "sh", "-c", b, "sh", "1", "2", "3", "4", (char *)0, variables);
        if (way == 3) execle(a, "sh", "-c", b, (char *)0, variables);
        _exit(99);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void starting(void) {
    for (int way = 0; way < 3; way++)
        CALL(strcpy(a, "/bin/sh"); strcpy(b, "[ \"$#$1$2$3$4\" = 41234 ] && exit 7"), ended(way) == 7);
    CALL(strcpy(a, "/bin/sh"); strcpy(b, "[ \"$A\" = 1234 ] && exit 7"), ended(3) == 7);
    CALL(strcpy(a, "/nonexistent"), execl(a, a, (char *)0) == -1 && errno == ENOENT);
}

static void waiting(void) {
    int ends[2], epoll = epoll_create1(0);
    siginfo_t *info = (void *)a;
    MUST(pipe(ends) == 0 && write(ends[1], "x", 1) == 1);
    MUST(epoll_ctl(epoll, EPOLL_CTL_ADD, ends[0], &(struct epoll_event){.events = EPOLLIN, .data.u64 = 42}) == 0);
    CALL(, epoll_pwait(epoll, (void *)a, 1, 0, 0) == 1 && ((struct epoll_event *)a)->data.u64 == 42);
    CALL(FD_SET(ends[0], (fd_set *)a), pselect(ends[0] + 1, (void *)a, 0, 0, (void *)b, 0) == 1);
    CALL(((struct pollfd *)a)->fd = ends[0], ppoll((void *)a, 1, (void *)b, 0) == 0);
    CALL(((struct pollfd *)a)->fd = ends[0], __ppoll_chk((void *)a, 1, (void *)b, 0, PAGE) == 0);
    CALL(((struct pollfd *)a)->fd = ends[0], __poll_chk((void *)a, 1, 0, PAGE) == 0);
    CALL(, epoll_pwait2(epoll, (void *)a, 1, (void *)b, 0) == 1 && ((struct epoll_event *)a)->data.u64 == 42);
    CALL(, eventfd_read(eventfd(3, 0), (void *)a) == 0 && *(long *)a == 3);
    CALL(CHILD(), waitid(P_ALL, 0, info, WEXITED) == 0 && info->si_status == 7);
    CALL(CHILD(), wait3((void *)a, 0, (void *)b) > 0 && WEXITSTATUS(*(int *)a) == 7);
    CALL(CHILD(), wait((void *)a) > 0 && WEXITSTATUS(*(int *)a) == 7);
    CALL(, clock_nanosleep(CLOCK_MONOTONIC, 0, (void *)a, 0) == 0);
    CALL(sigaddset((sigset_t *)a, SIGUSR1), sigprocmask(SIG_BLOCK, (void *)a, (void *)b) == 0);
    CALL(raise(SIGUSR1), sigpending((void *)a) == 0 && sigismember((void *)a, SIGUSR1));
    CALL(sigaddset((sigset_t *)b, SIGUSR1), sigtimedwait((void *)b, info, (void *)(b + 1000)) == SIGUSR1 && info->si_signo == SIGUSR1);
    CALL(, signalfd(-1, (void *)a, 0) >= 0);
    CALL(, setitimer(ITIMER_REAL, (void *)a, (void *)b) == 0 && getitimer(ITIMER_REAL, (void *)a) == 0);
    CALL(, timerfd_settime(timerfd_create(CLOCK_REALTIME, 0), 0, (void *)a, (void *)b) == 0);
    // The word is not what the caller expects; the time is over.
    CALL(, syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, 1L, 0L, 0L, 0L) == -1 && errno == EAGAIN);
    CALL(, syscall(SYS_futex, a, FUTEX_WAIT_PRIVATE, 0L, b, 0L, 0L) == -1 && errno == ETIMEDOUT);
    CALL(, syscall(SYS_futex, a, FUTEX_TRYLOCK_PI_PRIVATE, 0L, 0L, 0L, 0L) == 0 && *(int *)a == getpid());
    int set = semget(IPC_PRIVATE, 1, 0600);
    CALL(((struct sembuf *)a)->sem_op = 1, semtimedop(set, (void *)a, 1, (void *)b) == 0);
    MUST(semctl(set, 0, IPC_RMID) == 0);
}

static void machine(void) {
    CALL(, uname((void *)a) == 0 && strcmp(((struct utsname *)a)->sysname, "Linux") == 0);
    CALL(, sysinfo((void *)a) == 0 && ((struct sysinfo *)a)->totalram > 0);
    CALL(, getrusage(RUSAGE_SELF, (void *)a) == 0 && ((struct rusage *)a)->ru_maxrss > 0);
    CALL(, times((void *)a) != -1 && getrlimit(RLIMIT_NOFILE, (void *)b) == 0 && ((struct rlimit *)b)->rlim_cur > 0);
    CALL(, prlimit(0, RLIMIT_NOFILE, 0, (void *)a) == 0 && ((struct rlimit *)a)->rlim_cur > 0);
    CALL(, sched_getaffinity(0, 128, (void *)a) == 0 && sched_setaffinity(0, 128, (void *)a) == 0);
    CALL(, getgroups(64, (void *)a) >= 0 && __getgroups_chk(64, (void *)b, PAGE) >= 0);
    CALL(strcpy(a, "name"), prctl(PR_SET_NAME, a) == 0);
    CALL(, prctl(PR_GET_NAME, a) == 0 && strcmp(a, "name") == 0);
    CALL(, clock_getres(CLOCK_PROCESS_CPUTIME_ID, (void *)a) == 0);
    CALL(, clock_gettime(CLOCK_PROCESS_CPUTIME_ID, (void *)a) == 0);
    CALL(, getentropy(a, 200) == 0 && syscall(SYS_getrandom, b, 200L, 0L) == 200 && memcmp(a, b, 200) != 0);
    // Longer than what is kept at once.
    if (arc4random_buf) {
        memset(memory, 0, 4 << 20);
        MUST(madvise(memory, 4 << 20, MADV_PAGEOUT) == 0);
        arc4random_buf(memory, (4 << 20) - 100);
        for (long i = 0; i < (4 << 20) - 100; i += PAGE) MUST(*(long *)(memory + i) != 0);
        for (long i = (4 << 20) - 100; i < 4 << 20; i++) MUST(memory[i] == 0);
    }
    struct iovec parts[2] = {{a, 8}, {b, 8}};
    CALL(strcpy(b, "theirs"), process_vm_readv(getpid(), parts, 1, parts + 1, 1, 0) == 8 && strcmp(a, "theirs") == 0);
    // Memory by number is managed as by name.
    char *more = (char *)syscall(SYS_mmap, 0L, (long)BYTES, 3L, MAP_PRIVATE | MAP_ANONYMOUS, -1L, 0L);
    MUST(more != MAP_FAILED);
    memset(more, 1, BYTES);
    MUST(syscall(SYS_madvise, more, (long)BYTES, (long)MADV_DONTNEED) == 0);
    for (long i = 0; i < BYTES; i += PAGE) MUST(more[i] == 0);
    MUST(syscall(SYS_munmap, more, (long)BYTES) == 0);
    // A fork by number has the managed memory as well.
    strcpy(a, "inherited");
    long child = syscall(SYS_clone, (long)SIGCHLD, 0L, 0L, 0L, 0L);
    if (child == 0) _exit(strcmp(a, "inherited") == 0 ? 7 : 8);
    CALL(, waitpid(child, (int *)b, 0) == child && WEXITSTATUS(*(int *)b) == 7);
}

int main(int count, char **arguments) {
    MUST(count == 2);
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    a = memory + (8 << 20), b = memory + (24 << 20);
    paths(arguments[1]);
    sockets();
    starting();
    waiting();
    machine();
    puts("exact");
    return 0;
}
