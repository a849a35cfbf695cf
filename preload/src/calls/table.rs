//! What memory each system call of Linux on x86-64 takes from its caller.
//!
//! One table for the functions of the C library that stand for a call, for `syscall()`, and for calls that are
//! caught as such. Its test reads the kernel's own list of calls: one that is in no row is noticed there. The
//! rows say where memory begins and how long it is, not what is done to it: it is kept in RAM either way. What they
//! cannot say is in `nested`.
use super::arguments::Memory::{
    self, Each, Fixed, Iocbs, Messages, One, Parts, Request, Sets, Sized, Text, Texts, Typed,
    Unknown,
};
use libc::c_long;
use std::mem::size_of;

/// An argument that points to memory, counted from 0, and what is there.
pub type Row = &'static [(usize, Memory)];

const STAT: Memory = Fixed(size_of::<libc::stat>());
const STATFS: Memory = Fixed(size_of::<libc::statfs>());
const STATX: Memory = Fixed(size_of::<libc::statx>());
const TIME: Memory = Fixed(size_of::<libc::timespec>());
/// Two times: access and modification, or what a timer repeats and when it is due.
const TIMES: Memory = Fixed(2 * size_of::<libc::timespec>());
const LIMIT: Memory = Fixed(size_of::<libc::rlimit>());
const USAGE: Memory = Fixed(size_of::<libc::rusage>());
const SIGINFO: Memory = Fixed(size_of::<libc::siginfo_t>());
const EVENT: Memory = Fixed(size_of::<libc::sigevent>());
const ACTION: Memory = Fixed(size_of::<libc::sigaction>());
const WORD: Memory = Fixed(4);
const LONG: Memory = Fixed(8);
/// A file system's handle, with the longest payload there may be (MAX_HANDLE_SZ).
const HANDLE: Memory = Fixed(8 + 128);

