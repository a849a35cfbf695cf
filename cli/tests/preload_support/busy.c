/* Threads do, each again and again, what programs do beside their memory, while the engine starts in another thread and
 * pages leave: in a child of the first process, or in many. */
#define _GNU_SOURCE
#include "children.h"
#include <aio.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 64 << 20, PIPED = 30000, WRITTEN = 8192 };

extern char **environ;
static int is_done;

static int done(void) { return __atomic_load_n(&is_done, __ATOMIC_SEQ_CST); }

static void *map(size_t bytes) {
    void *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

/* A program that forks all the time has nothing else done, as its memory stands still meanwhile. */
static void end_and_rest(pid_t child) {
    end_well(child);
    usleep(5000);
}

static int unnamed_file(void) {
    char name[] = "/tmp/busyXXXXXX";
    int file = mkstemp(name);
    MUST(file >= 0 && unlink(name) == 0);
    return file;
}

static void spawn(void) {
    pid_t child;
    char *arguments[] = {"true", 0};
    MUST(posix_spawn(&child, "/bin/true", 0, 0, arguments, environ) == 0);
    end_and_rest(child);
}

static void call_vfork(void) {
    pid_t child = vfork();
    if (child == 0) {
        execl("/bin/true", "true", (char *)0);
        _exit(9);
    }
    end_and_rest(child);
}

static void call_fork(void) {
    pid_t child = fork();
    if (child == 0) {
        char *memory = malloc(100000);
        memset(memory, 1, 100000);
        free(memory);
        _exit(0);
    }
    end_and_rest(child);
}

static void *fill_stack(void *argument) {
    volatile char bytes[3000];
    memset((void *)bytes, 1, sizeof bytes);
    return argument;
}

static void start_threads(void) {
    pthread_t thread;
    MUST(pthread_create(&thread, 0, fill_stack, 0) == 0 && pthread_join(thread, 0) == 0);
    size_t bytes = 128 << 10;
    char *stack = map(bytes);
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    MUST(pthread_attr_setstack(&attributes, stack, bytes) == 0);
    MUST(pthread_create(&thread, &attributes, fill_stack, 0) == 0 && pthread_join(thread, 0) == 0);
    MUST(munmap(stack, bytes) == 0);
}

static unsigned next_random(void) {
    static __thread unsigned random = 1;
    random = random * 1103515245 + 12345;
    return random / 65536;
}

static void change_maps(void) {
    size_t pages = 1 + next_random() % 40, bytes = pages * PAGE;
    char *memory = map(bytes);
    for (size_t page = 0; page < pages; page++) memory[page * PAGE] = (char)(page + 1);
    memory = mremap(memory, bytes, 2 * bytes, MREMAP_MAYMOVE);
    MUST(memory != MAP_FAILED && mprotect(memory, bytes, PROT_READ) == 0);
    for (size_t page = 0; page < pages; page++) MUST(memory[page * PAGE] == (char)(page + 1));
    MUST(memory[bytes] == 0 && madvise(memory, PAGE, MADV_DONTNEED) == 0 && memory[0] == 0);
    MUST(munmap(memory, 2 * bytes) == 0);
}

static void lock_maps(void) {
    char *memory = map(16 * PAGE);
    MUST(mlock(memory, 16 * PAGE) == 0);
    memory[5] = 1;
    MUST(munlock(memory, 8 * PAGE) == 0 && munmap(memory, 16 * PAGE) == 0);
}

static void allocate(void) {
    size_t bytes = 1 + next_random() * 6;
    char *memory = malloc(bytes), byte = (char)bytes;
    memset(memory, byte, bytes);
    memory = realloc(memory, 2 * bytes);
    MUST(memory && memory[0] == byte && memory[bytes - 1] == byte);
    free(memory);
}

static void use_streams(void) {
    FILE *stream = fdopen(unnamed_file(), "w+");
    MUST(stream);
    for (int line = 0; line < 500; line++) MUST(fprintf(stream, "%d\n", line) > 0);
    rewind(stream);
    char *text = 0;
    size_t room = 0;
    for (int line = 0; line < 500; line++) MUST(getline(&text, &room, stream) > 0 && atoi(text) == line);
    free(text);
    MUST(fclose(stream) == 0);
}

static void use_pipe(void) {
    int ends[2];
    MUST(pipe(ends) == 0);
    char *bytes = malloc(PIPED);
    memset(bytes, 3, PIPED);
    MUST(write(ends[1], bytes, PIPED) == PIPED);
    memset(bytes, 0, PIPED);
    MUST(read(ends[0], bytes, PIPED) == PIPED && bytes[0] == 3 && bytes[PIPED - 1] == 3);
    free(bytes);
    MUST(close(ends[0]) == 0 && close(ends[1]) == 0);
}

static void write_beside(void) {
    int file = unnamed_file();
    char *bytes = malloc(WRITTEN);
    memset(bytes, 5, WRITTEN);
    struct aiocb request = {.aio_fildes = file, .aio_buf = bytes, .aio_nbytes = WRITTEN};
    const struct aiocb *requests[] = {&request};
    MUST(aio_write(&request) == 0);
    while (aio_error(&request) == EINPROGRESS) aio_suspend(requests, 1, 0);
    MUST(aio_return(&request) == WRITTEN);
    free(bytes);
    MUST(close(file) == 0);
}

static void list_directory(void) {
    DIR *directory = opendir("/proc/self/fd");
    MUST(directory);
    while (readdir(directory)) {}
    MUST(closedir(directory) == 0);
}

static void change_locale(void) {
    MUST(setlocale(LC_ALL, "C.UTF-8") && setlocale(LC_ALL, "C"));
    void *library = dlopen("libm.so.6", RTLD_NOW);
    MUST(library && dlclose(library) == 0);
}

static void count_signal(int number) {
    volatile char bytes[2000];
    memset((void *)bytes, number, sizeof bytes);
}

static void raise_signal(void) {
    static __thread stack_t stack;
    if (!stack.ss_sp) {
        stack = (stack_t){.ss_sp = map(64 << 10), .ss_size = 64 << 10};
        struct sigaction action = {.sa_handler = count_signal, .sa_flags = SA_ONSTACK};
        MUST(sigaltstack(&stack, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
    }
    MUST(raise(SIGUSR1) == 0);
    sigset_t all, before;
    sigfillset(&all);
    MUST(pthread_sigmask(SIG_BLOCK, &all, &before) == 0 && pthread_sigmask(SIG_SETMASK, &before, 0) == 0);
}

/* Two threads have this one: each waits for the other, not for ever, for that may have ended. */
static void take_turns(void) {
    static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
    static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
    static unsigned turn;
    MUST(pthread_mutex_lock(&mutex) == 0);
    unsigned before = turn++;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 1;
    MUST(pthread_cond_broadcast(&changed) == 0);
    while (turn == before + 1 && !done() && pthread_cond_timedwait(&changed, &mutex, &until) == 0) {}
    MUST(pthread_mutex_unlock(&mutex) == 0);
}

static void (*const ACTS[])(void) = {
    spawn,    call_vfork,   call_fork,      start_threads, change_maps,  lock_maps,  allocate,   use_streams,
    use_pipe, write_beside, list_directory, change_locale, raise_signal, take_turns, take_turns,
};
enum { ALL = sizeof ACTS / sizeof *ACTS };

static void *go_on(void *act) {
    while (!done()) (*(void (*const *)(void))act)();
    return 0;
}

static void outgrow(void) {
    pthread_t threads[ALL];
    for (int i = 0; i < ALL; i++) MUST(pthread_create(&threads[i], 0, go_on, (void *)&ACTS[i]) == 0);
    usleep(20000);
    char *memory = map(BYTES);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at + 1;
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + 1);
    __atomic_store_n(&is_done, 1, __ATOMIC_SEQ_CST);
    for (int i = 0; i < ALL; i++) MUST(pthread_join(threads[i], 0) == 0);
}

int main(void) {
    in_children(TIMES, outgrow);
    puts("exact");
    return 0;
}
