/* What is pinned is what a call or a lock is about, and as long as that: not what registers beyond a function's arguments point to; and
 * what stays locked when its content is dropped. */
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <semaphore.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

enum { PAGE = 4096, BYTES = 40 << 20, REGION = 1 << 20 };

typedef int four(void *, void *, void *, void *);

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static sem_t semaphore;
static char *beside;
static int is_waiting, is_over;

static char *map(size_t bytes) {
    char *memory = mmap(0, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    return memory;
}

static int is_there(char *page) {
    unsigned char present;
    MUST(mincore(page, PAGE, &present) == 0);
    return present & 1;
}

/* With a pointer that is none of its arguments where a third and a fourth one would be. */
static void *wait_beside(void *argument) {
    four *wait = (four *)(void (*)(void))pthread_cond_wait, *take = (four *)(void (*)(void))sem_wait;
    MUST(pthread_mutex_lock(&mutex) == 0);
    is_waiting = 1;
    while (!is_over) MUST(wait(&changed, &mutex, beside, beside) == 0);
    is_waiting = 2;
    MUST(pthread_mutex_unlock(&mutex) == 0);
    MUST(take(&semaphore, beside, beside, beside) == 0);
    return argument;
}

/* It waits as soon as the mutex is free; a semaphore is said to be waited for by its value alone. */
static void await(int what) {
    for (int is = 0; is != what; sched_yield()) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        is = is_waiting;
        MUST(pthread_mutex_unlock(&mutex) == 0);
    }
    usleep(20000);
}

static void must_leave(char *page) {
    MUST(madvise(page, PAGE, MADV_PAGEOUT) == 0);
    MUST(!is_there(page));
    MUST(page[7] == 7);
}

static int ends[2];

static void *receive(void *buffer) {
    MUST(pthread_mutex_lock(&mutex) == 0);
    is_waiting = 3;
    MUST(pthread_mutex_unlock(&mutex) == 0);
    MUST(recv(ends[0], buffer, PAGE, 0) == 5);
    return buffer;
}

/* Memory that a call waits to fill is given back, and what comes in its place is locked before the call ends. */
static void replace_what_is_waited_for(void) {
    pthread_t thread;
    char *region = map(REGION);
    MUST(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
    MUST(pthread_create(&thread, 0, receive, region) == 0);
    await(3);
    MUST(munmap(region, REGION) == 0);
    MUST(mmap(region, REGION, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0) == region);
    MUST(mlock(region, 4 * PAGE) == 0);
    MUST(send(ends[1], "tell", 5, 0) == 5 && pthread_join(thread, 0) == 0);
    for (int page = 0; page < 4; page++) {
        madvise(region + page * PAGE, PAGE, MADV_PAGEOUT);
        MUST(is_there(region + page * PAGE));
    }
    MUST(munmap(region, REGION) == 0);
}

int main(void) {
    char *memory = map(BYTES);
    beside = map(REGION);
    for (long at = 0; at < BYTES; at += PAGE) memory[at] = 1;
    beside[7] = 7;
    MUST(sem_init(&semaphore, 0, 0) == 0);
    pthread_t thread;
    MUST(pthread_create(&thread, 0, wait_beside, 0) == 0);
    await(1);
    must_leave(beside);
    MUST(pthread_mutex_lock(&mutex) == 0);
    is_over = 1;
    MUST(pthread_cond_signal(&changed) == 0 && pthread_mutex_unlock(&mutex) == 0);
    await(2);
    must_leave(beside);
    MUST(sem_post(&semaphore) == 0 && pthread_join(thread, 0) == 0);

    replace_what_is_waited_for();

    char *locked = map(REGION);
    locked[0] = locked[PAGE] = 5;
    MUST(mlock(locked, 2 * PAGE) == 0);
    MUST(madvise(locked, 2 * PAGE, MADV_DONTNEED_LOCKED) == 0);
    MUST(locked[0] == 0 && locked[PAGE] == 0);
    madvise(locked, 2 * PAGE, MADV_PAGEOUT);
    MUST(is_there(locked) && is_there(locked + PAGE));
    MUST(munlock(locked, PAGE) == 0 && munlock(locked, 2 * PAGE) == 0);
    locked[0] = 7, locked[7] = 7, locked[PAGE + 7] = 7;
    must_leave(locked);
    must_leave(locked + PAGE);
    puts("exact");
    return 0;
}