/// The row of a system call; none for a number that the table does not know.
#[expect(clippy::too_many_lines, reason = "one line for each call, or for several that are alike")]
pub fn row(number: c_long) -> Option<Row> {
    Some(match number {
        // Paths and other texts.
        libc::SYS_open | libc::SYS_creat | libc::SYS_access | libc::SYS_chdir | libc::SYS_mkdir => {
            &[(0, Text)]
        }
        libc::SYS_rmdir | libc::SYS_unlink | libc::SYS_chmod | libc::SYS_chown => &[(0, Text)],
        libc::SYS_lchown | libc::SYS_truncate | libc::SYS_mknod | libc::SYS_chroot => &[(0, Text)],
        libc::SYS_acct | libc::SYS_umount2 | libc::SYS_swapon | libc::SYS_swapoff => &[(0, Text)],
        libc::SYS_mq_unlink | libc::SYS_memfd_create | libc::SYS_uselib => &[(0, Text)],
        libc::SYS_fsopen | libc::SYS_delete_module => &[(0, Text)],
        libc::SYS_openat | libc::SYS_mkdirat | libc::SYS_mknodat | libc::SYS_fchownat => {
            &[(1, Text)]
        }
        libc::SYS_unlinkat | libc::SYS_fchmodat | libc::SYS_fchmodat2 | libc::SYS_faccessat => {
            &[(1, Text)]
        }
        libc::SYS_faccessat2
        | libc::SYS_inotify_add_watch
        | libc::SYS_open_tree
        | libc::SYS_fspick => &[(1, Text)],
        libc::SYS_rename | libc::SYS_link | libc::SYS_symlink | libc::SYS_pivot_root => {
            &[(0, Text), (1, Text)]
        }
        libc::SYS_removexattr | libc::SYS_lremovexattr => &[(0, Text), (1, Text)],
        libc::SYS_symlinkat => &[(0, Text), (2, Text)],
        libc::SYS_renameat | libc::SYS_renameat2 | libc::SYS_linkat => &[(1, Text), (3, Text)],
        libc::SYS_move_mount => &[(1, Text), (3, Text)],
        libc::SYS_fremovexattr | libc::SYS_finit_module => &[(1, Text)],
        libc::SYS_kexec_file_load => &[(3, Each(2, 1))],
        libc::SYS_fanotify_mark => &[(4, Text)],
        libc::SYS_openat2 => &[(1, Text), (2, Each(3, 1))],
        libc::SYS_stat | libc::SYS_lstat => &[(0, Text), (1, STAT)],
        libc::SYS_newfstatat => &[(1, Text), (2, STAT)],
        libc::SYS_statx => &[(1, Text), (4, STATX)],
        libc::SYS_statfs => &[(0, Text), (1, STATFS)],
        libc::SYS_readlink => &[(0, Text), (1, Each(2, 1))],
        libc::SYS_readlinkat => &[(1, Text), (2, Each(3, 1))],
        libc::SYS_utime => &[(0, Text), (1, TIME)],
        libc::SYS_utimes => &[(0, Text), (1, TIMES)],
        libc::SYS_utimensat | libc::SYS_futimesat => &[(1, Text), (2, TIMES)],
        libc::SYS_setxattr | libc::SYS_lsetxattr | libc::SYS_getxattr | libc::SYS_lgetxattr => {
            &[(0, Text), (1, Text), (2, Each(3, 1))]
        }
        libc::SYS_fsetxattr | libc::SYS_fgetxattr => &[(1, Text), (2, Each(3, 1))],
        libc::SYS_listxattr | libc::SYS_llistxattr => &[(0, Text), (1, Each(2, 1))],
        // Of options the kernel takes as much as it can read of a page, and does not say that it is less.
        libc::SYS_mount => &[(0, Text), (1, Text), (2, Text), (4, Fixed(4096))],
        libc::SYS_mount_setattr => &[(1, Text), (3, Each(4, 1))],
        libc::SYS_fsconfig => &[(2, Text), (3, Fixed(4096))],
        libc::SYS_quotactl => &[(1, Text), (3, Unknown)],
        libc::SYS_name_to_handle_at => &[(1, Text), (2, HANDLE), (3, LONG)],
        libc::SYS_open_by_handle_at => &[(1, HANDLE)],
        libc::SYS_execve => &[(0, Text), (1, Texts), (2, Texts)],
        libc::SYS_execveat => &[(1, Text), (2, Texts), (3, Texts)],
        libc::SYS_init_module => &[(0, Each(1, 1)), (2, Text)],
        libc::SYS_add_key => &[(0, Text), (1, Text), (2, Each(3, 1))],
        libc::SYS_request_key => &[(0, Text), (1, Text), (2, Text)],

        // Files.
        libc::SYS_read | libc::SYS_write | libc::SYS_pread64 | libc::SYS_pwrite64 => {
            &[(1, Each(2, 1))]
        }
        libc::SYS_readv | libc::SYS_writev | libc::SYS_vmsplice => &[(1, Parts(2))],
        libc::SYS_preadv | libc::SYS_pwritev | libc::SYS_preadv2 | libc::SYS_pwritev2 => {
            &[(1, Parts(2))]
        }
        libc::SYS_process_vm_readv | libc::SYS_process_vm_writev => &[(1, Parts(2)), (3, Parts(4))],
        libc::SYS_process_madvise => &[(1, Each(2, size_of::<libc::iovec>()))],
        libc::SYS_getdents | libc::SYS_getdents64 | libc::SYS_flistxattr => &[(1, Each(2, 1))],
        libc::SYS_getcwd | libc::SYS_getrandom => &[(0, Each(1, 1))],
        libc::SYS_fstat => &[(1, STAT)],
        libc::SYS_fstatfs | libc::SYS_ustat => &[(1, STATFS)],
        libc::SYS_sendfile => &[(2, LONG)],
        libc::SYS_splice | libc::SYS_copy_file_range => &[(1, LONG), (3, LONG)],
        libc::SYS_pipe | libc::SYS_pipe2 => &[(0, LONG)],
        libc::SYS_ioctl => &[(2, Request(1))],
        libc::SYS_fcntl => &[(2, Unknown)],
        libc::SYS_io_setup => &[(1, LONG)],
        libc::SYS_io_submit => &[(2, Iocbs(1))],
        libc::SYS_io_cancel => &[(1, Fixed(64)), (2, Fixed(32))],
        libc::SYS_io_getevents => &[(3, Each(2, 32)), (4, TIME)],
        unnamed::IO_PGETEVENTS => &[(3, Each(2, 32)), (4, TIME), (5, Fixed(16))],
        libc::SYS_io_uring_setup => &[(1, Fixed(120))],
        libc::SYS_io_uring_enter => &[(4, Unknown)],
        libc::SYS_io_uring_register => &[(2, Unknown)],
        libc::SYS_lookup_dcookie => &[(1, Each(2, 1))],

        // Sockets.
        libc::SYS_bind | libc::SYS_connect => &[(1, Each(2, 1))],
        libc::SYS_accept | libc::SYS_accept4 | libc::SYS_getsockname | libc::SYS_getpeername => {
            &[(1, Sized(2))]
        }
        libc::SYS_getsockopt => &[(3, Sized(4))],
        libc::SYS_setsockopt => &[(3, Each(4, 1))],
        libc::SYS_socketpair => &[(3, LONG)],
        libc::SYS_sendto => &[(1, Each(2, 1)), (4, Each(5, 1))],
        libc::SYS_recvfrom => &[(1, Each(2, 1)), (4, Sized(5))],
        libc::SYS_sendmsg | libc::SYS_recvmsg => &[(1, One)],
        libc::SYS_sendmmsg => &[(1, Messages(2))],
        libc::SYS_recvmmsg => &[(1, Messages(2)), (4, TIME)],

        // Waiting.
        libc::SYS_poll => &[(0, Each(1, size_of::<libc::pollfd>()))],
        libc::SYS_ppoll => &[(0, Each(1, size_of::<libc::pollfd>())), (2, TIME), (3, LONG)],
        libc::SYS_select => &[(1, Sets(0)), (2, Sets(0)), (3, Sets(0)), (4, TIME)],
        libc::SYS_pselect6 => {
            &[(1, Sets(0)), (2, Sets(0)), (3, Sets(0)), (4, TIME), (5, Fixed(16))]
        }
        libc::SYS_epoll_wait | libc::SYS_epoll_wait_old => {
            &[(1, Each(2, size_of::<libc::epoll_event>()))]
        }
        libc::SYS_epoll_pwait => &[(1, Each(2, size_of::<libc::epoll_event>())), (4, LONG)],
        libc::SYS_epoll_pwait2 => {
            &[(1, Each(2, size_of::<libc::epoll_event>())), (3, TIME), (4, LONG)]
        }
        libc::SYS_epoll_ctl | libc::SYS_epoll_ctl_old => {
            &[(3, Fixed(size_of::<libc::epoll_event>()))]
        }
        libc::SYS_nanosleep => &[(0, TIME), (1, TIME)],
        libc::SYS_clock_nanosleep => &[(2, TIME), (3, TIME)],
        libc::SYS_wait4 => &[(1, WORD), (3, USAGE)],
        libc::SYS_waitid => &[(2, SIGINFO), (4, USAGE)],
        libc::SYS_futex => &[(0, WORD), (3, TIME), (4, WORD)],
        libc::SYS_futex_waitv => &[(0, Each(1, 24)), (3, TIME)],
        unnamed::FUTEX_WAKE => &[(0, WORD)],
        unnamed::FUTEX_WAIT => &[(0, WORD), (4, TIME)],
        unnamed::FUTEX_REQUEUE => &[(0, Fixed(48))],

        // Signals and timers.
        libc::SYS_rt_sigaction => &[(1, ACTION), (2, ACTION)],
        libc::SYS_rt_sigprocmask => &[(1, LONG), (2, LONG)],
        libc::SYS_rt_sigpending | libc::SYS_rt_sigsuspend => &[(0, LONG)],
        libc::SYS_rt_sigtimedwait => &[(0, LONG), (1, SIGINFO), (2, TIME)],
        libc::SYS_rt_sigqueueinfo | libc::SYS_pidfd_send_signal => &[(2, SIGINFO)],
        libc::SYS_rt_tgsigqueueinfo => &[(3, SIGINFO)],
        libc::SYS_sigaltstack => &[(0, Fixed(24)), (1, Fixed(24))],
        libc::SYS_signalfd | libc::SYS_signalfd4 => &[(1, LONG)],
        libc::SYS_getitimer => &[(1, TIMES)],
        libc::SYS_setitimer => &[(1, TIMES), (2, TIMES)],
        libc::SYS_timer_create => &[(1, EVENT), (2, LONG)],
        libc::SYS_timer_settime | libc::SYS_timerfd_settime => &[(2, TIMES), (3, TIMES)],
        libc::SYS_timer_gettime | libc::SYS_timerfd_gettime => &[(1, TIMES)],
        libc::SYS_clock_gettime | libc::SYS_clock_settime | libc::SYS_clock_getres => &[(1, TIME)],
        libc::SYS_gettimeofday | libc::SYS_settimeofday => &[(0, TIME), (1, LONG)],
        libc::SYS_adjtimex => &[(0, Fixed(size_of::<libc::timex>()))],
        libc::SYS_clock_adjtime => &[(1, Fixed(size_of::<libc::timex>()))],
        libc::SYS_time => &[(0, LONG)],

        // Processes, users, limits, the machine.
        libc::SYS_uname => &[(0, Fixed(size_of::<libc::utsname>()))],
        libc::SYS_sysinfo => &[(0, Fixed(size_of::<libc::sysinfo>()))],
        libc::SYS_times => &[(0, Fixed(size_of::<libc::tms>()))],
        libc::SYS_getrusage => &[(1, USAGE)],
        libc::SYS_getrlimit | libc::SYS_setrlimit => &[(1, LIMIT)],
        libc::SYS_prlimit64 => &[(2, LIMIT), (3, LIMIT)],
        libc::SYS_getgroups | libc::SYS_setgroups => &[(1, Each(0, 4))],
        libc::SYS_getresuid | libc::SYS_getresgid => &[(0, WORD), (1, WORD), (2, WORD)],
        libc::SYS_capget | libc::SYS_capset => &[(0, LONG), (1, Fixed(24))],
        libc::SYS_sethostname | libc::SYS_setdomainname => &[(0, Each(1, 1))],
        libc::SYS_prctl => &[(1, Unknown), (2, Unknown), (3, Unknown), (4, Unknown)],
        libc::SYS_arch_prctl => &[(1, LONG)],
        libc::SYS_modify_ldt => &[(1, Each(2, 1))],
        libc::SYS_set_thread_area | libc::SYS_get_thread_area => &[(0, Fixed(16))],
        libc::SYS_ptrace => &[(3, Fixed(512))],
        libc::SYS_syslog => &[(1, Each(2, 1))],
        libc::SYS_sysfs => &[(1, Text), (2, Unknown)],
        libc::SYS_reboot => &[(3, Text)],
        libc::SYS_seccomp => &[(2, Unknown)],
        libc::SYS_bpf => &[(1, Each(2, 1))],
        libc::SYS_perf_event_open => &[(0, Unknown)],
        libc::SYS_keyctl => &[(1, Unknown), (2, Unknown), (3, Unknown), (4, Unknown)],
        libc::SYS_kcmp => &[(4, Unknown)],
        libc::SYS_kexec_load => &[(2, Each(1, 32))],
        libc::SYS_quotactl_fd => &[(3, Unknown)],
        libc::SYS_landlock_create_ruleset => &[(0, Each(1, 1))],
        libc::SYS_landlock_add_rule => &[(2, Fixed(16))],
        libc::SYS_getcpu => &[(0, WORD), (1, WORD)],
        libc::SYS_clone => &[(2, WORD), (3, WORD)],
        libc::SYS_clone3 => &[(0, Each(1, 1))],
        libc::SYS_get_robust_list => &[(1, LONG), (2, LONG)],
        libc::SYS_sched_setaffinity | libc::SYS_sched_getaffinity => &[(2, Each(1, 1))],
        libc::SYS_sched_setparam | libc::SYS_sched_getparam => &[(1, WORD)],
        libc::SYS_sched_setscheduler => &[(2, WORD)],
        libc::SYS_sched_rr_get_interval => &[(1, TIME)],
        libc::SYS_sched_setattr | libc::SYS_sched_getattr => &[(1, Fixed(56))],

        // System V's and POSIX's messages, memory policy.
        libc::SYS_semop => &[(1, Each(2, 6))],
        libc::SYS_semtimedop => &[(1, Each(2, 6)), (3, TIME)],
        libc::SYS_semctl => &[(3, Unknown)],
        libc::SYS_shmctl | libc::SYS_msgctl => &[(2, Unknown)],
        libc::SYS_msgsnd | libc::SYS_msgrcv => &[(1, Typed(2))],
        libc::SYS_mq_open => &[(0, Text), (3, Fixed(64))],
        libc::SYS_mq_timedsend => &[(1, Each(2, 1)), (4, TIME)],
        libc::SYS_mq_timedreceive => &[(1, Each(2, 1)), (3, WORD), (4, TIME)],
        libc::SYS_mq_notify => &[(1, EVENT)],
        libc::SYS_mq_getsetattr => &[(1, Fixed(64)), (2, Fixed(64))],
        libc::SYS_mbind => &[(3, Unknown)],
        libc::SYS_set_mempolicy => &[(1, Unknown)],
        libc::SYS_get_mempolicy => &[(0, WORD), (1, Unknown)],
        libc::SYS_migrate_pages => &[(2, Unknown), (3, Unknown)],
        libc::SYS_move_pages => &[(2, Each(1, 8)), (3, Each(1, 4)), (4, Each(1, 4))],
        libc::SYS_mincore => &[(2, Unknown)],
        _ => return without_memory(number).then_some(&[] as Row).or_else(|| newer(number)),
    })
}

