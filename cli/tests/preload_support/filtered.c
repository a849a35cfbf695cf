// Runs a program some of whose system calls end with EPERM, as a container's seccomp profile has it.
//
// filtered NUMBER,NUMBER… PROGRAM ARGUMENTS
#include <errno.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "must.h"

enum { CALLS_MAX = 64 };

int main(int count, char **words) {
    MUST(count > 2);
    struct sock_filter filter[2 * CALLS_MAX + 2] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    };
    unsigned short steps = 1;
    for (char *number = strtok(words[1], ","); number; number = strtok(NULL, ",")) {
        MUST(steps < 2 * CALLS_MAX);
        filter[steps++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, atoi(number), 0, 1);
        filter[steps++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[steps++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    struct sock_fprog program = { steps, filter };
    MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    MUST(!prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program));
    execv(words[2], words + 2);
    MUST(!"the program starts");
}
