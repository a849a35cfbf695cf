// Gets its memory, and ends, by system calls of its own, as Go's runtime does.
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#include "raw.h"

enum { BYTES = 48 << 20 };

int main(void) {
    char *memory = (char *)RAW(SYS_mmap, 0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, BYTES);
    for (int at = 0; at < BYTES; at += 4096)
        if (memory[at] != 1)
            return 1;
    puts("exact");
    fflush(stdout);
    RAW(SYS_exit_group, 0);
}
