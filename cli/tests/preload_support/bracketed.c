// A program with an allocator of its own that runs the handlers of fork around clones that it makes itself, as Firefox does,
// and forks; its threads have used thread-locals of a library that was loaded later, whose blocks are the allocator's. A
// child of either kind finds its parent's memory, which is more than there is RAM for. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <setjmp.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#ifdef LIBRARY

static _Thread_local char own[3000];

char *locals(void) { return own; }

#else

enum { PAGE = 4096, BYTES = 40 << 20, THREADS = 24, HANDLERS_MAX = 32, ROUNDS = 4 };

typedef void handler(void);
typedef int registers(handler *, handler *, handler *, void *);

static handler *before[HANDLERS_MAX], *parent[HANDLERS_MAX], *child[HANDLERS_MAX];
static int handlers;

// In front of the C library's, which it calls.
int __register_atfork(handler *prepare, handler *in_parent, handler *in_child, void *library) {
    MUST(handlers < HANDLERS_MAX);
    before[handlers] = prepare, parent[handlers] = in_parent, child[handlers++] = in_child;
    return ((registers *)dlsym(RTLD_NEXT, "__register_atfork"))(prepare, in_parent, in_child, library);
}

// Named as Mozilla's are.
__asm__(".globl _Z39run_moz_pthread_atfork_handlers_preforkv, _Z47run_moz_pthread_atfork_handlers_postfork_parentv\n"
        ".set _Z39run_moz_pthread_atfork_handlers_preforkv, begin\n"
        ".set _Z47run_moz_pthread_atfork_handlers_postfork_parentv, end\n"
        ".type _Z39run_moz_pthread_atfork_handlers_preforkv, @function\n"
        ".type _Z47run_moz_pthread_atfork_handlers_postfork_parentv, @function\n");

void begin(void) {
    for (int i = handlers; i-- > 0;)
        if (before[i]) before[i]();
}

void end(void) {
    for (int i = 0; i < handlers; i++)
        if (parent[i]) parent[i]();
}

static void end_in_child(void) {
    for (int i = 0; i < handlers; i++)
        if (child[i]) child[i]();
}

static char *(*locals)(void);
static pthread_barrier_t all;

// Its end is the program's.
static void *use(void *number) {
    memset(locals(), (int)(intptr_t)number, 3000);
    free(malloc(100));
    pthread_barrier_wait(&all);
    for (;;) pause();
    return number;
}

static int leave(void *to) { longjmp(*(jmp_buf *)to, 1); }

__attribute__((noinline)) static int on_small_stack(jmp_buf *to) {
    _Alignas(16) char stack[16 << 10];
    return clone(leave, stack + sizeof stack, CLONE_NEWUTS | SIGCHLD, to);
}

static int cloned(void) {
    begin();
    jmp_buf here;
    int made = setjmp(here) ? 0 : on_small_stack(&here);
    if (made) end(); else end_in_child();
    return made;
}

static void check(const char *memory) {
    for (long page = 0; page < BYTES / PAGE; page++) MUST(*(long *)(memory + page * PAGE) == page + 7);
}

static void is_right(int made, const char *memory) {
    MUST(made >= 0);
    if (!made) {
        check(memory);
        char *text = strdup("a text");
        MUST(!strcmp(text, "a text"));
        free(text);
        memset(locals(), 1, 3000);
        _exit(0);
    }
    int status;
    MUST(waitpid(made, &status, 0) == made && !status);
}

int main(int count, char **arguments) {
    MUST(count == 2);
    void *library = dlopen(arguments[1], RTLD_NOW);
    MUST(library);
    locals = (char *(*)(void))dlsym(library, "locals");
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(locals && memory != MAP_FAILED);
    pthread_barrier_init(&all, 0, THREADS + 1);
    // On stacks of the C library's, which a child takes for threads of its own.
    for (intptr_t number = 0; number < THREADS; number++) {
        pthread_attr_t attributes;
        pthread_t thread;
        pthread_attr_init(&attributes);
        pthread_attr_setstacksize(&attributes, 2 << 20);
        MUST(!pthread_create(&thread, &attributes, use, (void *)number));
    }
    pthread_barrier_wait(&all);
    for (long page = 0; page < BYTES / PAGE; page++) *(long *)(memory + page * PAGE) = page + 7;
    for (int round = 0; round < ROUNDS; round++) {
        is_right(fork(), memory);
        is_right(cloned(), memory);
        check(memory);
    }
    puts("exact");
    fflush(stdout);
    _exit(0);
}

#endif
