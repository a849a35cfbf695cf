// Room that a program finds by looking.
#pragma once
#include "must.h"
#include <stdint.h>

// The lowest that /proc/self/maps shows.
static inline char *room(size_t bytes) {
    FILE *maps = fopen("/proc/self/maps", "r");
    char line[512];
    uintptr_t end = 65536, from, to;
    MUST(maps);
    while (fgets(line, sizeof line, maps)) {
        MUST(sscanf(line, "%lx-%lx", &from, &to) == 2);
        if (from >= end && from - end >= bytes) break;
        if (to > end) end = to;
    }
    MUST(!fclose(maps));
    return (char *)end;
}
