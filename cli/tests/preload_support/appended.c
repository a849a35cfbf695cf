// What several processes write to the end of one file, and threads to one stream, stays together, as far as it fits the budget.
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { RECORD = 2 << 20, WRITERS = 4, RECORDS = 4, LARGE = 70 << 20 };
static FILE *stream;

static void check(int file) {
    char *record = malloc(RECORD);
    for (int count = 0; count < WRITERS * RECORDS; count++) {
        MUST(pread(file, record, RECORD, (off_t)count * RECORD) == RECORD);
        for (long at = 0; at < RECORD; at++) MUST(record[at] == record[0]);
    }
    free(record);
}
static void *print(void *letter) {
    char *record = malloc(RECORD);
    memset(record, (long)letter, RECORD);
    for (int count = 0; count < RECORDS; count++) MUST(fwrite(record, 1, RECORD, stream) == RECORD);
    free(record);
    return 0;
}
int main(int count, char **arguments) {
    MUST(count == 2);
    char *large = malloc(LARGE);
    MUST(large);
    memset(large, 1, LARGE);
    int file = open(arguments[1], O_CREAT | O_TRUNC | O_RDWR | O_APPEND, 0600);
    MUST(file >= 0);
    for (int writer = 0; writer < WRITERS; writer++) {
        if (fork() != 0) continue;
        char *record = malloc(RECORD);
        memset(record, 'a' + writer, RECORD);
        for (int done = 0; done < RECORDS; done++) MUST(write(file, record, RECORD) == RECORD);
        _exit(0);
    }
    for (int status; wait(&status) > 0;) MUST(status == 0);
    check(file);
    MUST(ftruncate(file, 0) == 0);
    stream = fdopen(dup(file), "a");
    MUST(stream);
    pthread_t threads[WRITERS];
    for (long writer = 0; writer < WRITERS; writer++) MUST(pthread_create(&threads[writer], 0, print, (void *)('a' + writer)) == 0);
    for (int writer = 0; writer < WRITERS; writer++) MUST(pthread_join(threads[writer], 0) == 0);
    MUST(fclose(stream) == 0);
    check(file);
    MUST(unlink(arguments[1]) == 0);
    puts("exact");
}
