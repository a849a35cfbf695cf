// Starts a program without any environment, which Linux takes as an empty one: by its path, spawned, or by a descriptor.
#define _GNU_SOURCE
#include <fcntl.h>
#include <spawn.h>
#include <string.h>
#include "children.h"

int main(int count, char **words) {
    char **volatile none = 0;
    MUST(count == 3);
    if (strcmp(words[1], "path") == 0) {
        execve(words[2], words + 2, none);
    } else if (strcmp(words[1], "spawn") == 0) {
        pid_t child;
        MUST(posix_spawn(&child, words[2], 0, 0, words + 2, none) == 0);
        end_well(child);
        return 0;
    } else {
        fexecve(open(words[2], O_RDONLY), words + 2, (char *[]){0});
    }
    MUST(!"started");
}
