//! The table of system calls whose arguments are kept in RAM meanwhile.
//!
//! Calls that transfer as much as their caller asks for are in `transfers`, `scattered` and `streams`; those
//! that never return are in `exec`. The entry points are as safe as the functions that they stand in for.
use super::held::{Held, around, is_needed, text, values};
use crate::abi::next::next_functions;
use crate::abi::raw::Span;
use libc::{
    c_char, c_int, c_long, c_uint, c_void, mode_t, nfds_t, pid_t, size_t, socklen_t, ssize_t,
};

/// Declares entry points that keep the memory of their arguments while the real function runs.
macro_rules! keeping {
    ($(fn $name:ident($($argument:ident: $type:ty),*) -> $result:ty { $($span:expr),* })+) => {
        next_functions! { $(
            fn $name($($argument: $type),*) -> $result;
        )+ }
        mod exported {
            use super::*;
            $(
                #[unsafe(no_mangle)]
                pub unsafe extern "C" fn $name($($argument: $type),*) -> $result {
                    if !is_needed() {
                        return super::$name($($argument),*);
                    }
                    let _held = Held::new(&[$($span),*]);
                    super::$name($($argument),*)
                }
            )+
        }
    };
}

keeping! {
    fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn openat(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn openat64(fd: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int { text(path) }
    fn creat(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn fopen(path: *const c_char, mode: *const c_char) -> *mut c_void { text(path) }
    fn fopen64(path: *const c_char, mode: *const c_char) -> *mut c_void { text(path) }
    fn opendir(path: *const c_char) -> *mut c_void { text(path) }
    fn stat(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn stat64(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn lstat(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn lstat64(path: *const c_char, status: *mut libc::stat) -> c_int { text(path), values(status, 1) }
    fn fstat(fd: c_int, status: *mut libc::stat) -> c_int { values(status, 1) }
    fn fstat64(fd: c_int, status: *mut libc::stat) -> c_int { values(status, 1) }
    fn fstatat(fd: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int) -> c_int {
        text(path), values(status, 1)
    }
    fn fstatat64(fd: c_int, path: *const c_char, status: *mut libc::stat, flags: c_int) -> c_int {
        text(path), values(status, 1)
    }
    fn statx(fd: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut libc::statx) -> c_int {
        text(path), values(status, 1)
    }
    fn access(path: *const c_char, mode: c_int) -> c_int { text(path) }
    fn faccessat(fd: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int { text(path) }
    fn chdir(path: *const c_char) -> c_int { text(path) }
    fn mkdir(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn mkdirat(fd: c_int, path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn rmdir(path: *const c_char) -> c_int { text(path) }
    fn unlink(path: *const c_char) -> c_int { text(path) }
    fn unlinkat(fd: c_int, path: *const c_char, flags: c_int) -> c_int { text(path) }
    fn rename(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn renameat(from_fd: c_int, from: *const c_char, to_fd: c_int, to: *const c_char) -> c_int {
        text(from), text(to)
    }
    fn link(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn symlink(from: *const c_char, to: *const c_char) -> c_int { text(from), text(to) }
    fn readlink(path: *const c_char, buffer: *mut c_char, bytes: size_t) -> ssize_t {
        text(path), values(buffer, bytes)
    }
    fn readlinkat(fd: c_int, path: *const c_char, buffer: *mut c_char, bytes: size_t) -> ssize_t {
        text(path), values(buffer, bytes)
    }
    fn getcwd(buffer: *mut c_char, bytes: size_t) -> *mut c_char { values(buffer, bytes) }
    fn chmod(path: *const c_char, mode: mode_t) -> c_int { text(path) }
    fn chown(path: *const c_char, user: c_uint, group: c_uint) -> c_int { text(path) }
    fn truncate(path: *const c_char, bytes: libc::off_t) -> c_int { text(path) }
    fn utimensat(fd: c_int, path: *const c_char, times: *const libc::timespec, flags: c_int) -> c_int {
        text(path), values(times, 2)
    }
    fn pipe(fds: *mut c_int) -> c_int { values(fds, 2) }
    fn pipe2(fds: *mut c_int, flags: c_int) -> c_int { values(fds, 2) }
    fn socketpair(family: c_int, kind: c_int, protocol: c_int, fds: *mut c_int) -> c_int { values(fds, 2) }
    fn bind(fd: c_int, address: *const c_void, bytes: socklen_t) -> c_int {
        values(address.cast::<u8>(), bytes as usize)
    }
    fn connect(fd: c_int, address: *const c_void, bytes: socklen_t) -> c_int {
        values(address.cast::<u8>(), bytes as usize)
    }
    fn accept(fd: c_int, address: *mut c_void, bytes: *mut socklen_t) -> c_int {
        around(address as usize), values(bytes, 1)
    }
    fn accept4(fd: c_int, address: *mut c_void, bytes: *mut socklen_t, flags: c_int) -> c_int {
        around(address as usize), values(bytes, 1)
    }
    fn getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, bytes: *mut socklen_t) -> c_int {
        around(value as usize), values(bytes, 1)
    }
    fn poll(entries: *mut libc::pollfd, count: nfds_t, timeout: c_int) -> c_int {
        values(entries, count as usize)
    }
    fn ppoll(
        entries: *mut libc::pollfd, count: nfds_t, timeout: *const libc::timespec, mask: *const libc::sigset_t
    ) -> c_int { values(entries, count as usize), values(timeout, 1), values(mask, 1) }
    fn select(
        count: c_int, read: *mut libc::fd_set, write: *mut libc::fd_set, except: *mut libc::fd_set,
        timeout: *mut libc::timeval
    ) -> c_int { values(read, 1), values(write, 1), values(except, 1), values(timeout, 1) }
    fn epoll_wait(fd: c_int, events: *mut libc::epoll_event, count: c_int, timeout: c_int) -> c_int {
        values(events, count.max(0) as usize)
    }
    fn epoll_ctl(fd: c_int, action: c_int, target: c_int, event: *mut libc::epoll_event) -> c_int {
        values(event, 1)
    }
    fn nanosleep(wanted: *const libc::timespec, left: *mut libc::timespec) -> c_int {
        values(wanted, 1), values(left, 1)
    }
    fn getrandom(buffer: *mut c_void, bytes: size_t, flags: c_uint) -> ssize_t {
        values(buffer.cast::<u8>(), bytes)
    }
    fn waitpid(pid: pid_t, status: *mut c_int, options: c_int) -> pid_t { values(status, 1) }
    fn wait4(pid: pid_t, status: *mut c_int, options: c_int, usage: *mut libc::rusage) -> pid_t {
        values(status, 1), values(usage, 1)
    }
    fn system(command: *const c_char) -> c_int { text(command) }
    fn popen(command: *const c_char, mode: *const c_char) -> *mut c_void { text(command) }
    fn getdents64(fd: c_int, buffer: *mut c_void, bytes: size_t) -> ssize_t {
        values(buffer.cast::<u8>(), bytes)
    }
    fn sendfile(to: c_int, from: c_int, offset: *mut libc::off_t, bytes: size_t) -> ssize_t {
        values(offset, 1)
    }
    fn splice(
        from: c_int, from_offset: *mut i64, to: c_int, to_offset: *mut i64, bytes: size_t, flags: c_uint
    ) -> ssize_t { values(from_offset, 1), values(to_offset, 1) }
    // Only the kernel knows how long the argument is.
    fn ioctl(fd: c_int, request: c_long, argument: usize) -> c_int {
        around(argument), Span { address: argument.wrapping_add(256), bytes: 1 }
    }
}