/// Calls that the C bindings have no name for.
pub mod unnamed {
    pub const IO_PGETEVENTS: i64 = 333;
    pub const FUTEX_WAKE: i64 = 454;
    pub const FUTEX_WAIT: i64 = 455;
    pub const FUTEX_REQUEUE: i64 = 456;
    pub const SETXATTRAT: i64 = 463;
    pub const GETXATTRAT: i64 = 464;
}

/// Calls since Linux 6.5, by number.
fn newer(number: c_long) -> Option<Row> {
    Some(match number {
        // cachestat, statmount, listmount
        451 => &[(1, Fixed(16)), (2, Fixed(40))],
        457 => &[(0, Fixed(32)), (1, Each(2, 1))],
        458 => &[(0, Fixed(32)), (1, Each(2, 8))],
        // lsm_get_self_attr, lsm_set_self_attr, lsm_list_modules
        459 => &[(1, Sized(2))],
        460 => &[(1, Each(2, 1))],
        461 => &[(0, Sized(1))],
        // setxattrat, getxattrat, listxattrat, removexattrat
        463 | 464 => &[(1, Text), (3, Text), (4, Each(5, 1))],
        465 => &[(1, Text), (3, Each(4, 1))],
        466 => &[(1, Text), (3, Text)],
        // open_tree_attr, file_getattr, file_setattr
        467 => &[(1, Text), (3, Each(4, 1))],
        468 | 469 => &[(1, Text), (2, Each(3, 1))],
        _ => return None,
    })
}

