// Threads that wait for each other by words in memory that keeps leaving; some have waited since before the engine.
#define _GNU_SOURCE
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include "must.h"

enum { BYTES = 48 << 20, PAGE = 4096, THREADS = 3, ROUNDS = 3000 * TIMES };
struct shared {
    pthread_mutex_t mutex, inheriting;
    pthread_cond_t changed, early;
    pthread_rwlock_t lock;
    pthread_barrier_t barrier;
    sem_t full, empty;
    long turns[4], is_engaged;
};
static struct shared *all;
static int is_over;

static void *early(void *unused) {
    pthread_mutex_lock(&all->mutex);
    while (!all->is_engaged) pthread_cond_wait(&all->early, &all->mutex);
    pthread_mutex_unlock(&all->mutex);
    return unused;
}
static void *work(void *unused) {
    MUST(pthread_barrier_wait(&all->barrier) <= 0);
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&all->mutex) == 0);
        all->turns[0]++;
        pthread_cond_broadcast(&all->changed);
        if (i % 64 == 0) {
            struct timespec soon;
            clock_gettime(CLOCK_REALTIME, &soon);
            soon.tv_nsec = (soon.tv_nsec + 100000) % 1000000000;
            int error = pthread_cond_timedwait(&all->changed, &all->mutex, &soon);
            MUST(error == 0 || error == ETIMEDOUT);
        }
        MUST(pthread_mutex_unlock(&all->mutex) == 0);
        MUST(pthread_mutex_lock(&all->inheriting) == 0);
        all->turns[1]++;
        MUST(pthread_mutex_unlock(&all->inheriting) == 0);
        MUST((i % 2 ? pthread_rwlock_rdlock : pthread_rwlock_wrlock)(&all->lock) == 0);
        if (i % 2 == 0) all->turns[2]++;
        MUST(pthread_rwlock_unlock(&all->lock) == 0);
        MUST(sem_wait(&all->full) == 0);
        __atomic_fetch_add(&all->turns[3], 1, __ATOMIC_RELAXED);
        MUST(sem_post(&all->full) == 0);
    }
    MUST(pthread_barrier_wait(&all->barrier) <= 0);
    return unused;
}
static void *send_out(void *unused) {
    while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) MUST(madvise(all, PAGE, MADV_PAGEOUT) == 0);
    return unused;
}

int main(void) {
    pthread_t threads[THREADS], waiter, sender;
    pthread_mutexattr_t inherits;
    // Before the budget is passed.
    all = mmap(0, 1 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(all != MAP_FAILED);
    pthread_mutexattr_init(&inherits);
    MUST(pthread_mutexattr_setprotocol(&inherits, PTHREAD_PRIO_INHERIT) == 0);
    MUST(pthread_mutex_init(&all->mutex, 0) == 0 && pthread_mutex_init(&all->inheriting, &inherits) == 0);
    MUST(pthread_cond_init(&all->changed, 0) == 0 && pthread_cond_init(&all->early, 0) == 0);
    MUST(pthread_rwlock_init(&all->lock, 0) == 0 && pthread_barrier_init(&all->barrier, 0, THREADS) == 0);
    MUST(sem_init(&all->full, 0, 1) == 0 && sem_init(&all->empty, 0, 0) == 0);
    MUST(pthread_create(&waiter, 0, early, 0) == 0);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    MUST(pthread_create(&sender, 0, send_out, 0) == 0);
    for (int i = 0; i < THREADS; i++) MUST(pthread_create(&threads[i], 0, work, 0) == 0);
    for (int i = 0; i < THREADS; i++) MUST(pthread_join(threads[i], 0) == 0);
    pthread_mutex_lock(&all->mutex);
    all->is_engaged = 1;
    pthread_cond_broadcast(&all->early);
    pthread_mutex_unlock(&all->mutex);
    MUST(pthread_join(waiter, 0) == 0);
    __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
    MUST(pthread_join(sender, 0) == 0);
    MUST(all->turns[0] == (long)THREADS * ROUNDS && all->turns[1] == (long)THREADS * ROUNDS);
    MUST(all->turns[2] == (long)THREADS * ROUNDS / 2 && all->turns[3] == (long)THREADS * ROUNDS);
    puts("exact");
    return 0;
}
