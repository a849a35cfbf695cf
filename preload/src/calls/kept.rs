//! Functions of the C library that stand for a system call: the call's memory is kept in RAM meanwhile.
//!
//! Those that transfer as much as their caller asks for are in `transfers`, `scattered` and `streams`; those
//! that never return are in `exec`; those that wait for other threads in `locks`. All arguments are passed on
//! in the registers that they came in, so one type serves every function. The entry points are as safe as the
//! functions that they stand in for; a thread may be cancelled in them, and unwinds.
use super::arguments::Memory::{self, Each, Fixed, Text};
use super::arguments::{self, Arguments};
use super::held::NEEDED;
use super::table::Row;
use super::working_directory;
use crate::abi::allocator;
use crate::abi::callers::OURS;
use crate::abi::next::{Next, call_at};
use crate::abi::raw::set_errno;
use crate::abi::thread_locals;
use libc::c_long;
use std::mem::size_of;

/// How the memory of a function's arguments is known.
enum Shape {
    /// As that of the system call with this number.
    Call(c_long),
    Own(Row),
}

/// Calls the function after ours; -1 with ENOSYS where the C library has none.
pub fn pass_on(next: &Next, arguments: &Arguments) -> usize {
    let address = next.address();
    if address.is_null() {
        set_errno(libc::ENOSYS);
        return usize::MAX;
    }
    // SAFETY: no such function has more arguments, and it is called as the program called ours.
    unsafe { call_at(address, arguments) }
}

fn keep(next: &Next, shape: &Shape, arguments: &Arguments) -> usize {
    if !thread_locals::are_here() {
        return pass_on(next, arguments);
    }
    if let (Shape::Call(libc::SYS_getcwd), [0, bytes, ..]) = (shape, *arguments)
        && allocator::is_foreign()
    {
        return working_directory::allocated(bytes, |room| pass_on(next, &arguments::of(room)));
    }
    let _held = match shape {
        Shape::Call(number) => arguments::hold(*number, arguments),
        Shape::Own(row) => arguments::hold_row(row, arguments),
    };
    pass_on(next, arguments)
}

/// Declares entry points. Where nothing has to be kept they jump on, and also for callers in this library: the
/// engine calls with locks held, on any stack.
macro_rules! keeping {
    ($($name:ident $shape:expr;)+) => {
        /// Looks all of them up.
        pub fn look_up() {
            $( $name::NEXT.look_up(); )+
        }
        $(
            mod $name {
                use super::*;

                pub static NEXT: Next = Next::new($crate::abi::next::name!($name));
                const SHAPE: Shape = $shape;

                #[unsafe(no_mangle)]
                #[unsafe(naked)]
                unsafe extern "C-unwind" fn $name() {
                    std::arch::naked_asm!(
                        "cmp byte ptr [rip + {needed}], 0",
                        "je 2f",
                        "mov r11, [rsp]",
                        "sub r11, [rip + {ours}]",
                        "cmp r11, [rip + {ours} + 8]",
                        "jae {serve}",
                        "2: mov r11, [rip + {next}]",
                        "test r11, r11",
                        "je {serve}",
                        "jmp r11",
                        needed = sym NEEDED,
                        ours = sym OURS,
                        next = sym NEXT,
                        serve = sym serve,
                    );
                }

                extern "C-unwind" fn serve(
                    a: usize, b: usize, c: usize, d: usize, e: usize, f: usize,
                ) -> usize {
                    keep(&NEXT, &SHAPE, &[a, b, c, d, e, f])
                }
            }
        )+
    };
}

macro_rules! functions {
    (
        calls { $($name:ident $call:ident,)+ }
        others { $($other:ident [$($row:expr),+],)+ }
    ) => {
        keeping! {
            $( $name Shape::Call(libc::$call); )+
            $( $other Shape::Own(&[$($row),+]); )+
        }
    };
}

const PATH: (usize, Memory) = (0, Text);
const STATUS: Memory = Fixed(4);
const STAT: Memory = Fixed(size_of::<libc::stat>());
const TIMES: Memory = Fixed(2 * size_of::<libc::timespec>());
const SET: Memory = Fixed(8);
/// Of who is logged in.
const RECORD: Memory = Fixed(size_of::<libc::utmpx>());

