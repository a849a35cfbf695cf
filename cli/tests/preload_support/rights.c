// Gives rights up before or after the program outgrows its budget, then forks: every byte stays on both sides.
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <grp.h>
#include <linux/capability.h>
#include <linux/landlock.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 24 << 20, NOBODY = 65534 };
static const char *empty_directory;
static int is_late;

static void give_user_up(void) {
    MUST(!setgroups(0, 0));
    MUST(!setgid(NOBODY));
    MUST(!setuid(NOBODY));
    MUST(setuid(0));
}

static void give_user_up_for_good(void) {
    MUST(!initgroups("nobody", NOBODY));
    MUST(!setresgid(NOBODY, NOBODY, NOBODY));
    MUST(!setresuid(NOBODY, NOBODY, NOBODY));
}

static void change_root(void) {
    MUST(!chroot(empty_directory) && !chdir("/"));
    MUST(access("/proc", F_OK));
}

static void change_root_and_user(void) {
    change_root();
    give_user_up();
}

static void drop_capabilities(void) {
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct none[2] = {};
    extern int capset(struct __user_cap_header_struct *, struct __user_cap_data_struct *);
    MUST(!capset(&header, none));
}

static void forbid_looking(void) {
    give_user_up();
    MUST(!prctl(PR_SET_DUMPABLE, 0, 0, 0, 0));
}

static void restrict_files(void) {
    MUST(!prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0));
    struct landlock_ruleset_attr handled = {.handled_access_fs = 0x1fff};
    int rules = syscall(SYS_landlock_create_ruleset, &handled, sizeof handled, 0);
    MUST(rules >= 0);
    MUST(!syscall(SYS_landlock_restrict_self, rules, 0));
    MUST(open("/proc/self/pagemap", O_RDONLY) < 0);
    MUST(open("/var/tmp", O_TMPFILE | O_RDWR, 0600) < 0);
    close(rules);
}

static void limit_descriptors(void) {
    struct rlimit few;
    MUST(!getrlimit(RLIMIT_NOFILE, &few));
    few.rlim_cur = 16;
    MUST(!setrlimit(RLIMIT_NOFILE, &few));
}

static void become_a_daemon(void) {
    pid_t child = fork();
    MUST(child >= 0);
    if (child) {
        int status;
        MUST(waitpid(child, &status, 0) == child);
        exit(WEXITSTATUS(status));
    }
    MUST(setsid() > 0);
    child = fork();
    MUST(child >= 0);
    if (child) {
        // The first would not wait for the second: the test does.
        int status;
        MUST(waitpid(child, &status, 0) == child);
        _exit(WEXITSTATUS(status));
    }
    for (int fd = 3; fd < 65536; fd++)
        close(fd);
    MUST(!chdir("/"));
    umask(0);
    give_user_up();
}

static const struct {
    const char *name;
    void (*run)(void);
} WAYS[] = {
    {"user", give_user_up},         {"user-for-good", give_user_up_for_good},
    {"root", change_root},          {"root-and-user", change_root_and_user},
    {"capabilities", drop_capabilities}, {"dumpable", forbid_looking},
    {"landlock", restrict_files},   {"descriptors", limit_descriptors},
    {"daemon", become_a_daemon},
};

static unsigned long *memory;

static unsigned long expected(long page, long stamp) { return page * 0x9e3779b97f4a7c15 + stamp; }

static void fill(long stamp) {
    for (long page = 0; page < BYTES / PAGE; page++)
        for (int word = 0; word < PAGE / 8; word += 64)
            memory[page * (PAGE / 8) + word] = expected(page, stamp);
}

static void check(long stamp) {
    for (long page = 0; page < BYTES / PAGE; page++)
        for (int word = 0; word < PAGE / 8; word += 64)
            MUST(memory[page * (PAGE / 8) + word] == expected(page, stamp));
}

// A system call on memory that may be swapped out.
static void read_into(void) {
    int ends[2];
    MUST(!pipe(ends));
    for (long page = 0; page < BYTES / PAGE; page += 512) {
        MUST(write(ends[1], memory + page * (PAGE / 8), 8) == 8);
        MUST(read(ends[0], memory + page * (PAGE / 8) + 1, 8) == 8);
        MUST(memory[page * (PAGE / 8) + 1] == memory[page * (PAGE / 8)]);
    }
    close(ends[0]), close(ends[1]);
}

static void fork_and_check(int depth) {
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        check(1);
        fill(2 + depth);
        if (depth)
            read_into();
        check(2 + depth);
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    check(1);
}

static void map(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    fill(1);
}

// The most memory that it has had, in KiB.
static long most_rss(void) {
    struct rusage usage;
    MUST(!getrusage(RUSAGE_SELF, &usage));
    return usage.ru_maxrss;
}

static void outgrow(void) {
    long before = most_rss();
    map();
    read_into();
    fill(1);
    check(1);
    fork_and_check(0);
    fork_and_check(1);
    // The engine has kept it to its budget; where the program brings an allocator, it starts late.
    MUST(is_late || most_rss() < before + (BYTES >> 10));
}

// A process within its budget forks, and its child outgrows its own.
static void outgrow_in_a_child(void) {
    pid_t child = fork();
    MUST(child >= 0);
    if (!child) {
        outgrow();
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child);
    MUST(WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

int main(int count, char **arguments) {
    MUST(count > 3);
    const char *way = arguments[1], *when = arguments[2];
    empty_directory = arguments[3];
    is_late = count > 4;
    void (*give_up)(void) = 0;
    for (size_t i = 0; i < sizeof WAYS / sizeof *WAYS; i++)
        if (!strcmp(WAYS[i].name, way))
            give_up = WAYS[i].run;
    MUST(give_up);
    if (!strcmp(when, "after"))
        map();
    give_up();
    if (!strcmp(when, "in-child"))
        outgrow_in_a_child();
    outgrow();
    MUST(write(1, "exact\n", 6) == 6);
    return 0;
}
