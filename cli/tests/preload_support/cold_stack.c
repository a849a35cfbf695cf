/* A coroutine on a stack that is managed calls what changes memory, while all of its stack has left. */
#define _GNU_SOURCE
#include "must.h"
#include <alloca.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

enum { PAGE = 4096, SHIFT = 176, STACK = 256 << 10, BYTES = 64 << 20, OTHER = 1 << 20 };

static ucontext_t main_context, coroutine;
static char *stack;
static int is_over;

/* The other one has all of the stack leave. */
static void leave(void) { MUST(swapcontext(&coroutine, &main_context) == 0); }

static void deep(int left) {
    volatile char room[PAGE];
    room[0] = (char)left;
    if (left) deep(left - 1);
    room[1] = room[0];
}

static void body(void) {
    for (int i = 0; i < PAGE / SHIFT + 1; i++) {
        /* Each time the next page below begins elsewhere in what is called. */
        *(volatile char *)alloca(SHIFT) = 1;
        deep(40);
        leave();
        char *memory = mmap(0, OTHER, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        MUST(memory != MAP_FAILED);
        memset(memory, 1, OTHER);
        leave();
        MUST(madvise(memory, OTHER / 2, MADV_PAGEOUT) == 0);
        leave();
        MUST(madvise(memory, OTHER / 4, MADV_DONTNEED) == 0 && memory[0] == 0 && memory[OTHER - 1] == 1);
        leave();
        MUST(mprotect(memory, OTHER, PROT_READ) == 0);
        leave();
        memory = mremap(memory, OTHER, 2 * OTHER, MREMAP_MAYMOVE);
        MUST(memory != MAP_FAILED && memory[OTHER - 1] == 1);
        leave();
        MUST(munmap(memory, 2 * OTHER) == 0);
        leave();
        char *block = malloc(8 << 20);
        MUST(block);
        memset(block, 2, 8 << 20);
        leave();
        block = realloc(block, 16 << 20);
        MUST(block && block[0] == 2 && block[(8 << 20) - 1] == 2);
        leave();
        free(block);
        for (int j = 0; j < 16 * TIMES; j++) {
            leave();
            block = malloc(100000);
            memset(block, 3, 100000);
            leave();
            free(block);
        }
    }
    is_over = 1;
    leave();
}

int main(void) {
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) memory[at] = (char)(at / PAGE);
    stack = mmap(0, STACK, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(stack != MAP_FAILED && getcontext(&coroutine) == 0);
    coroutine.uc_stack.ss_sp = stack;
    coroutine.uc_stack.ss_size = STACK;
    makecontext(&coroutine, body, 0);
    while (!is_over) {
        MUST(swapcontext(&main_context, &coroutine) == 0);
        MUST(madvise(stack, STACK, MADV_PAGEOUT) == 0);
    }
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == (char)(at / PAGE));
    puts("exact");
    return 0;
}
