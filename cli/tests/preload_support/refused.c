// A program whose own filter of system calls refuses what an engine needs before there is one, in all its threads or in one
// ("all", "one"), and that then has four times as much memory as there is RAM for. Prints "exact" if every word is right.
#define _GNU_SOURCE
#include "must.h"
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stddef.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WORDS = (64 << 20) / sizeof(long) };

static void confine(int all) {
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_ioctl, 0, 4),
        // Of terminals, and no others.
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[1])),
        BPF_STMT(BPF_ALU | BPF_RSH | BPF_K, 8),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, 'T', 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    if (all) MUST(!syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program));
    else MUST(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
}

static void *rest(void *end) {
    char byte;
    MUST(read(*(int *)end, &byte, 1) == 0);
    return 0;
}

static void check(const long *words) {
    for (long i = 0; i < WORDS; i += 512) MUST(words[i] == i * 7 + 1);
}

static void fork_and_check(const long *words) {
    int status;
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        check(words);
        _exit(7);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    check(words);
}

int main(int count, char **arguments) {
    MUST(count == 2);
    int ends[2];
    pthread_t other;
    MUST(!pipe(ends));
    MUST(!pthread_create(&other, 0, rest, ends));
    confine(!strcmp(arguments[1], "all"));
    long *words = malloc(WORDS * sizeof *words);
    for (long i = 0; i < WORDS; i += 512) words[i] = i * 7 + 1;
    check(words);
    if (!strcmp(arguments[1], "all")) fork_and_check(words);
    close(ends[1]);
    MUST(!pthread_join(other, 0));
    puts("exact");
    return 0;
}
