/* Addresses that are the kernel's in the midst of managed memory: what is mapped there, asked for, changed and given back is as
   without us, before there is an engine and with one. Prints "exact". */
#define _GNU_SOURCE
#include "children.h"
#include "room.h"
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/shm.h>

static const size_t MIB = 1 << 20, GIB = 1 << 30;
enum { PAGE = 4096, RW = PROT_READ | PROT_WRITE, PLAIN = MAP_PRIVATE | MAP_ANONYMOUS };
enum { EXACTLY = PLAIN | MAP_FIXED_NOREPLACE };

static void *map(void *at, size_t bytes, int flags) { return mmap(at, bytes, RW, flags, -1, 0); }
static int fails(int outcome, int error) {
    int as_said = outcome == -1 && errno == error;
    errno = 0;
    return as_said;
}

/* It grows at one address, and what fails leaves nothing. */
static void exact_places(void) {
    char *at = room(4 * MIB);
    for (size_t bytes = PAGE; bytes <= MIB; bytes *= 2) {
        MUST(mmap(at, bytes, RW, MAP_PRIVATE | MAP_FIXED_NOREPLACE, 99, 0) == MAP_FAILED && errno == EBADF);
        MUST(map(at, bytes, EXACTLY) == at && at[0] == 0 && at[bytes - 1] == 0);
        memset(at, 1, bytes);
        MUST(map(at, PAGE, EXACTLY) == MAP_FAILED && errno == EEXIST && at[0] == 1);
        MUST(munmap(at, bytes) == 0 && room(4 * MIB) == at);
    }
    // Half of it is the program's.
    MUST(map(at, 2 * MIB, PLAIN | MAP_FIXED) == at && map(at + MIB, 2 * MIB, EXACTLY) == MAP_FAILED);
    memset(at, 2, 2 * MIB);
    MUST(munmap(at + MIB, MIB) == 0 && at[MIB - 1] == 2 && fails(mprotect(at, 2 * MIB, PROT_READ), ENOMEM));
    MUST(mprotect(at, MIB, RW) == 0 && munmap(at, MIB) == 0);
}
static void hints(void) {
    char *at = room(4 * MIB);
    MUST(map(at, MIB, PLAIN) == at && map(at, MIB, PLAIN) != at);
    memset(at, 3, MIB);
    MUST(munmap(at, MIB) == 0);
    char *low = map((void *)0x50000000, MIB, PLAIN | MAP_32BIT);
    MUST(low == (char *)0x50000000);
    char *other = map((void *)0x50000000, MIB, PLAIN | MAP_32BIT);
    MUST(other != MAP_FAILED && other != low && (uintptr_t)other < 2 * GIB);
    char *high = map((void *)0x7fff0000, MIB, PLAIN | MAP_32BIT);
    MUST(high != MAP_FAILED && (uintptr_t)high + MIB <= 2 * GIB);
    MUST(munmap(low, MIB) == 0 && munmap(other, MIB) == 0 && munmap(high, MIB) == 0);
}
/* More than there is room for. */
static void large(void) {
    size_t bytes = 70 * GIB;
    char *at = room(bytes);
    MUST(mmap(at, bytes, PROT_NONE, PLAIN | MAP_NORESERVE | MAP_FIXED, -1, 0) == at);
    MUST(mprotect(at + bytes - PAGE, PAGE, RW) == 0 && madvise(at, bytes, MADV_DONTNEED) == 0);
    at[bytes - 1] = 1;
    MUST(munmap(at, bytes) == 0);
}
static void questions(void) {
    unsigned char told[4];
    char *at = room(4 * MIB);
    MUST(fails(mincore(0, PAGE, told), ENOMEM) && fails(mincore(at, PAGE, told), ENOMEM));
    MUST(fails(mprotect(0, PAGE, RW), ENOMEM) && fails(madvise(0, PAGE, MADV_DONTNEED), ENOMEM));
    MUST(fails(mlock(0, PAGE), ENOMEM) && munmap(0, PAGE) == 0 && munmap(at, PAGE) == 0);
    MUST(mremap(0, PAGE, 2 * PAGE, MREMAP_MAYMOVE) == MAP_FAILED && errno == EFAULT);
    MUST(map(at, PAGE, PLAIN | MAP_FIXED) == at && map(at + 2 * PAGE, PAGE, PLAIN | MAP_FIXED) == at + 2 * PAGE);
    at[0] = at[2 * PAGE] = 1;
    MUST(fails(mincore(at, 3 * PAGE, told), ENOMEM));
    // It may have left.
    for (told[0] = 0; told[0] != 1; *(volatile char *)at = 1) MUST(mincore(at, PAGE, told) == 0 && told[0] <= 1);
    // Beyond a hole it goes on.
    MUST(fails(madvise(at, 3 * PAGE, MADV_DONTNEED), ENOMEM) && at[0] == 0 && at[2 * PAGE] == 0);
    MUST(munmap(at, 3 * PAGE) == 0);
}
static void segments(void) {
    int id = shmget(IPC_PRIVATE, 3 * MIB + 1, IPC_CREAT | 0600);
    MUST(id >= 0);
    char *places[] = {(char *)0x60000000, (char *)0x7000000000, room(4 * MIB)};
    for (int i = 0; i < 3; i++) {
        char *at = places[i];
        MUST(shmat(id, at, 0) == at && at[3 * MIB] == (i ? 7 : 0));
        at[3 * MIB] = 7;
        MUST(shmat(id, at, 0) == (void *)-1 && errno == EINVAL && shmat(id, at + MIB, SHM_REMAP) == at + MIB);
        MUST(at[4 * MIB] == 7 && shmdt(at + MIB) == 0);
        MUST(map(at, 4 * MIB, PLAIN | MAP_FIXED) == at && at[MIB] == 0 && munmap(at, 4 * MIB) == 0);
        MUST(shmat(id, at + 5, SHM_RND) == at && at[3 * MIB] == 7);
        // What is refused changes nothing.
        MUST(shmat(id, at, 0) == (void *)-1 && errno == EINVAL && shmdt(at) == 0);
        // Parts of it may be others' by then.
        MUST(shmat(id, at, 0) == at && munmap(at + 2 * MIB, MIB + PAGE) == 0 && map(at + MIB, PAGE, PLAIN | MAP_FIXED) == at + MIB);
        at[MIB] = 9;
        MUST(shmdt(at) == 0 && at[MIB] == 9 && munmap(at + MIB, PAGE) == 0 && map(at, 4 * MIB, EXACTLY) == at);
        at[0] = at[2 * MIB] = 3;
        int none = shmget(IPC_PRIVATE, PAGE, IPC_CREAT | 0);
        if (geteuid()) MUST(shmat(none, at, SHM_REMAP) == (void *)-1 && errno == EACCES && at[0] == 3);
        MUST(shmctl(none, IPC_RMID, 0) == 0 && munmap(at, 4 * MIB) == 0);
        MUST(fails(shmdt(at), EINVAL) && map(at, MIB, EXACTLY) == at && munmap(at, MIB) == 0);
        MUST(shmat(id, at + 5, 0) == (void *)-1 && errno == EINVAL && shmat(-1, at, 0) == (void *)-1 && errno == EINVAL);
    }
    MUST(shmctl(id, IPC_RMID, 0) == 0);
}
/* Shared memory moves, and is doubled. */
static void moves(void) {
    char *shared = map(0, 2 * MIB, MAP_SHARED | MAP_ANONYMOUS | MAP_32BIT);
    MUST(shared != MAP_FAILED && (uintptr_t)shared < 2 * GIB);
    shared[0] = shared[2 * MIB - 1] = 5;
    char *moved = mremap(shared, 2 * MIB, 3 * MIB, MREMAP_MAYMOVE);
    MUST(moved != MAP_FAILED && moved[0] == 5 && moved[2 * MIB - 1] == 5);
    MUST(munmap(moved, 3 * MIB) == 0);
}
/* In an executable with a fixed address all of this is below what is managed. */
static char stack[64 << 10], buffer[3 << 20];
static volatile int met;
static void meet(int number) { met += number + stack[0]; }
static void own_data(void) {
    stack_t signals = {.ss_sp = stack, .ss_size = sizeof stack}, none = {.ss_flags = SS_DISABLE};
    struct sigaction action = {.sa_handler = meet, .sa_flags = SA_ONSTACK};
    MUST(sigaltstack(&signals, 0) == 0 && sigaction(SIGUSR1, &action, 0) == 0);
    int before = met;
    MUST(raise(SIGUSR1) == 0 && met > before && sigaltstack(&none, 0) == 0);
    FILE *self = fopen("/proc/self/exe", "r");
    MUST(self && fread(buffer, 1, 4096, self) == 4096 && !memcmp(buffer, "\177ELF", 4) && !fclose(self));
    char *page = buffer + (-(uintptr_t)buffer & (PAGE - 1)) + MIB;
    page[-1] = page[PAGE] = 4;
    page[5] = 6;
    MUST(mprotect(page, PAGE, PROT_READ) == 0 && page[5] == 6 && mprotect(page, PAGE, RW) == 0);
    MUST(map(page, PAGE, PLAIN | MAP_FIXED) == page && page[5] == 0 && page[-1] == 4 && page[PAGE] == 4);
    memset(page, 8, PAGE);
    MUST(madvise(page, PAGE, MADV_DONTNEED) == 0 && page[5] == 0);
}

static void all(void) {
    exact_places();
    hints();
    large();
    questions();
    segments();
    moves();
    own_data();
}

int main(void) {
    all();
    fill_and_fork(1);
    all();
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        all();
        _exit(0);
    }
    all();
    end_well(child);
    fill_and_fork(2);
    puts("exact");
}
