// Fills and checks three times a budget of 16 MiB.
#include "must.h"

enum { BYTES = 48 << 20 };

int main(void) {
    char *memory = malloc(BYTES);
    MUST(memory);
    for (int i = 0; i < BYTES; i++)
        memory[i] = (char)(i >> 12);
    for (int i = 0; i < BYTES; i++)
        MUST(memory[i] == (char)(i >> 12));
    puts("exact");
    return 0;
}
