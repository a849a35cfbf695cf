// An allocator that a program brings along: as a part of it, or as a library that it is linked to.
//
// It does what the known ones do: it holds its lock around mmap, holds it across fork, defines the names by which
// the C library exports its own, serves some calls without going through malloc or free, and leaves
// strdup and its like to the C library. A block that is not its own ends the program.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { CLASSES = 40, MAGIC = 0x5eed5eed, CHUNK = 1 << 20 };

struct header {
    uint32_t magic, class;
    struct header *next;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct header *freed[CLASSES];
static char *chunk;
static size_t left;
static volatile char *first;

// Looks at its memory, which may have left: handlers of fork run before the engine stops for it.
static void prepare(void) {
    pthread_mutex_lock(&lock);
    for (size_t at = 0; first && at < CHUNK; at += 4096)
        (void)first[at];
}
static void after(void) { pthread_mutex_unlock(&lock); }
__attribute__((constructor)) static void start(void) { pthread_atfork(prepare, after, after); }

static void *take(size_t bytes) {
    uint32_t class = 5;
    while (((size_t)1 << class) < bytes + sizeof(struct header))
        class++;
    size_t whole = (size_t)1 << class;
    pthread_mutex_lock(&lock);
    struct header *block = freed[class];
    if (block) {
        freed[class] = block->next;
    } else {
        if (left < whole) {
            size_t grown = whole > CHUNK ? whole : CHUNK;
            chunk = mmap(0, grown, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
            if (chunk == MAP_FAILED)
                _exit(65);
            left = grown;
            if (!first)
                first = chunk;
        }
        block = (struct header *)chunk;
        chunk += whole;
        left -= whole;
    }
    pthread_mutex_unlock(&lock);
    block->magic = MAGIC;
    block->class = class;
    return block + 1;
}

static struct header *header_of(void *pointer) {
    struct header *block = (struct header *)pointer - 1;
    if (block->magic != MAGIC) {
        if (write(2, "not a block of this allocator\n", 30)) {}
        _exit(66);
    }
    return block;
}

static void give(void *pointer) {
    if (!pointer)
        return;
    struct header *block = header_of(pointer);
    pthread_mutex_lock(&lock);
    block->magic = 0;
    block->next = freed[block->class];
    freed[block->class] = block;
    pthread_mutex_unlock(&lock);
}

void *malloc(size_t bytes) { return take(bytes); }
void free(void *pointer) { give(pointer); }
void *calloc(size_t count, size_t each) { return memset(take(count * each), 0, count * each); }
void *realloc(void *pointer, size_t bytes) {
    void *moved = take(bytes);
    if (pointer) {
        size_t had = ((size_t)1 << header_of(pointer)->class) - sizeof(struct header);
        memcpy(moved, pointer, had < bytes ? had : bytes);
        give(pointer);
    }
    return moved;
}
static void *aligned(size_t align, size_t bytes) {
    if (align <= 16)
        return take(bytes);
    char *pointer = take(bytes + align + sizeof(struct header));
    char *result = (char *)(((uintptr_t)pointer + sizeof(struct header) + align - 1) & -align);
    // Never given back, but a block all the same.
    ((struct header *)result - 1)->magic = MAGIC;
    ((struct header *)result - 1)->class = 5;
    return result;
}
void *memalign(size_t align, size_t bytes) { return aligned(align, bytes); }
void *aligned_alloc(size_t align, size_t bytes) { return aligned(align, bytes); }
int posix_memalign(void **result, size_t align, size_t bytes) {
    *result = aligned(align, bytes);
    return 0;
}
void *__libc_malloc(size_t bytes) { return take(bytes); }
void *__libc_calloc(size_t count, size_t each) { return calloc(count, each); }
void *__libc_realloc(void *pointer, size_t bytes) { return realloc(pointer, bytes); }
void *__libc_memalign(size_t align, size_t bytes) { return aligned(align, bytes); }
void __libc_free(void *pointer) { give(pointer); }

// As C++'s new and delete in some allocators: one goes straight to work, the other through free.
void *own_new(size_t bytes) { return take(bytes); }
void own_delete(void *pointer) { free(pointer); }
