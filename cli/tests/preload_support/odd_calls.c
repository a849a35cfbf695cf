// What few programs do, in memory that has left: all as without us.
#define _GNU_SOURCE
#include <elf.h>
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include <wordexp.h>
#include "must.h"

enum { PAGE = 4096, BYTES = 40 << 20, MIB = 1 << 20, THREADS = 8, TURNS = 20000 };
static char *large;
static pthread_mutex_t *mutex;

static char *map(char *at, long bytes, int protection, int flags) {
    char *start = mmap(at, bytes, protection, MAP_ANONYMOUS | flags, -1, 0);
    MUST(start != MAP_FAILED);
    return start;
}
// A page that is not there.
static void *left(const char *content) {
    char *page = aligned_alloc(PAGE, PAGE);
    MUST(page);
    strcpy(page, content);
    MUST(madvise(page, PAGE, MADV_PAGEOUT) == 0);
    return page;
}
static int is_unlocked(char *page) {
    return munlock(page, PAGE) == 0;
}
// What is locked stays so where it goes, and goes like other memory.
static void locks_move(void) {
    char *from = map(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    memset(from, 5, MIB);
    if (mlock(from, MIB) != 0) return;
    char *to = mremap(from, MIB, 2 * MIB, MREMAP_MAYMOVE);
    MUST(to != MAP_FAILED);
    for (long at = 0; at < 2 * MIB; at += PAGE) MUST(to[at] == (at < MIB ? 5 : 0));
    MUST(madvise(to, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    MUST(madvise(to + 2 * MIB - PAGE, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    char *moved = mremap(to, 2 * MIB, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, map(0, 2 * MIB, PROT_NONE, MAP_PRIVATE));
    MUST(moved != MAP_FAILED && moved[MIB - 1] == 5);
    MUST(madvise(moved, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    MUST(is_unlocked(moved) && madvise(moved, PAGE, MADV_DONTNEED) == 0 && moved[0] == 0);
    MUST(munmap(moved, 2 * MIB) == 0);
    // What cannot be touched for the moment keeps its lock as it grows.
    char *closed = map(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    memset(closed, 5, MIB);
    MUST(mlock(closed, MIB) == 0 && mprotect(closed, MIB, PROT_NONE) == 0);
    closed = mremap(closed, MIB, 2 * MIB, MREMAP_MAYMOVE);
    MUST(closed != MAP_FAILED && mprotect(closed, 2 * MIB, PROT_READ | PROT_WRITE) == 0);
    MUST(closed[MIB - 1] == 5 && closed[MIB] == 0 && madvise(closed, PAGE, MADV_DONTNEED) == -1 && errno == EINVAL);
    MUST(munlock(closed, 2 * MIB) == 0 && madvise(closed, PAGE, MADV_DONTNEED) == 0 && munmap(closed, 2 * MIB) == 0);
    // By a call that nobody sees, and then unmapped.
    char *past = map(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    MUST(raw_call(SYS_mlock2, past, MIB, 0) == 0 && munmap(past, MIB) == 0);
}
// A ring that is mapped twice.
static void doubled(void) {
    char *ring = map(0, 2 * MIB, PROT_NONE, MAP_PRIVATE);
    map(ring, MIB, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED);
    MUST(mremap(ring, 0, MIB, MREMAP_MAYMOVE | MREMAP_FIXED, ring + MIB) == ring + MIB);
    for (long at = 0; at < MIB; at += PAGE) ring[at] = at / PAGE;
    for (long at = 0; at < MIB; at += PAGE) MUST(ring[MIB + at] == (char)(at / PAGE));
    // What cannot be changes nothing.
    MUST(mremap(ring + MIB, 0, 2 * MIB, MREMAP_MAYMOVE | MREMAP_FIXED, ring + PAGE) == MAP_FAILED && errno == EINVAL);
    MUST(mremap(ring, 0, MIB, MREMAP_FIXED, ring + MIB) == MAP_FAILED && errno == EINVAL);
    for (long at = 0; at < 2 * MIB; at += PAGE) MUST(ring[at] == (char)(at % MIB / PAGE));
    MUST(munmap(ring, 2 * MIB) == 0);
    char *plain = map(0, MIB, PROT_READ, MAP_PRIVATE);
    MUST(mremap(plain, 0, MIB, MREMAP_MAYMOVE) == MAP_FAILED && errno == EINVAL);
}
// Of a length that cannot be, no byte is moved.
static void too_long(void) {
    int file = memfd_create("file", 0);
    volatile ssize_t none = -1;
    MUST(write(file, large, none) == -1 && errno == EFAULT);
    MUST(pwrite(file, large, none, 0) == -1);
    MUST(write(file, large, (size_t)1 << 60) == -1 && errno == EFAULT);
    MUST(lseek(file, 0, SEEK_END) == 0 && write(file, "abc", 3) == 3);
    MUST(pread(file, large, none, 0) == -1 && large[0] == 1);
    MUST(read(open("/dev/zero", O_RDONLY), large, (size_t)1 << 62) == -1 && errno == EFAULT && large[0] == 1);
}
// Advice for parts of the process itself.
static void advised(void) {
    char *pages = map(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE), *others = map(0, MIB, PROT_READ | PROT_WRITE, MAP_PRIVATE);
    memset(pages, 1, MIB), memset(others, 1, MIB);
    MUST(madvise(pages, MIB, MADV_PAGEOUT) == 0);
    int self = syscall(SYS_pidfd_open, getpid(), 0);
    struct iovec *list = left("");
    list[0] = (struct iovec){pages, MIB / 2}, list[1] = (struct iovec){others, PAGE};
    MUST(syscall(SYS_process_madvise, self, list, 2, MADV_WILLNEED, 1) == -1 && errno == EINVAL);
    MUST(syscall(SYS_process_madvise, self, list, 2, 12345, 0) <= 0);
    long done = syscall(SYS_process_madvise, self, list, 2, MADV_DONTNEED, 0);
    // Before Linux 6.13 there is other advice only.
    MUST(done == MIB / 2 + PAGE || (done == -1 && errno == EINVAL));
    for (long at = 0; at < MIB; at += PAGE) MUST(pages[at] == !(done > 0 && at < MIB / 2));
    MUST(others[0] == !(done > 0) && others[PAGE] == 1);
    pid_t child = fork();
    if (child == 0) pause(), _exit(0);
    int other = syscall(SYS_pidfd_open, child, 0);
    MUST(syscall(SYS_process_madvise, other, list, 1, MADV_DONTNEED, 0) == -1);
    MUST(pages[MIB - 1] == 1 && kill(child, SIGKILL) == 0 && waitpid(child, 0, 0) == child);
}
// A shell that the C library starts has the environment, wherever it is.
static void shells(void) {
    MUST(putenv(left("SAID=by a page that has left")) == 0);
    MUST(system(left("test \"$SAID\" = 'by a page that has left'")) == 0);
    MUST(madvise(getenv("SAID") - 5, PAGE, MADV_PAGEOUT) == 0);
    FILE *output = popen(left("echo $SAID"), "r");
    char line[64];
    MUST(output && fgets(line, sizeof line, output) && strcmp(line, "by a page that has left\n") == 0 && pclose(output) == 0);
    MUST(madvise(getenv("SAID") - 5, PAGE, MADV_PAGEOUT) == 0);
    wordexp_t words;
    MUST(wordexp("$(echo $SAID) plain", &words, 0) == 0 && words.we_wordc == 7 && strcmp(words.we_wordv[1], "a") == 0);
    wordfree(&words);
    MUST(wordexp("$((1 + 2))", &words, WRDE_NOCMD) == 0 && words.we_wordc == 1 && strcmp(words.we_wordv[0], "3") == 0);
    MUST(unsetenv("SAID") == 0);
}
static void written_only(void) {
    char *pages = map(0, MIB, PROT_WRITE, MAP_PRIVATE);
    memset(large, 1, MIB);
    int file = memfd_create("file", 0);
    MUST(write(file, large, MIB) == MIB && pread(file, pages, MIB, 0) == MIB);
    MUST(madvise(pages, MIB, MADV_PAGEOUT) == 0);
    MUST(pwrite(file, pages, MIB, MIB) == MIB && lseek(file, 0, SEEK_END) == 2 * MIB);
}
static void *contend(void *nothing) {
    for (int turn = 0; turn < TURNS; turn++) {
        errno = 4242;
        MUST(pthread_mutex_lock(mutex) == 0);
        if (turn % 64 == 0) madvise(mutex, PAGE, MADV_PAGEOUT);
        MUST(errno == 4242 && pthread_mutex_unlock(mutex) == 0);
    }
    return nothing;
}
// Functions that tell their errors themselves leave errno.
static void errno_stays(void) {
    mutex = left("");
    pthread_mutex_init(mutex, 0);
    pthread_t threads[THREADS];
    for (int thread = 0; thread < THREADS; thread++) MUST(pthread_create(&threads[thread], 0, contend, 0) == 0);
    for (int thread = 0; thread < THREADS; thread++) MUST(pthread_join(threads[thread], 0) == 0);
}
static void of_threads_and_traces(void) {
    struct sched_param *parameter = left("");
    MUST(pthread_setschedparam(pthread_self(), SCHED_OTHER, parameter) == 0);
    MUST(gettimeofday(left(""), 0) == 0);
    char *volatile nothing = 0, *arguments[] = {"x", 0};
    MUST(execv(nothing, arguments) == -1 && errno == EFAULT);
    pid_t child = fork();
    if (child == 0) ptrace(PTRACE_TRACEME, 0, 0, 0), raise(SIGSTOP), _exit(0);
    MUST(waitpid(child, 0, 0) == child);
    struct iovec *registers = left("");
    *registers = (struct iovec){left(""), PAGE};
    MUST(madvise(registers, PAGE, MADV_PAGEOUT) == 0);
    MUST(ptrace(PTRACE_GETREGSET, child, (void *)NT_X86_XSTATE, registers) == 0 && registers->iov_len > 512);
    MUST(kill(child, SIGKILL) == 0 && waitpid(child, 0, 0) == child);
}
int main(void) {
    // While the kernel has the memory, and after.
    locks_move(), doubled();
    large = malloc(BYTES);
    MUST(large);
    memset(large, 1, BYTES);
    locks_move(), doubled(), too_long(), advised(), shells(), written_only(), errno_stays(), of_threads_and_traces();
    puts("exact");
}
