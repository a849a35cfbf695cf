// Memory that is mapped, changed, read into and written from by system calls in the program's own code, four times what
// there is RAM for; processes, threads and signals by such calls. Prints "exact" if every byte is as it should be.
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <fcntl.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20, PAGES = BYTES / PAGE, PART = 2 << 20 };
#define FLAGS (MAP_PRIVATE | MAP_ANONYMOUS)
#define OPEN (PROT_READ | PROT_WRITE)

static char *map(long bytes, char *at, long flags) {
    char *memory = (char *)RAW(SYS_mmap, at, bytes, OPEN, FLAGS | flags, -1, 0);
    MUST((unsigned long)memory < -4096ul);
    return memory;
}

static unsigned long word_of(long page, long seed) { return (page + 1) * 0x9e3779b97f4a7c15ul + seed; }

static void fill(char *memory, long pages, long seed) {
    for (long page = 0; page < pages; page++)
        for (int i = 0; i < PAGE; i += 512) *(unsigned long *)(memory + page * PAGE + i) = word_of(page, seed);
}

static void check(const char *memory, long first, long pages, long seed) {
    for (long page = first; page < first + pages; page++)
        for (int i = 0; i < PAGE; i += 512)
            MUST(*(unsigned long *)(memory + page * PAGE + i) == word_of(page, seed));
}

static void check_zero(const char *memory, long bytes) {
    for (long i = 0; i < bytes; i += 8) MUST(!*(unsigned long *)(memory + i));
}

// What a system call makes of memory that nobody may read.
static long errno_of_reading(const char *memory) {
    int pipe[2];
    MUST(!RAW(SYS_pipe, pipe));
    long result = RAW(SYS_write, pipe[1], memory, 8);
    RAW(SYS_close, pipe[0]);
    RAW(SYS_close, pipe[1]);
    return result < 0 ? -result : 0;
}

static void files(char *memory, const char *name) {
    int fd = RAW(SYS_open, name, O_RDWR | O_CREAT | O_TRUNC, 0600);
    MUST(fd >= 0);
    for (long done = 0; done < BYTES;) {
        long count = RAW(SYS_write, fd, memory + done, BYTES - done);
        MUST(count > 0);
        done += count;
    }
    char *copy = map(BYTES, 0, 0);
    for (long done = 0; done < BYTES;) {
        long count = RAW(SYS_pread64, fd, copy + done, BYTES - done, done);
        MUST(count > 0);
        done += count;
    }
    check(copy, 0, PAGES, 1);
    MUST(!RAW(SYS_munmap, copy, BYTES) && !RAW(SYS_close, fd) && !RAW(SYS_unlink, name));
}

static void changes(char *memory) {
    long pages = PART / PAGE;
    // Another mapping over a part, new memory by itself.
    MUST(map(PART, memory + PART, MAP_FIXED) == memory + PART);
    check_zero(memory + PART, PART);
    check(memory, 0, pages, 1);
    check(memory, 2 * pages, pages, 1);
    // A part given back, its address still there.
    MUST(!RAW(SYS_madvise, memory + 3 * PART, PART, MADV_DONTNEED));
    check_zero(memory + 3 * PART, PART);
    check(memory, 4 * pages, pages, 1);
    // A part closed and opened again.
    MUST(!RAW(SYS_mprotect, memory + 4 * PART, PART, PROT_NONE));
    MUST(errno_of_reading(memory + 4 * PART) == EFAULT);
    MUST(!RAW(SYS_mprotect, memory + 4 * PART, PART, OPEN));
    check(memory, 4 * pages, pages, 1);
    // A part moved away, and larger than before.
    char *moved = (char *)RAW(SYS_mremap, memory + 5 * PART, PART, 2 * PART, MREMAP_MAYMOVE);
    MUST((unsigned long)moved < -4096ul);
    check(moved - 5 * PART, 5 * pages, pages, 1);
    check_zero(moved + PART, PART);
    MUST(!RAW(SYS_munmap, moved, 2 * PART));
    MUST(errno_of_reading(moved) == EFAULT);
    check(memory, 6 * pages, PAGES - 6 * pages, 1);
    fill(memory, 5 * pages, 1);
    map(PART, memory + 5 * PART, MAP_FIXED);
    fill(memory, PAGES, 1);
}

