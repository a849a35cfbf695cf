// Reads 40 MiB in order after advice given before anything was touched: 0 normal, 1 random, 2 sequential;
// with 3 the advice is random and taken back.
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>

#define PAGE 4096
#define PAGES (40 * 256)
#define MUST(what) if (!(what)) { printf("line %d: %s\n", __LINE__, #what); exit(1); }

int main(int count, char **arguments) {
    static const int advices[] = {MADV_NORMAL, MADV_RANDOM, MADV_SEQUENTIAL, MADV_RANDOM};
    int which = count > 1 ? atoi(arguments[1]) : 0;
    char *memory = mmap(NULL, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    MUST(madvise(memory, (size_t)PAGES * PAGE, advices[which]) == 0);
    if (which == 3) MUST(madvise(memory, (size_t)PAGES * PAGE, MADV_NORMAL) == 0);
    for (int page = 0; page < PAGES; page++) *(volatile int *)(memory + (size_t)page * PAGE) = page + 1;
    MUST(madvise(memory, (size_t)PAGES * PAGE / 2, MADV_COLD) == 0);
    for (int page = 0; page < PAGES; page++)
        MUST(*(volatile int *)(memory + (size_t)page * PAGE) == page + 1);
    puts("exact");
}
