// Two processes read and write each other's memory past them, where most of both has left: every byte, as far as without us.
#define _GNU_SOURCE
#include <pthread.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#include "must.h"

enum { PAGE = 4096, BYTES = 40 << 20, WORDS = BYTES / 8, PARTS = 700, UNTOUCHED = 2 << 20 };
static uint64_t *own, *got;
static char *untouched, *guarded;
static pid_t other;
static int in, out;

static void *map(long bytes) {
    void *start = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(start != MAP_FAILED);
    return start;
}
static uint64_t word(pid_t whose, long at, int time) {
    return (whose * 0x9e3779b97f4a7c15u) ^ (at * 0xc2b2ae3d27d4eb4fu) ^ time;
}
static void fill(int time) {
    for (long at = 0; at < WORDS; at++) own[at] = word(getpid(), at, time);
}
static void check(const uint64_t *words, pid_t whose, int time) {
    for (long at = 0; at < WORDS; at++) MUST(words[at] == word(whose, at, time));
}
// Both have come here.
static void meet(void) {
    char byte = 1;
    MUST(write(out, &byte, 1) == 1 && read(in, &byte, 1) == 1);
}
static void whole(void) {
    struct iovec to = {got, BYTES}, from = {own, BYTES};
    MUST(process_vm_readv(other, &to, 1, &from, 1, 0) == BYTES);
    check(got, other, 0);
}
// Odd lengths, other ones on each side.
static long split(struct iovec *parts, char *start, long step) {
    long sum = 0;
    for (int part = 0; part < PARTS; part++) {
        long bytes = step + part * 37 % 4001;
        parts[part] = (struct iovec){start + sum, bytes};
        sum += bytes;
    }
    return sum;
}
static void in_parts(void) {
    struct iovec to[PARTS], from[PARTS];
    memset(got, 0, BYTES);
    long here = split(to, (char *)got, 20001), there = split(from, (char *)own, 17003);
    MUST(there < here && here < BYTES);
    MUST(syscall(SYS_process_vm_readv, other, to, PARTS, from, PARTS, 0) == there);
    MUST(memcmp((char *)got + there, (char[8]){0}, 8) == 0);
    for (long at = 0; at < there / 8; at++) MUST(got[at] == word(other, at, 0));
}
static void written(void) {
    for (long at = 0; at < WORDS; at++) got[at] = word(other, at, 1);
    struct iovec from = {got, BYTES}, to = {own, BYTES};
    MUST(process_vm_writev(other, &from, 1, &to, 1, 0) == BYTES);
}
static ssize_t read_at(void *address, long bytes) {
    struct iovec to = {got, bytes}, from = {address, bytes};
    return process_vm_readv(other, &to, 1, &from, 1, 0);
}
static void refused(void) {
    errno = 0;
    MUST(read_at((void *)64, 8) == -1 && errno == EFAULT);
    MUST(read_at(guarded + PAGE, 8) == -1 && errno == EFAULT);
    MUST(read_at(guarded + PAGE - 100, 200) == 100);
    struct iovec here = {got, 8}, there = {guarded + 2 * PAGE, 8};
    MUST(process_vm_writev(other, &here, 1, &there, 1, 0) == -1 && errno == EFAULT);
    MUST(process_vm_readv(other, &here, 1, &there, 1, 1) == -1 && errno == EINVAL);
    MUST(process_vm_readv(0x3fffffff, &here, 1, &there, 1, 0) == -1 && errno == ESRCH);
    struct iovec many[1025] = {[0 ... 1024] = {got, 512}}, huge[2] = {{got, 1 << 20}, {got, -1}};
    MUST(process_vm_readv(other, &here, 1, many, 1025, 0) == -1 && errno == EINVAL);
    MUST(process_vm_readv(other, many, 1025, many, 1024, 0) == -1 && errno == EINVAL);
    MUST(process_vm_readv(other, many, 1024, huge, 2, 0) == -1 && errno == EINVAL);
    struct iovec beyond[2] = {{got, 1 << 20}, {(void *)0xffff800000000000, 8}}, long_one = {own, (1 << 20) + 8};
    MUST(process_vm_readv(other, beyond, 2, &long_one, 1, 0) == -1 && errno == EFAULT);
    here.iov_base = (void *)64;
    MUST(process_vm_readv(other, &here, 1, &there, 1, 0) == -1 && errno == EFAULT);
    MUST(read_at(guarded + 2 * PAGE, PAGE) == PAGE && ((char *)got)[1] == 3);
    memset(got, 1, UNTOUCHED);
    MUST(read_at(untouched, UNTOUCHED) == UNTOUCHED);
    for (long at = 0; at < UNTOUCHED / 8; at++) MUST(got[at] == 0);
}
static void *in_threads(void *at) {
    struct iovec to = {(char *)got + (long)at, BYTES / 16}, from = {(char *)own + (long)at, BYTES / 16};
    MUST(process_vm_readv(other, &to, 1, &from, 1, 0) == BYTES / 16);
    return 0;
}
// More than an engine has clients.
static void at_once(void) {
    pthread_t threads[16];
    memset(got, 0, BYTES);
    for (long thread = 0; thread < 16; thread++)
        MUST(pthread_create(&threads[thread], 0, in_threads, (void *)(thread * (BYTES / 16))) == 0);
    for (int thread = 0; thread < 16; thread++) MUST(pthread_join(threads[thread], 0) == 0);
    check(got, other, 0);
}
static void own_too(void) {
    struct iovec to = {got, 1 << 20}, from = {own, 1 << 20};
    memset(got, 0, BYTES);
    MUST(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1 << 20);
    MUST(memcmp(got, own, 1 << 20) == 0);
}
int main(void) {
    int up[2], down[2];
    own = map(BYTES), got = map(BYTES), untouched = map(UNTOUCHED), guarded = map(4 * PAGE);
    memset(guarded, 3, 4 * PAGE);
    MUST(pipe(up) == 0 && pipe(down) == 0);
    pid_t parent = getpid(), child = fork();
    MUST(child >= 0);
    other = child > 0 ? child : parent, in = child > 0 ? up[0] : down[0], out = child > 0 ? down[1] : up[1];
    prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0);
    fill(0), memset(got, 1, BYTES);
    MUST(mprotect(guarded + PAGE, PAGE, PROT_NONE) == 0 && mprotect(guarded + 2 * PAGE, PAGE, PROT_READ) == 0);
    MUST(madvise(guarded, PAGE, MADV_PAGEOUT) == 0);
    meet(), whole(), meet(), in_parts(), meet(), at_once(), meet(), refused(), meet();
    if (child > 0) written();
    meet();
    if (child == 0) check(own, getpid(), 1), written();
    meet();
    if (child > 0) check(own, getpid(), 1);
    own_too(), meet();
    MUST(mprotect(guarded + PAGE, PAGE, PROT_READ) == 0);
    for (long at = 0; at < 4 * PAGE; at++) MUST(guarded[at] == 3);
    int status = 0;
    MUST(child == 0 || (wait(&status) == child && status == 0));
    if (child > 0) puts("exact");
}