static void children(char *memory) {
    int status;
    long child = RAW(SYS_clone, SIGCHLD);
    if (!child) {
        check(memory, 0, PAGES, 1);
        fill(memory, PAGES, 2);
        check(memory, 0, PAGES, 2);
        RAW(SYS_exit_group, 7);
    }
    MUST(child > 0 && RAW(SYS_wait4, child, &status, 0, 0) == child && WEXITSTATUS(status) == 7);
    char *arguments[] = {"sh", "-c", "exit 9", 0};
    for (int i = 0; i < 20; i++) {
        // The child has this stack, and makes calls of its own before it goes.
        child = RAW(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD);
        if (!child) {
            RAW(SYS_getppid);
            RAW(SYS_execve, "/bin/sh", arguments, environ);
            RAW(SYS_exit, 1);
        }
        MUST(child > 0 && RAW(SYS_wait4, child, &status, 0, 0) == child && WEXITSTATUS(status) == 9);
    }
    MUST(RAW(SYS_clone, -1) < 0);
    check(memory, 0, PAGES, 1);
}

static int from_thread, word;

// A thread without thread-locals: nothing but raw calls.
static void thread(char *memory) {
    enum { STACK = 64 << 10 };
    char *stack = map(STACK, 0, 0) + STACK;
    long flags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD | CLONE_SYSVSEM
                 | CLONE_CHILD_CLEARTID;
    from_thread = 1;
    register long r10 __asm__("r10") = (long)&from_thread, r8 __asm__("r8") = 0;
    register long kept __asm__("r12") = 0x1234;
    long result;
    __asm__ volatile("syscall\n"
                     "test %%rax, %%rax\n"
                     "jnz 1f\n"
                     "mov %%r12d, %[word]\n"
                     "mov $60, %%eax\n"
                     "xor %%edi, %%edi\n"
                     "syscall\n"
                     "1:"
                     : "=a"(result), [word] "=m"(word)
                     : "a"(SYS_clone), "D"(flags), "S"(stack), "d"(0), "r"(r10), "r"(r8), "r"(kept)
                     : "rcx", "r11", "memory");
    MUST(result > 0);
    while (__atomic_load_n(&from_thread, __ATOMIC_SEQ_CST)) RAW(SYS_futex, &from_thread, 0, 1, 0);
    MUST(word == 0x1234);
}

struct action {
    void (*handler)(int);
    unsigned long flags;
    void (*restorer)(void);
    unsigned long mask;
};

__asm__("restore: mov $15, %eax\nsyscall\n");
void restore(void);

static volatile int handled;
static unsigned long mask_within, on_stack;
static stack_t own;

static void handler(int signal) {
    char here;
    handled++;
    RAW(SYS_getpid);
    RAW(SYS_rt_sigprocmask, SIG_BLOCK, 0, &mask_within, 8);
    on_stack = &here > (char *)own.ss_sp && &here < (char *)own.ss_sp + own.ss_size;
}

static int is_interrupted;

// Until the call has ended.
static void *interrupt(void *argument) {
    while (!__atomic_load_n(&is_interrupted, __ATOMIC_SEQ_CST)) {
        RAW(SYS_tgkill, getpid(), getpid(), SIGUSR1);
        sched_yield();
    }
    return 0;
}

// Until handlers have run, and then ends the call.
static void *disturb(void *end) {
    for (int before = handled; handled < before + 20; sched_yield()) RAW(SYS_tgkill, getpid(), getpid(), SIGUSR1);
    MUST(write(*(int *)end, "x", 1) == 1);
    return 0;
}

