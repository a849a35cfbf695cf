// Libraries whose relocated data is large: it is what it was at every moment, also while libraries come and go, and private
// memory only where it has to be. Arguments: what becomes of it (moves, stays, locked, locked-heap), three
// libraries.
#include "must.h"
#include <stddef.h>
#include <stdint.h>

#define ENTRIES (128 << 10)

#ifdef LIBRARY
// A mebibyte of pointers, each one another, which the linker relocates and protects then.
__asm__(".section .data.rel.ro, \"aw\", @progbits\n.balign 8\ntable:\n.set i, 0\n.rept 128 << 10\n.quad marks + i\n.set i, i + 1\n.endr\n"
        ".bss\nmarks: .skip 128 << 10\n.text\n");
extern const char *const table[] __attribute__((visibility("hidden")));
extern const char marks[] __attribute__((visibility("hidden")));
const char *const *table_of(void) { return table; }
int is_right(void) {
    for (size_t i = 0; i < ENTRIES; i++)
        if (table[i] != marks + i) return 0;
    return 1;
}
#else

#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

struct library {
    void *handle;
    int (*is_right)(void);
    const char **table;
};

static struct library load(const char *path) {
    struct library loaded = {.handle = dlopen(path, RTLD_NOW)};
    MUST(loaded.handle);
    const char **(*table_of)(void) = (const char **(*)(void))dlsym(loaded.handle, "table_of");
    loaded.is_right = (int (*)(void))dlsym(loaded.handle, "is_right");
    MUST(table_of && loaded.is_right && loaded.is_right());
    loaded.table = table_of();
    return loaded;
}

// Private memory without a file in the mapping around an address, in KiB.
static long anonymous_kib(const void *address) {
    FILE *maps = fopen("/proc/self/smaps", "r");
    char line[512];
    uintptr_t from, to;
    long kib = -1;
    int is_it = 0;
    MUST(maps);
    while (kib < 0 && fgets(line, sizeof line, maps)) {
        if (sscanf(line, "%lx-%lx ", &from, &to) == 2) is_it = from <= (uintptr_t)address && (uintptr_t)address < to;
        if (is_it) sscanf(line, "Anonymous: %ld", &kib);
    }
    fclose(maps);
    return kib;
}

static atomic_int is_over;

static void *read_on(void *first) {
    while (!atomic_load(&is_over)) {
        MUST(((struct library *)first)->is_right());
        // The CPUs are for what moves it, too.
        usleep(1000);
    }
    return NULL;
}

// Half of it, as the linker's pages at the edges are left out.
static int has_moved(struct library library) { return anonymous_kib(library.table + ENTRIES / 2) < 512; }

// It is moved by a thread.
static int becomes(struct library library, int moved) {
    for (int tenths = 0; tenths < (moved ? 300 : 3); tenths++) {
        if (moved && has_moved(library)) return 1;
        usleep(100000);
    }
    return has_moved(library) == moved;
}

// Libraries come and go, and children load some, beside all the rest.
// A fork while another thread of the program's is in dlopen leaves the child the linker's lock (glibc 2.36), also natively: there
// is none of that here.
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static void *load_on(void *path) {
    while (!atomic_load(&is_over)) {
        MUST(!pthread_mutex_lock(&loading));
        struct library library = load(path);
        MUST(!dlclose(library.handle));
        pid_t child = fork();
        MUST(child >= 0);
        MUST(!pthread_mutex_unlock(&loading));
        if (!child) {
            library = load(path);
            MUST(library.is_right() && !dlclose(library.handle));
            _exit(0);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child && !status);
        usleep(10000);
    }
    return NULL;
}

// What is written there past the linker stays, whenever that is.
static void *patch_on(void *first) {
    const char **entry = ((struct library *)first)->table + ENTRIES / 3;
    void *page = (void *)((uintptr_t)entry & -4096);
    const char *was = *entry;
    for (long round = 0; !atomic_load(&is_over); round++) {
        const char *written = round % 2 ? was : "patched";
        MUST(!mprotect(page, 4096, PROT_READ | PROT_WRITE));
        *entry = written;
        MUST(!mprotect(page, 4096, PROT_READ));
        usleep(round % 7 * 100);
        MUST(*entry == written);
    }
    return NULL;
}

// The child may write there as it could before.
static void write_in_child(struct library library) {
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        const char **entry = library.table + ENTRIES / 2;
        void *page = (void *)((uintptr_t)entry & -4096);
        MUST(library.is_right() && !mprotect(page, 8192, PROT_READ | PROT_WRITE));
        *entry = "another";
        MUST(!strcmp(*entry, "another") && !library.is_right());
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && !status && library.is_right());
}

static char is_locked[4096];

int main(int count, char **arguments) {
    MUST(count == 5);
    int moves = !strcmp(arguments[1], "moves");
    if (!strcmp(arguments[1], "locked")) MUST(!mlock(is_locked, sizeof is_locked));
    if (!strcmp(arguments[1], "locked-heap")) MUST(!mlock(malloc(4096), 4096));
    struct library first = load(arguments[2]);
    pthread_t readers[2];
    for (int i = 0; i < 2; i++) MUST(!pthread_create(&readers[i], NULL, read_on, &first));
    struct library patched = load(arguments[4]);
    pthread_t loader, patcher;
    MUST(!pthread_create(&loader, NULL, load_on, arguments[3]) && !pthread_create(&patcher, NULL, patch_on, &patched));
    MUST(!has_moved(first));
    size_t bytes = 80 << 20;
    char *memory = malloc(bytes);
    MUST(memory);
    for (size_t at = 0; at < bytes; at += 4096) memory[at] = (char)(at >> 12) | 1;
    MUST(becomes(first, moves));
    for (int round = 0; round < 2 * TIMES; round++) {
        MUST(!pthread_mutex_lock(&loading));
        struct library second = load(arguments[3]);
        MUST(!pthread_mutex_unlock(&loading));
        MUST(becomes(second, moves) && second.is_right());
        if (round % 2 == 0) write_in_child(second);
        MUST(!pthread_mutex_lock(&loading));
        MUST(!dlclose(second.handle));
        MUST(!pthread_mutex_unlock(&loading));
    }
    write_in_child(first);
    for (size_t at = 0; at < bytes; at += 4096) MUST(memory[at] == ((char)(at >> 12) | 1));
    atomic_store(&is_over, 1);
    for (int i = 0; i < 2; i++) MUST(!pthread_join(readers[i], NULL));
    MUST(!pthread_join(loader, NULL) && !pthread_join(patcher, NULL) && first.is_right());
    puts("exact");
}
#endif
