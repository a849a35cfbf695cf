// A library that is loaded with RTLD_DEEPBIND, as PHP loads its extensions, and the program that loads it: both free what
// the other has allocated, and the library reads a file into memory of the program's, which is swapped out. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

enum { BYTES = 40 << 20, PAGE = 4096 };

#ifdef LIBRARY

char *exchange(char *text, char *pages) {
    char *own = strdup(text);
    free(text);
    int file = open("/dev/zero", O_RDONLY);
    MUST(file >= 0 && read(file, pages, BYTES / 2) == BYTES / 2);
    close(file);
    return own;
}

#else

int main(int count, char **arguments) {
    MUST(count == 2);
    // Beside the program, as its DT_RUNPATH says: the caller counts.
    void *library = dlopen(arguments[1], RTLD_NOW | RTLD_DEEPBIND);
    if (!library) printf("%s\n", dlerror());
    MUST(library);
    char *(*exchange)(char *, char *) = (char *(*)(char *, char *))dlsym(library, "exchange");
    char *pages = malloc(BYTES);
    MUST(exchange && pages);
    memset(pages, 7, BYTES);
    char *text = exchange(strdup("a text"), pages);
    MUST(!strcmp(text, "a text"));
    free(text);
    for (long at = 0; at < BYTES; at += PAGE) MUST(pages[at] == (at < BYTES / 2 ? 0 : 7));
    puts("exact");
}

#endif
