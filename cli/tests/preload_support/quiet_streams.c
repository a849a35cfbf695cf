/* Streams and a directory that the program leaves alone until their buffers have long been swapped out, and some that it
 * opens then: whatever the C library has of them, the kernel reads and writes it. */
#define _GNU_SOURCE
#include "must.h"
#include <dirent.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 48 << 20, FILES = 40, LINES = 2000, NAMES = 1000 };

static char *memory;

static void go_over(long seed) {
    for (long at = 0; at < BYTES; at += PAGE) MUST(*(long *)(memory + at) == at + seed);
    for (long at = 0; at < BYTES; at += PAGE) ++*(long *)(memory + at);
}

static void write_lines(FILE *to, int first, int end) {
    for (int line = first; line < end; line++) MUST(fprintf(to, "line %d\n", line) > 0);
}

static void read_lines(FILE *from) {
    char *line = 0;
    size_t room = 0;
    int expected = 0, found;
    while (getline(&line, &room, from) > 0) {
        MUST(sscanf(line, "line %d", &found) == 1 && found == expected);
        expected++;
    }
    MUST(expected == LINES && !ferror(from));
    free(line);
}

/* As many names as the C library reads at several times. */
static void make_directory(char *path) {
    MUST(mkdtemp(path));
    for (int i = 0; i < NAMES; i++) {
        char name[300];
        sprintf(name, "%s/%0200d", path, i);
        MUST(symlink("nowhere", name) == 0);
    }
}

static void remove_directory(const char *path) {
    for (int i = 0; i < NAMES; i++) {
        char name[300];
        sprintf(name, "%s/%0200d", path, i);
        MUST(unlink(name) == 0);
    }
    MUST(rmdir(path) == 0);
}

static int entries(DIR *directory, int most) {
    int count = 0;
    while (count < most && readdir(directory)) count++;
    return count;
}

int main(void) {
    FILE *early[FILES], *child = popen("tr a-z A-Z | wc -l", "w");
    MUST(child);
    for (int i = 0; i < FILES; i++) {
        MUST((early[i] = tmpfile()));
        write_lines(early[i], 0, LINES / 2);
    }
    char path[] = "/tmp/quiet-XXXXXX";
    make_directory(path);
    DIR *directory = opendir(path);
    MUST(directory && entries(directory, 3) == 3);
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (long at = 0; at < BYTES; at += PAGE) *(long *)(memory + at) = at;
    for (int time = 0; time < 3; time++) go_over(time);
    for (int i = 0; i < FILES; i++) {
        write_lines(early[i], LINES / 2, LINES);
        rewind(early[i]);
    }
    go_over(3);
    for (int i = 0; i < FILES; i++) {
        read_lines(early[i]);
        MUST(fclose(early[i]) == 0);
    }
    write_lines(child, 0, LINES);
    MUST(pclose(child) == 0);
    /* Two names are the directory's own. */
    MUST(entries(directory, 1 << 20) == NAMES + 2 - 3 && closedir(directory) == 0);
    for (int time = 4; time < 8; time++) {
        FILE *late = tmpfile();
        DIR *all = opendir(path);
        MUST(late && all);
        go_over(time);
        write_lines(late, 0, LINES);
        rewind(late);
        read_lines(late);
        MUST(fclose(late) == 0 && entries(all, 1 << 20) == NAMES + 2 && closedir(all) == 0);
    }
    remove_directory(path);
    puts("exact");
    return 0;
}
