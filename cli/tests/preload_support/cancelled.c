// Threads that are cancelled while a call keeps their memory: they end, and nothing stays pinned.
#define _GNU_SOURCE
#include <poll.h>
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>
#include "must.h"

enum { BYTES = 48 << 20, KINDS = 6, ROUNDS = 40 };
static char *memory;
static int ends[2];
static sem_t begins;

static void *wait_for_ever(void *kind) {
    char *mine = memory + (1 << 20);
    struct iovec *part = (void *)(memory + (4 << 20));
    *part = (struct iovec){mine, 900000};
    *(struct pollfd *)(memory + (6 << 20)) = (struct pollfd){ends[0], POLLIN, 0};
    MUST(sem_post(&begins) == 0);
    switch ((long)kind) {
    case 0: read(ends[0], mine, 900000); break;
    case 1: recv(ends[0], mine, 900000, 0); break;
    case 2: readv(ends[0], part, 1); break;
    case 3: recvmsg(ends[0], &(struct msghdr){.msg_iov = part, .msg_iovlen = 1}, 0); break;
    case 4: poll((void *)(memory + (6 << 20)), 1, -1); break;
    case 5: sem_wait((sem_t *)(memory + (8 << 20))); break;
    }
    return 0;
}
int main(void) {
    memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED && socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && sem_init(&begins, 0, 0) == 0);
    memset(memory, 1, BYTES);
    MUST(sem_init((sem_t *)(memory + (8 << 20)), 0, 0) == 0);
    // Pins that stayed would be more than the budget.
    for (long i = 0; i < ROUNDS * KINDS; i++) {
        pthread_t thread;
        void *result;
        MUST(pthread_create(&thread, 0, wait_for_ever, (void *)(i % KINDS)) == 0);
        MUST(sem_wait(&begins) == 0 && pthread_cancel(thread) == 0 && pthread_join(thread, &result) == 0);
        MUST(result == PTHREAD_CANCELED);
    }
    MUST(mlock(memory + (16 << 20), 10 << 20) == 0);
    puts("exact");
    return 0;
}
