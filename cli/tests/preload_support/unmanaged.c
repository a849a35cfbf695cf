// Fills memory that cannot be managed: mapped past userswap, or none if so asked.
#define _GNU_SOURCE
#include "must.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <sys/syscall.h>
#include <unistd.h>

// Without the budget, and the code of libraries, it is more than 30 MiB.
enum { BYTES = 49 << 20 };

// Past every function, as Go does.
static void *map_raw(long bytes, long protection, long flags) {
    register long r10 __asm__("r10") = flags, r8 __asm__("r8") = -1, r9 __asm__("r9") = 0;
    void *memory;
    __asm__ volatile("syscall"
                     : "=a"(memory)
                     : "a"(SYS_mmap), "D"(0), "S"(bytes), "d"(protection), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return memory;
}

int main(int count, char **arguments) {
    const char *how = count > 1 ? arguments[1] : "";
    int flags = MAP_PRIVATE | MAP_ANONYMOUS;
    void *memory = 0;
    if (!strcmp(how, "file")) {
        // Much that is none of the program's own, and gone at its end.
        int file = memfd_create("large", 0);
        MUST(file >= 0 && ftruncate(file, BYTES) == 0);
        memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    } else if (!strcmp(how, "segment")) {
        int segment = shmget(IPC_PRIVATE, BYTES, IPC_CREAT | 0600);
        MUST(segment >= 0 && (memory = shmat(segment, 0, 0)) != MAP_FAILED && shmctl(segment, IPC_RMID, 0) == 0);
    } else if (!strncmp(how, "raw", 3))
        memory = map_raw(BYTES, PROT_READ | PROT_WRITE, flags);
    else if (!strcmp(how, "sbrk"))
        memory = sbrk(BYTES);
    else if (!strcmp(how, "far"))
        memory = mmap((void *)(1ul << 45), BYTES, PROT_READ | PROT_WRITE, flags | MAP_FIXED, -1, 0);
    else
        memory = malloc(BYTES);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    if (!strcmp(how, "file"))
        MUST(munmap(memory, BYTES) == 0);
    if (!strcmp(how, "segment"))
        MUST(shmdt(memory) == 0);
    // Given back before the end.
    if (!strcmp(how, "raw-gone"))
        MUST(raw_call(SYS_munmap, memory, BYTES, 0) == 0);
    // A program without end is told of as well.
    for (int i = 0; !strcmp(how, "far") && i < 64; i++) {
        void *page = mmap(0, 4096, PROT_READ, flags, -1, 0);
        MUST(page != MAP_FAILED && !munmap(page, 4096));
    }
    // Not the end of an ordinary process, at which there is a look as well.
    if (!strcmp(how, "far"))
        syscall(SYS_exit_group, 0);
    return 0;
}
