// A condition that has to hold; the program says which line it fails on, and ends.
#pragma once
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#define MUST(condition)                                                                        \
    do {                                                                                       \
        if (!(condition)) {                                                                    \
            fprintf(stderr, "line %d: %s fails (errno %d)\n", __LINE__, #condition, errno);     \
            exit(1);                                                                           \
        }                                                                                      \
    } while (0)
