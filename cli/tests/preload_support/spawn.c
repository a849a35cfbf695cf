// What the child of posix_spawn reads of its parent's memory has left RAM: attributes, file actions, their list and paths, the name
// of the program, the variables.
#define _GNU_SOURCE
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 48 << 20, STEP = 1 << 20 };

extern char **environ;
static char *memory;

// A piece of memory on pages of its own.
static void *place(int number) { return memory + number * STEP; }

static void *copied(int number, const char *text) { return strcpy(place(number), text); }

static void leave(void) {
    if (madvise(memory, 12 * STEP, MADV_PAGEOUT))
        exit(2);
}

int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    memset(memory, 1, BYTES);
    posix_spawn_file_actions_t *actions = place(0);
    posix_spawnattr_t *attributes = place(1);
    if (posix_spawn_file_actions_init(actions) || posix_spawn_file_actions_addopen(actions, 0, copied(2, "/dev/null"), 0, 0) ||
        posix_spawn_file_actions_addchdir_np(actions, copied(3, "/")) || posix_spawnattr_init(attributes))
        return 3;
    char **words = place(4), **variables = place(5);
    words[0] = copied(6, "true");
    words[1] = 0;
    variables[0] = copied(7, "PATH=/usr/bin:/bin");
    variables[1] = 0;
    environ = variables;
    const char *file = copied(8, "/bin/true"), *name = place(6);
    for (int turn = 0; turn < 40; turn++) {
        pid_t child;
        int status = -1;
        leave();
        int error = turn % 2 ? posix_spawn(&child, file, actions, attributes, words, variables)
                             : posix_spawnp(&child, name, actions, attributes, words, variables);
        if (error || waitpid(child, &status, 0) != child || status) {
            printf("turn %d: %s, status %#x\n", turn, strerror(error), status);
            return 4;
        }
    }
    puts("exact");
}
