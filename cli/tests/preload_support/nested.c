// Calls whose memory is not where their arguments say, or as long: further pointers, and lengths that an operation or the
// memory itself tells. All of it is swapped out. Prints "exact".
#define _GNU_SOURCE
#include "must.h"
#include <fcntl.h>
#include <linux/ethtool.h>
#include <linux/fiemap.h>
#include <linux/filter.h>
#include <linux/fs.h>
#include <linux/keyctl.h>
#include <linux/seccomp.h>
#include <linux/sockios.h>
#include <net/if.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/msg.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BYTES = 48 << 20, PAGE = 4096, LONG = 2 * PAGE - 200 };
static char *a, *b;
static void out(void) { MUST(madvise(a, 2 * PAGE, MADV_PAGEOUT) == 0 && madvise(b, 2 * PAGE, MADV_PAGEOUT) == 0); }
// Prepares both, sends them out, and demands something of the call.
#define CALL(prepare, condition) do { memset(a, 0, 2 * PAGE); memset(b, 0, 2 * PAGE); prepare; out(); MUST(condition); } while (0)

// A message's bytes come after its type: the last ones are on a page of their own.
static void messages(void) {
    enum { TEXT = PAGE - 4 };
    int queue = msgget(IPC_PRIVATE, 0600);
    MUST(queue >= 0);
    for (int i = 0; i < 3; i++) {
        CALL(*(long *)a = 1; memset(a + 8, 'x', TEXT), (i < 2 ? msgsnd(queue, a, TEXT, 0) : syscall(SYS_msgsnd, queue, a, (long)TEXT, 0L)) == 0);
        CALL(, (i < 2 ? msgrcv(queue, a, TEXT, 0, 0) : syscall(SYS_msgrcv, queue, a, (long)TEXT, 0L, 0L)) == TEXT);
        MUST(a[8] == 'x' && a[8 + TEXT - 1] == 'x' && !a[8 + TEXT]);
    }
    MUST(msgctl(queue, IPC_RMID, 0) == 0);
}

static void semaphores(void) {
    enum { COUNT = 3000 };
    unsigned short *values = (unsigned short *)a;
    int set = semget(IPC_PRIVATE, COUNT, 0600);
    MUST(set >= 0);
    CALL(for (int i = 0; i < COUNT; i++) values[i] = i, semctl(set, 0, SETALL, values) == 0);
    CALL(, semctl(set, 0, GETALL, values) == 0);
    for (int i = 0; i < COUNT; i++) MUST(values[i] == i);
    MUST(semctl(set, 0, IPC_RMID) == 0);
}

// Not every system lets programs keep keys.
static void keys(void) {
    long key = -1;
    CALL(memset(a, 'k', LONG), (key = syscall(SYS_add_key, "user", "userswap-test", a, (long)LONG, (long)KEY_SPEC_PROCESS_KEYRING)) > 0 || errno != EFAULT);
    if (key < 0) return;
    CALL(, syscall(SYS_keyctl, (long)KEYCTL_READ, key, a, (long)LONG) == LONG);
    MUST(a[0] == 'k' && a[LONG - 1] == 'k');
    CALL(, syscall(SYS_keyctl, (long)KEYCTL_UPDATE, key, a + PAGE - 300, (long)PAGE) == 0);
    CALL(, syscall(SYS_keyctl, (long)KEYCTL_READ, key, a, (long)LONG) == PAGE);
}

static void devices(const char *path) {
    int in = socket(AF_INET, SOCK_DGRAM, 0), fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
    struct ifconf *list = (void *)a;
    struct ifreq *request = (void *)a;
    MUST(in >= 0 && fd >= 0 && write(fd, "data", 4) == 4);
    CALL(list->ifc_len = PAGE; list->ifc_buf = b, ioctl(in, SIOCGIFCONF, a) == 0 && list->ifc_len % sizeof *request == 0);
    // A loopback device tells whether it is linked.
    CALL(strcpy(request->ifr_name, "lo"); request->ifr_data = b; *(int *)b = ETHTOOL_GLINK, ioctl(in, SIOCETHTOOL, a) == 0 || errno != EFAULT);
    // Lists that go on on the next page; parts of a file with holes between them are extents.
    for (int i = 0; i < 16; i++) MUST(pwrite(fd, "part", 4, i * 16l * PAGE) == 4);
    struct fiemap *map = (void *)(a + PAGE - sizeof *map - 4 * sizeof map->fm_extents[0]);
    CALL(map->fm_length = -1; map->fm_extent_count = 16; map->fm_flags = FIEMAP_FLAG_SYNC,
         ioctl(fd, FS_IOC_FIEMAP, map) == 0 || errno != EFAULT);
    struct file_dedupe_range *ranges = (void *)(a + PAGE - sizeof *ranges - 8 * sizeof ranges->info[0]);
    CALL(ranges->src_length = 4; ranges->dest_count = 16; ranges->info[0].dest_fd = fd, ioctl(fd, FIDEDUPERANGE, ranges) == 0 || errno != EFAULT);
    close(in), close(fd);
    MUST(unlink(path) == 0);
}

static void mounts(void) {
    // Since Linux 6.8: of the first process's root directory.
    enum { LISTMOUNT = 458, COUNT = 100 };
    struct { unsigned bytes, none; unsigned long mount, parameter; } *request = (void *)b;
    CALL(request->bytes = sizeof *request; request->mount = -1, syscall(LISTMOUNT, b, a + PAGE - COUNT - 4, (long)COUNT, 0L) >= 0 || errno != EFAULT);
}

static void filters(void) {
    int in = socket(AF_INET, SOCK_DGRAM, 0), status;
    struct sock_fprog *program = (void *)a;
    struct sock_filter *filter = (void *)b, all = BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    CALL(*program = ((struct sock_fprog){1, filter}); *filter = all, setsockopt(in, SOL_SOCKET, SO_ATTACH_FILTER, a, sizeof *program) == 0);
    CALL(*program = ((struct sock_fprog){1, filter}); *filter = all,
         syscall(SYS_setsockopt, in, SOL_SOCKET, SO_ATTACH_FILTER, a, sizeof *program) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        MUST(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
        CALL(*program = ((struct sock_fprog){1, filter}); *filter = all, prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, a) == 0);
        CALL(*program = ((struct sock_fprog){1, filter}); *filter = all, syscall(SYS_seccomp, (long)SECCOMP_SET_MODE_FILTER, 0L, a) == 0);
        _exit(7);
    }
    MUST(waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 7);
    close(in);
}

int main(int count, char **arguments) {
    MUST(count == 2);
    char *memory = mmap(0, BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    MUST(memory != MAP_FAILED);
    memset(memory, 1, BYTES);
    a = memory + (8 << 20), b = memory + (24 << 20);
    messages();
    semaphores();
    keys();
    devices(arguments[1]);
    mounts();
    filters();
    puts("exact");
    return 0;
}
