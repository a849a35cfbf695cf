// Children under filters of system calls that permit next to nothing end as they say, with an engine and without one.
#define _GNU_SOURCE
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

#define MAY(number) BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 1), BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW)

enum { STRICT, BY_PRCTL, BY_NUMBER, WAYS };

static void confine(int way) {
    struct sock_filter steps[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        MAY(SYS_write), MAY(SYS_exit_group), MAY(SYS_exit), MAY(SYS_rt_sigreturn),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
    };
    struct sock_fprog program = {sizeof steps / sizeof *steps, steps};
    MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    if (way == STRICT) MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
    if (way == BY_PRCTL) MUST(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0);
    if (way == BY_NUMBER) MUST(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program) == 0);
}
static void try_all(void) {
    for (int way = 0; way < WAYS; way++) {
        pid_t child = fork();
        MUST(child >= 0);
        if (child == 0) {
            confine(way);
            if (way == STRICT) syscall(SYS_exit, 7);
            _exit(7);
        }
        int status;
        MUST(waitpid(child, &status, 0) == child);
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 7) {
            fprintf(stderr, "way %d ends with %x\n", way, status);
            exit(1);
        }
    }
}
int main(void) {
    try_all();
    enum { BYTES = 40 << 20, PAGE = 4096 };
    char *block = malloc(BYTES);
    MUST(block);
    for (long at = 0; at < BYTES; at += PAGE) block[at] = (char)(at / PAGE);
    try_all();
    for (long at = 0; at < BYTES; at += PAGE) MUST(block[at] == (char)(at / PAGE));
    puts("exact");
}
