// A program whose allocator does not touch what it gives out, and what the C library asks for with the kernel to write to it: a
// thread's attributes, while the memory that is given out next is not there. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>

enum { PAGE = 4096, BLOCK = 2 * PAGE, BLOCKS = 16 << 10, BYTES = 40 << 20, ROUNDS = 200 };

static char *blocks;
static int given, freed_count;
static void *freed[BLOCKS];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

void *malloc(size_t bytes) {
    pthread_mutex_lock(&lock);
    if (!blocks)
        blocks = mmap(0, (long)BLOCK * BLOCKS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void *block = freed_count ? freed[--freed_count] : blocks + (long)BLOCK * given++;
    pthread_mutex_unlock(&lock);
    return bytes <= BLOCK && given < BLOCKS ? block : 0;
}

void free(void *block) {
    if (!block) return;
    pthread_mutex_lock(&lock);
    freed[freed_count++] = block;
    pthread_mutex_unlock(&lock);
}

void *calloc(size_t count, size_t each) {
    void *block = malloc(count * each);
    return block ? memset(block, 0, count * each) : 0;
}

void *realloc(void *block, size_t bytes) {
    if (block && bytes <= BLOCK) return block;
    return malloc(bytes);
}

static void *look(void *argument) {
    pthread_attr_t attributes;
    void *stack;
    size_t bytes;
    // What was given back last is not what is given out now.
    freed_count = 0;
    int error = pthread_getattr_np(pthread_self(), &attributes);
    if (error) printf("%s\n", strerror(error));
    MUST(!error && !pthread_attr_getstack(&attributes, &stack, &bytes));
    MUST((char *)stack <= (char *)&bytes && (char *)&bytes < (char *)stack + bytes);
    pthread_attr_destroy(&attributes);
    return argument;
}

int main(void) {
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) memory[at] = 7;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_t thread;
        MUST(!pthread_create(&thread, 0, look, 0) && !pthread_join(thread, 0));
    }
    look(0);
    for (long at = 0; at < BYTES; at += PAGE) MUST(memory[at] == 7);
    puts("exact");
}
