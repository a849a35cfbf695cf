// mseal: of managed memory it is refused by every way to ask for it, and the memory is as it was; of a file's it is the kernel's.
#define _GNU_SOURCE
#include "must.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { MSEAL = 462, BYTES = 40 << 20, MOST = 4 << 20 };

static void refused(char *memory) {
    MUST(syscall(MSEAL, memory, MOST, 0) == -1 && errno == ENOSYS);
    MUST(raw_call(MSEAL, memory, MOST, 0) == -ENOSYS);
    int (*seal)(void *, size_t, unsigned long) = dlsym(RTLD_DEFAULT, "mseal");
    MUST(!seal || (seal(memory, MOST, 0) == -1 && errno == ENOSYS));
}

int main(void) {
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    refused(memory);
    for (size_t at = 0; at < BYTES; at += 4096) memory[at] = 1 + at / 4096 % 100;
    refused(memory);
    for (size_t at = 0; at < BYTES; at += 4096) MUST(memory[at] == 1 + at / 4096 % 100);
    // What it would forbid is allowed.
    MUST(!munmap(memory, MOST));
    char *file = mmap(0, 4096, PROT_READ, MAP_PRIVATE, open("/proc/self/exe", O_RDONLY), 0);
    MUST(file != MAP_FAILED);
    if (!syscall(MSEAL, file, 4096, 0)) MUST(munmap(file, 4096) == -1 && errno == EPERM);
    puts("exact");
    return 0;
}