static void signals(void) {
    struct action new = {handler, 0x04000000 | SA_ONSTACK, restore, ~0ul}, old;
    own = (stack_t){.ss_sp = malloc(128 << 10), .ss_size = 128 << 10};
    stack_t before;
    MUST(!RAW(SYS_sigaltstack, &own, 0) && !RAW(SYS_sigaltstack, 0, &before) && before.ss_sp == own.ss_sp);
    MUST(!RAW(SYS_rt_sigaction, SIGUSR1, &new, 0, 8) && !RAW(SYS_rt_sigaction, SIGUSR1, 0, &old, 8));
    MUST(old.handler == handler && old.flags & SA_ONSTACK);
    // Everything blocked, and calls go on; what is blocked comes when it is not any more.
    unsigned long all = ~0ul, mask;
    MUST(!RAW(SYS_rt_sigprocmask, SIG_SETMASK, &all, &mask, 8) && !(mask & 1ul << (SIGUSR1 - 1)));
    MUST(!RAW(SYS_tgkill, getpid(), getpid(), SIGUSR1));
    RAW(SYS_getppid);
    MUST(!handled);
    MUST(!RAW(SYS_rt_sigprocmask, SIG_SETMASK, &mask, &all, 8) && all & 1ul << (SIGUSR1 - 1));
    MUST(handled == 1 && on_stack && mask_within & 1ul << (SIGUSR2 - 1));
    unsigned long after;
    MUST(!RAW(SYS_rt_sigprocmask, SIG_BLOCK, 0, &after, 8) && after == mask);
    // A call that waits is interrupted, or begun again if the handler wants that.
    int ends[2];
    char byte;
    pthread_t other;
    MUST(!pipe(ends));
    MUST(!pthread_create(&other, 0, interrupt, 0));
    MUST(RAW(SYS_read, ends[0], &byte, 1) == -EINTR);
    __atomic_store_n(&is_interrupted, 1, __ATOMIC_SEQ_CST);
    MUST(!pthread_join(other, 0));
    new.flags |= SA_RESTART;
    MUST(!RAW(SYS_rt_sigaction, SIGUSR1, &new, 0, 8));
    MUST(!pthread_create(&other, 0, disturb, &ends[1]));
    MUST(RAW(SYS_read, ends[0], &byte, 1) == 1 && byte == 'x');
    MUST(!pthread_join(other, 0));
    // SIGSYS is the program's as well.
    new.mask = 0;
    MUST(!RAW(SYS_rt_sigaction, SIGSYS, &new, &old, 8) && !old.handler);
    MUST(!RAW(SYS_rt_sigaction, SIGSYS, 0, &old, 8) && old.handler == handler);
    int so_far = handled;
    MUST(!RAW(SYS_tgkill, getpid(), getpid(), SIGSYS) && handled == so_far + 1);
    // One that is ignored leaves calls to be caught.
    new.handler = (void *)SIG_IGN;
    MUST(!RAW(SYS_rt_sigaction, SIGSYS, &new, 0, 8) && !RAW(SYS_tgkill, getpid(), getpid(), SIGSYS));
    MUST(RAW(SYS_getpid) == getpid() && handled == so_far + 1);
    own.ss_flags = SS_DISABLE;
    MUST(!RAW(SYS_sigaltstack, &own, 0));
}

static void *work(void *argument) {
    long seed = (long)argument, bytes = 8 << 20;
    for (int round = 0; round < 3 * TIMES; round++) {
        char *memory = map(bytes, 0, 0);
        fill(memory, bytes / PAGE, seed);
        MUST(!RAW(SYS_madvise, memory, PART, MADV_DONTNEED));
        check_zero(memory, PART);
        check(memory, PART / PAGE, (bytes - PART) / PAGE, seed);
        MUST(!RAW(SYS_munmap, memory, bytes));
    }
    return 0;
}

int main(int count, char **arguments) {
    char *memory = map(BYTES, 0, 0);
    fill(memory, PAGES, 1);
    check(memory, 0, PAGES, 1);
    files(memory, arguments[1]);
    changes(memory);
    children(memory);
    thread(memory);
    signals();
    pthread_t threads[4];
    for (long i = 0; i < 4; i++) MUST(!pthread_create(&threads[i], 0, work, (void *)(i + 10)));
    for (int i = 0; i < 4; i++) MUST(!pthread_join(threads[i], 0));
    check(memory, 0, PAGES, 1);
    // PR_SET_SYSCALL_USER_DISPATCH: there is one already.
    char selector = 0;
    MUST(prctl(59, 1, 0, 0, &selector) == -1 && errno == EINVAL);
    puts("exact");
    return 0;
}
