// Timers whose functions, in threads that the C library makes by itself, read what has left.
#define _GNU_SOURCE
#include "must.h"
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { PAGE = 4096, PAGES = 40 << 8, MANY = 20 };

static uint64_t *memory;
static int calls, once, ended;
static timer_t own;

static void check(void) {
    for (size_t page = 0; page < PAGES; page += 7) MUST(memory[page * PAGE / 8 + page % 512] == page * 31);
}

static void repeated(union sigval value) {
    MUST(value.sival_int == 7);
    check();
    __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST);
}

static void deletes_its_own(union sigval value) {
    MUST(value.sival_ptr == &own && !timer_delete(own));
    check();
    __atomic_add_fetch(&once, 1, __ATOMIC_SEQ_CST);
}

static void ends_its_thread(union sigval value) {
    check();
    __atomic_add_fetch((int *)value.sival_ptr, 1, __ATOMIC_SEQ_CST);
    pthread_exit(0);
}

static void until(int *count, int least) {
    for (int time = 0; __atomic_load_n(count, __ATOMIC_SEQ_CST) < least; time++) {
        MUST(time < 2000);
        usleep(10000);
    }
}

static timer_t timer(void (*function)(union sigval), union sigval value, pthread_attr_t *attributes) {
    struct sigevent event = {.sigev_notify = SIGEV_THREAD, .sigev_value = value};
    event.sigev_notify_function = function;
    event.sigev_notify_attributes = attributes;
    timer_t made;
    MUST(!timer_create(CLOCK_MONOTONIC, &event, &made));
    return made;
}

static void start(timer_t timer, long first_ns, long then_ns) {
    struct itimerspec times = {.it_value.tv_nsec = first_ns, .it_interval.tv_nsec = then_ns};
    MUST(!timer_settime(timer, 0, &times, 0));
}

static void all_ways(void) {
    calls = once = ended = 0;
    timer_t again = timer(repeated, (union sigval){.sival_int = 7}, 0);
    start(again, 10000000, 10000000);
    own = timer(deletes_its_own, (union sigval){.sival_ptr = &own}, 0);
    start(own, 5000000, 0);
    pthread_attr_t attributes;
    MUST(!pthread_attr_init(&attributes) && !pthread_attr_setstacksize(&attributes, 256 << 10));
    timer_t last = timer(ends_its_thread, (union sigval){.sival_ptr = &ended}, &attributes);
    MUST(!pthread_attr_destroy(&attributes));
    // A timer that has expired may be set again.
    for (int time = 1; time <= 3; time++) {
        start(last, 1000000, 0);
        until(&ended, time);
    }
    until(&calls, 5);
    until(&once, 1);
    MUST(!timer_delete(again) && !timer_delete(last));
}

// Timers that are deleted about when they expire.
static void deleted_in_time(void) {
    static int ignored;
    for (int time = 0; time < MANY; time++) {
        timer_t made = timer(ends_its_thread, (union sigval){.sival_ptr = &ignored}, 0);
        start(made, 1000, 0);
        if (time % 2) usleep(50);
        MUST(!timer_delete(made));
    }
}

int main(void) {
    memory = mmap(0, (size_t)PAGES * PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    for (size_t page = 0; page < PAGES; page++) memory[page * PAGE / 8 + page % 512] = page * 31;
    struct sigevent nonsense = {.sigev_notify = 77};
    timer_t made;
    MUST(timer_create(CLOCK_MONOTONIC, &nonsense, &made) == -1 && errno == EINVAL);
    nonsense.sigev_notify = SIGEV_THREAD;
    MUST(timer_create(1000, &nonsense, &made) == -1 && errno == EINVAL);
    all_ways();
    deleted_in_time();
    pid_t child = fork();
    if (child == 0) {
        all_ways();
        _exit(0);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && status == 0);
    check();
    puts("exact");
    return 0;
}
