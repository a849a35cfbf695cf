// Loads a library that is a program (-Dmain=program), and runs it with signals as a thread can have them whose calls nothing
// has caught so far: "here", or in a "thread" that was there before.
#define _GNU_SOURCE
#include "must.h"
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

typedef int program(int, char **);
static program *loaded;
static char **words;
static int count, gate[2];
static volatile int caught;

// A call of its own, in a handler that blocks everything.
static void handle(int number) {
    (void)number;
    caught = raw_call(SYS_getppid, 0, 0, 0) == getppid();
}

static void take_small_stack(void) {
    stack_t small = {.ss_sp = malloc(MINSIGSTKSZ), .ss_size = MINSIGSTKSZ};
    MUST(!sigaltstack(&small, 0));
}

static void block_what_will_be_ours(void) {
    sigset_t ours;
    sigemptyset(&ours);
    sigaddset(&ours, SIGSYS);
    MUST(!pthread_sigmask(SIG_BLOCK, &ours, 0));
}

static void *run(void *unused) {
    (void)unused;
    take_small_stack();
    char byte;
    MUST(read(gate[0], &byte, 1) == 1);
    // A child of it that has its thread-locals, and calls the C library, is not what is caught.
    pid_t child = vfork();
    if (!child) {
        MUST(mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0) != MAP_FAILED);
        _exit(0);
    }
    MUST(child > 0 && waitpid(child, 0, 0) == child);
    // From here on it is.
    MUST(!munmap(mmap(0, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), 4096));
    return (void *)(long)loaded(count, words);
}

int main(int all, char **arguments) {
    int is_in_thread = !strcmp(arguments[1], "thread");
    count = all - 2, words = arguments + 2;
    MUST(!pipe(gate));
    struct sigaction action = {.sa_handler = handle};
    sigfillset(&action.sa_mask);
    MUST(!sigaction(SIGWINCH, &action, 0));
    pthread_t thread;
    if (is_in_thread) MUST(!pthread_create(&thread, 0, run, 0));
    else take_small_stack(), block_what_will_be_ours();
    void *library = dlopen(words[0], RTLD_NOW);
    if (!library) fprintf(stderr, "%s\n", dlerror());
    MUST(library);
    loaded = (program *)dlsym(library, "program");
    MUST(loaded);
    MUST(!raise(SIGWINCH) && caught);
    if (!is_in_thread) return loaded(count, words);
    void *result;
    MUST(write(gate[1], "", 1) == 1);
    MUST(!pthread_join(thread, &result));
    return (int)(long)result;
}
