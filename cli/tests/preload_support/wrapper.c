// A library that is preloaded before the one that is tested. With COUNTS it hands malloc on to the next library, as heap profilers do,
// and reads its environment at the first block.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#ifdef COUNTS
static void *(*next_malloc)(size_t);
static const char *told;
static unsigned long blocks;

void *malloc(size_t bytes) {
    if (!next_malloc) {
        next_malloc = (void *(*)(size_t))dlsym(RTLD_NEXT, "malloc");
        told = getenv("WRAPPER_TOLD");
        unsetenv("LD_PRELOAD");
    }
    blocks++;
    return next_malloc(bytes);
}

__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "wrapper: %s, %s\n", told ? told : "told nothing", blocks ? "blocks" : "no blocks");
}
#else
__attribute__((destructor)) static void end(void) {
    fprintf(stderr, "wrapper: %s\n", getenv("WRAPPER_TOLD"));
}
#endif