/// Whether a call takes only numbers, or addresses of memory that it looks at in no other way than mapping it.
fn without_memory(number: c_long) -> bool {
    matches!(
        number,
        libc::SYS_close | libc::SYS_lseek | libc::SYS_mmap | libc::SYS_mprotect | libc::SYS_munmap | libc::SYS_brk
        | libc::SYS_rt_sigreturn | libc::SYS_sched_yield | libc::SYS_mremap | libc::SYS_msync | libc::SYS_madvise
        | libc::SYS_shmget | libc::SYS_shmat | libc::SYS_shmdt | libc::SYS_dup | libc::SYS_dup2 | libc::SYS_dup3
        | libc::SYS_pause | libc::SYS_alarm | libc::SYS_getpid | libc::SYS_socket | libc::SYS_shutdown
        | libc::SYS_listen | libc::SYS_fork | libc::SYS_vfork | libc::SYS_exit | libc::SYS_kill | libc::SYS_semget
        | libc::SYS_msgget | libc::SYS_flock | libc::SYS_fsync | libc::SYS_fdatasync | libc::SYS_ftruncate
        | libc::SYS_fchdir | libc::SYS_fchmod | libc::SYS_fchown | libc::SYS_umask | libc::SYS_getuid
        | libc::SYS_getgid | libc::SYS_setuid | libc::SYS_setgid | libc::SYS_geteuid | libc::SYS_getegid
        | libc::SYS_setpgid | libc::SYS_getppid | libc::SYS_getpgrp | libc::SYS_setsid | libc::SYS_setreuid
        | libc::SYS_setregid | libc::SYS_setresuid | libc::SYS_setresgid | libc::SYS_getpgid | libc::SYS_setfsuid
        | libc::SYS_setfsgid | libc::SYS_getsid | libc::SYS_personality | libc::SYS_getpriority
        | libc::SYS_setpriority | libc::SYS_sched_getscheduler | libc::SYS_sched_get_priority_max
        | libc::SYS_sched_get_priority_min | libc::SYS_mlock | libc::SYS_munlock | libc::SYS_mlockall
        | libc::SYS_munlockall | libc::SYS_mlock2 | libc::SYS_vhangup | libc::SYS_sync | libc::SYS_iopl
        | libc::SYS_ioperm | libc::SYS_gettid | libc::SYS_readahead | libc::SYS_tkill | libc::SYS_tgkill
        | libc::SYS_io_destroy | libc::SYS_epoll_create | libc::SYS_epoll_create1 | libc::SYS_remap_file_pages
        | libc::SYS_set_tid_address | libc::SYS_restart_syscall | libc::SYS_fadvise64 | libc::SYS_timer_getoverrun
        | libc::SYS_timer_delete | libc::SYS_exit_group | libc::SYS_ioprio_set | libc::SYS_ioprio_get
        | libc::SYS_inotify_init | libc::SYS_inotify_init1 | libc::SYS_inotify_rm_watch | libc::SYS_unshare
        | libc::SYS_set_robust_list | libc::SYS_tee | libc::SYS_sync_file_range | libc::SYS_timerfd_create
        | libc::SYS_eventfd | libc::SYS_eventfd2 | libc::SYS_fallocate | libc::SYS_fanotify_init | libc::SYS_syncfs
        | libc::SYS_setns | libc::SYS_userfaultfd | libc::SYS_membarrier | libc::SYS_pkey_mprotect
        | libc::SYS_pkey_alloc | libc::SYS_pkey_free | libc::SYS_rseq | libc::SYS_fsmount | libc::SYS_pidfd_open
        | libc::SYS_close_range | libc::SYS_pidfd_getfd | libc::SYS_landlock_restrict_self
        | libc::SYS_memfd_secret | libc::SYS_process_mrelease | libc::SYS_set_mempolicy_home_node
        | libc::SYS_mseal
        // Never implemented, or gone: the kernel says ENOSYS.
        | libc::SYS__sysctl | 174 | 177 | 178
        | libc::SYS_nfsservctl | libc::SYS_getpmsg | libc::SYS_putpmsg | libc::SYS_afs_syscall | libc::SYS_tuxcall
        | libc::SYS_security | libc::SYS_vserver
        // uretprobe, uprobe, map_shadow_stack
        | 335 | 336 | 453
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_that_the_kernel_lists_has_a_row() {
        let list = std::fs::read_to_string("/usr/include/x86_64-linux-gnu/asm/unistd_64.h")
            .expect("the kernel's list of calls is installed (linux-libc-dev)");
        let calls = list.lines().filter_map(|line| line.strip_prefix("#define __NR_"));
        let calls: Vec<&str> = calls.collect();
        assert!(calls.len() > 300, "the list has {} calls", calls.len());
        for call in calls {
            let (name, number) = call.split_once(' ').expect("a name and a number");
            let number = number.trim().parse().expect("a number");
            assert!(row(number).is_some(), "{name} ({number}) is in no row");
        }
    }

    #[test]
    fn no_row_names_more_arguments_than_a_call_has() {
        for number in 0..600 {
            for (index, _) in row(number).unwrap_or_default() {
                assert!(*index < 6, "call {number}");
            }
        }
        assert!(row(100_000).is_none());
    }
}
