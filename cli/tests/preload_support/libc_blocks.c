// Blocks that the C library has made for the program, and the program lets grow: they are not beside the budget.
#define _GNU_SOURCE
#include <string.h>
#include "must.h"

enum { BYTES = 40 << 20, PAGE = 4096, BUDGET_KB = 16 << 10 };

static long resident_kb(void) {
    FILE *status = fopen("/proc/self/status", "r");
    MUST(status);
    char line[256];
    long kb = -1;
    while (fgets(line, sizeof line, status))
        if (strncmp(line, "RssAnon:", 8) == 0) kb = strtol(line + 8, NULL, 10);
    fclose(status);
    MUST(kb >= 0);
    return kb;
}
int main(void) {
    char *line = NULL;
    size_t room = 0;
    FILE *file = fopen("/proc/self/status", "r");
    MUST(file);
    MUST(getline(&line, &room, file) > 0);
    fclose(file);
    MUST(strncmp(line, "Name:", 5) == 0);
    // Twice: first the engine starts meanwhile, then it is there.
    for (long bytes = BYTES; bytes <= 2L * BYTES; bytes += BYTES) {
        line = realloc(line, bytes);
        MUST(line);
        MUST(strncmp(line, "Name:", 5) == 0);
        for (int round = 1; round < 4; round++) {
            for (long at = PAGE; at < bytes; at += PAGE) {
                if (round > 1) MUST(line[at] == (char)(at / PAGE * (round - 1)));
                line[at] = (char)(at / PAGE * round);
            }
        }
        MUST(resident_kb() < BUDGET_KB + BYTES / 1024 / 2);
        MUST(strncmp(line, "Name:", 5) == 0);
    }
    free(line);
    puts("exact");
}
