// Starts a program as Go does: vfork and execve in its own code.
#define _GNU_SOURCE
#include "must.h"
#include "raw.h"
#include <sched.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

int main(int count, char **arguments) {
    int status;
    long child = RAW(SYS_clone, CLONE_VM | CLONE_VFORK | SIGCHLD);
    if (!child) {
        RAW(SYS_execve, arguments[1], arguments + 1, environ);
        RAW(SYS_exit, 1);
    }
    MUST(child > 0 && RAW(SYS_wait4, child, &status, 0, 0) == child && !status);
    return 0;
}
