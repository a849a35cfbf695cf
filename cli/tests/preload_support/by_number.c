// What syscall() does to memory, descriptors and rights is done to this program's, before and after the engine starts.
// Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

enum { BYTES = 48 << 20, PAGE = 4096 };

// Whether the kernel can read a page; not by a function that prepares it.
static int is_readable(const char *page) {
    int ends[2];
    MUST(!pipe(ends));
    long count = RAW(SYS_write, ends[1], page, 8);
    MUST(count == 8 || count == -EFAULT);
    close(ends[0]);
    close(ends[1]);
    return count == 8;
}

static void protect(char *memory) {
    MUST(is_readable(memory));
    MUST(!syscall(SYS_mprotect, memory, PAGE, PROT_NONE) && !is_readable(memory));
    MUST(!syscall(SYS_mprotect, memory, PAGE, PROT_READ | PROT_WRITE) && is_readable(memory));
}

static void close_all(void) {
    // Ours are not there for the program, at whatever numbers.
    for (int fd = 3; fd < 1000; fd++) syscall(SYS_close, fd);
}

int main(int count, char **arguments) {
    int becomes_user = count > 1 && !strcmp(arguments[1], "user");
    char *small = mmap(0, PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(small != MAP_FAILED);
    *small = 1;
    protect(small);
    if (becomes_user) MUST(!syscall(SYS_setresuid, 65534, 65534, 65534) && geteuid() == 65534);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long i = 0; i < BYTES; i += PAGE) *(long *)(memory + i) = i + 1;
    protect(memory + BYTES - PAGE);
    close_all();
    for (long i = 0; i < BYTES; i += PAGE) MUST(*(long *)(memory + i) == i + 1);
    puts("exact");
    return 0;
}