functions! {
    calls {
        open SYS_open, open64 SYS_open, openat SYS_openat, openat64 SYS_openat, __open_2 SYS_open,
        __open64_2 SYS_open, __openat_2 SYS_openat, __openat64_2 SYS_openat, creat SYS_creat, creat64 SYS_creat,
        lstat SYS_lstat, lstat64 SYS_lstat, fstat SYS_fstat, fstat64 SYS_fstat,
        statx SYS_statx, statfs SYS_statfs,
        statfs64 SYS_statfs, fstatfs SYS_fstatfs, fstatfs64 SYS_fstatfs, access SYS_access,
        faccessat SYS_faccessat, chdir SYS_chdir, mkdir SYS_mkdir, mkdirat SYS_mkdirat,
        rmdir SYS_rmdir, unlink SYS_unlink, unlinkat SYS_unlinkat, rename SYS_rename, renameat SYS_renameat,
        renameat2 SYS_renameat2, link SYS_link, linkat SYS_linkat, symlink SYS_symlink,
        symlinkat SYS_symlinkat, readlink SYS_readlink, __readlink_chk SYS_readlink, readlinkat SYS_readlinkat,
        __readlinkat_chk SYS_readlinkat, getcwd SYS_getcwd, __getcwd_chk SYS_getcwd,
        chmod SYS_chmod, fchmodat SYS_fchmodat, chown SYS_chown, lchown SYS_lchown, fchownat SYS_fchownat,
        truncate SYS_truncate, truncate64 SYS_truncate, utime SYS_utime, utimes SYS_utimes,
        utimensat SYS_utimensat, futimesat SYS_futimesat, mknod SYS_mknod, mknodat SYS_mknodat,
        setxattr SYS_setxattr, lsetxattr SYS_lsetxattr, fsetxattr SYS_fsetxattr, getxattr SYS_getxattr,
        lgetxattr SYS_lgetxattr, fgetxattr SYS_fgetxattr, listxattr SYS_listxattr, llistxattr SYS_llistxattr,
        flistxattr SYS_flistxattr, removexattr SYS_removexattr, lremovexattr SYS_lremovexattr,
        fremovexattr SYS_fremovexattr, name_to_handle_at SYS_name_to_handle_at,
        open_by_handle_at SYS_open_by_handle_at, inotify_add_watch SYS_inotify_add_watch,
        fanotify_mark SYS_fanotify_mark, memfd_create SYS_memfd_create, mount SYS_mount, umount2 SYS_umount2,
        mount_setattr SYS_mount_setattr, move_mount SYS_move_mount, open_tree SYS_open_tree, fsopen SYS_fsopen,
        fspick SYS_fspick, fsconfig SYS_fsconfig, acct SYS_acct, swapon SYS_swapon,
        swapoff SYS_swapoff, quotactl SYS_quotactl, getdents64 SYS_getdents64, sendfile SYS_sendfile,
        sendfile64 SYS_sendfile, splice SYS_splice, copy_file_range SYS_copy_file_range, pipe SYS_pipe,
        pipe2 SYS_pipe2, ioctl SYS_ioctl, fcntl SYS_fcntl, fcntl64 SYS_fcntl,

        bind SYS_bind, connect SYS_connect, accept SYS_accept, accept4 SYS_accept4,
        getsockname SYS_getsockname, getpeername SYS_getpeername, getsockopt SYS_getsockopt,
        socketpair SYS_socketpair, sendmmsg SYS_sendmmsg, recvmmsg SYS_recvmmsg,

        poll SYS_poll, __poll_chk SYS_poll, select SYS_select, epoll_wait SYS_epoll_wait, epoll_ctl SYS_epoll_ctl,
        nanosleep SYS_nanosleep, clock_nanosleep SYS_clock_nanosleep, wait4 SYS_wait4, waitid SYS_waitid,
        sigpending SYS_rt_sigpending, sigtimedwait SYS_rt_sigtimedwait, signalfd SYS_signalfd,
        pidfd_send_signal SYS_pidfd_send_signal, getitimer SYS_getitimer, setitimer SYS_setitimer,
        timer_settime SYS_timer_settime, timer_gettime SYS_timer_gettime,
        timerfd_settime SYS_timerfd_settime, timerfd_gettime SYS_timerfd_gettime,
        clock_gettime SYS_clock_gettime, clock_settime SYS_clock_settime, clock_getres SYS_clock_getres,
        settimeofday SYS_settimeofday, adjtimex SYS_adjtimex, ntp_adjtime SYS_adjtimex,
        clock_adjtime SYS_clock_adjtime,

        uname SYS_uname, sysinfo SYS_sysinfo, times SYS_times, getrusage SYS_getrusage,
        getgroups SYS_getgroups, __getgroups_chk SYS_getgroups, getresuid SYS_getresuid,
        getresgid SYS_getresgid, capget SYS_capget, sethostname SYS_sethostname,
        setdomainname SYS_setdomainname, ptrace SYS_ptrace, klogctl SYS_syslog,
        getrandom SYS_getrandom, sched_setaffinity SYS_sched_setaffinity,
        sched_getaffinity SYS_sched_getaffinity, sched_setparam SYS_sched_setparam,
        sched_getparam SYS_sched_getparam, sched_setscheduler SYS_sched_setscheduler,
        sched_rr_get_interval SYS_sched_rr_get_interval, semop SYS_semop, semtimedop SYS_semtimedop,
        semctl SYS_semctl, shmctl SYS_shmctl, msgctl SYS_msgctl, msgsnd SYS_msgsnd, msgrcv SYS_msgrcv,
        mq_open SYS_mq_open, mq_unlink SYS_mq_unlink, mq_timedsend SYS_mq_timedsend,
        mq_timedreceive SYS_mq_timedreceive,
    }
    others {
        // What programs built before glibc 2.33 call for stat and mknod, after a version.
        __lxstat [(1, Text), (2, STAT)], __lxstat64 [(1, Text), (2, STAT)],
        __fxstat [(2, STAT)], __fxstat64 [(2, STAT)],
        __xmknod [(1, Text)], __xmknodat [(2, Text)],

        opendir [PATH],
        euidaccess [PATH], eaccess [PATH], mkfifo [PATH], mkfifoat [(1, Text)], statvfs [PATH], statvfs64 [PATH],
        umount [PATH], remove [PATH], mkstemp [PATH], mkstemp64 [PATH], mkostemp [PATH], mkostemp64 [PATH],
        mkstemps [PATH], mkstemps64 [PATH], mkostemps [PATH], mkostemps64 [PATH], mkdtemp [PATH], mktemp [PATH],
        realpath [PATH, (1, Fixed(libc::PATH_MAX as usize))], ftok [PATH], lchmod [PATH], setmntent [PATH],
        __realpath_chk [PATH, (1, Fixed(libc::PATH_MAX as usize))], eventfd_read [(1, Fixed(8))],
        lutimes [PATH, (1, TIMES)], futimes [(1, TIMES)],
        futimens [(1, TIMES)], ttyname_r [(1, Each(2, 1))], __ttyname_r_chk [(1, Each(2, 1))], getentropy [(0, Each(1, 1))],
        wait [(0, STATUS)], waitpid [(1, STATUS)], wait3 [(0, STATUS), (2, Fixed(size_of::<libc::rusage>()))],
        sigwait [(0, SET), (1, STATUS)], sigwaitinfo [(0, SET), (1, Fixed(size_of::<libc::siginfo_t>()))],
        pthread_getaffinity_np [(2, Each(1, 1))], pthread_setaffinity_np [(2, Each(1, 1))],
        pthread_setschedparam [(2, Fixed(4))], pthread_getname_np [(1, Each(2, 1))], pthread_setname_np [(1, Text)], pathconf [PATH],
        thrd_sleep [(0, TIMES), (1, TIMES)], openpty [(3, Fixed(size_of::<libc::termios>())), (4, Fixed(8))],
        pututline [(0, RECORD)], pututxline [(0, RECORD)], updwtmp [PATH, (1, RECORD)], updwtmpx [PATH, (1, RECORD)],
        // Where the clock cannot be read without the kernel.
        gettimeofday [(0, Fixed(16)), (1, Fixed(8))], timespec_get [(0, Fixed(16))], getcpu [(0, STATUS), (1, STATUS)],
        // What is asked and answered; the C library makes the calls.
        res_query [PATH, (3, Each(4, 1))], res_search [PATH, (3, Each(4, 1))],
        res_querydomain [PATH, (1, Text), (4, Each(5, 1))], res_send [(0, Each(1, 1)), (2, Each(3, 1))],
        res_nquery [(1, Text), (4, Each(5, 1))], res_nsearch [(1, Text), (4, Each(5, 1))],
        res_nsend [(1, Each(2, 1)), (3, Each(4, 1))],
        mq_getattr [(1, Fixed(64))], mq_setattr [(1, Fixed(64)), (2, Fixed(64))],
        mq_notify [(1, Fixed(size_of::<libc::sigevent>()))],
        __mq_open_2 [PATH], mq_send [(1, Each(2, 1))], mq_receive [(1, Each(2, 1)), (3, STATUS)],
    }
}
