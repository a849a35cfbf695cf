//! Our descriptors do not exist for the program: it can neither close nor replace them.
//!
//! Programs that close everything above standard error, as daemons do, would otherwise take the engine's
//! swap away. The engine puts its descriptors at high numbers, and knows them. The entry points are as safe as the
//! functions that they stand in for.
use crate::abi::callers::entry;
use crate::abi::raw::{Errno, set_errno};
use crate::abi::system_call::call;
use crate::abi::{callers, next, raw};
use crate::state::owner;
use libc::{CLOSE_RANGE_UNSHARE, EBADF, c_int, c_uint};
use std::path::Path;
use userswap::internals::directories;
use userswap::internals::own_fd::own_within;
use userswap::internals::own_table::is_ours_here;

/// Without /proc, which descriptors are open is asked for each number below this.
const PROBED: c_int = 2048;

/// Whether the program has an io_uring.
pub fn has_ring() -> bool {
    open_now().into_iter().any(|fd| !is_ours_here(fd) && is_ring(fd))
}

fn is_ring(fd: c_int) -> bool {
    std::fs::read_link(format!("/proc/thread-self/fd/{fd}"))
        .is_ok_and(|name| name.as_os_str() == "anon_inode:[io_uring]")
}

/// The descriptors that are open.
fn open_now() -> Vec<c_int> {
    match directories::names(Path::new("/proc/thread-self/fd"), usize::MAX) {
        Ok(names) => names.iter().filter_map(|name| name.to_str()?.parse().ok()).collect(),
        Err(_) => (0..PROBED).filter(|fd| is_open(*fd)).collect(),
    }
}

/// The limit on descriptors raised as far as the process may, until dropped: ours are at high numbers.
pub struct Raised {
    before: Option<libc::rlimit>,
}

impl Raised {
    pub fn new() -> Self {
        let before = limits(None).filter(|limits| limits.rlim_cur < limits.rlim_max);
        if let Some(limit) = before {
            limits(Some(libc::rlimit { rlim_cur: limit.rlim_max, ..limit }));
        }
        Self { before }
    }
}

impl Drop for Raised {
    fn drop(&mut self) {
        if self.before.is_some() {
            limits(self.before);
        }
    }
}

/// Sets the limits on descriptors; the ones before.
fn limits(new: Option<libc::rlimit>) -> Option<libc::rlimit> {
    let mut before = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    let new = new.as_ref().map_or(std::ptr::null(), std::ptr::from_ref);
    let number = libc::SYS_prlimit64;
    // SAFETY: limits or nothing, and room for limits.
    let outcome = unsafe { call!(number, 0, libc::RLIMIT_NOFILE, new, &raw mut before) };
    (outcome == 0).then_some(before)
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

entry!(
    /// close; the engine itself closes what it pleases.
    close(c_int) -> c_int, "rsi", "x1", serve_close
);

extern "C" fn serve_close(fd: c_int, caller: usize) -> c_int {
    if is_ours_here(fd) && !callers::is_ours(caller) {
        return refuse();
    }
    next::close(fd)
}

/// close by number.
pub extern "C" fn close_for_program(fd: c_int) -> c_int {
    serve_close(fd, 0)
}

/// dup3 by number.
pub extern "C" fn duplicate_for_program(from: c_int, to: c_int, flags: c_int) -> c_int {
    serve_dup3(from, to, flags, 0)
}

fn refuse() -> c_int {
    set_errno(EBADF);
    -1
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn dup2(from: c_int, to: c_int) -> c_int {
    if is_ours_here(from) || is_ours_here(to) { refuse() } else { next::dup2(from, to) }
}

entry!(
    /// dup3; the engine replaces its own in a forked child.
    dup3(c_int, c_int, c_int) -> c_int, "rcx", "x3", serve_dup3
);

extern "C" fn serve_dup3(from: c_int, to: c_int, flags: c_int, caller: usize) -> c_int {
    if !callers::is_ours(caller) && (is_ours_here(from) || is_ours_here(to)) {
        return refuse();
    }
    next::dup3(from, to, flags)
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn close_range(first: c_uint, last: c_uint, flags: c_int) -> c_int {
    match close_around(first, last, flags) {
        Ok(()) => 0,
        Err(error) => {
            set_errno(error);
            -1
        }
    }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn closefrom(first: c_int) {
    // Without the system call there is nothing that could be done about it here.
    let _ = close_around(first.max(0) as c_uint, c_uint::MAX, 0);
}

fn close_around(first: c_uint, last: c_uint, flags: c_int) -> Result<(), Errno> {
    let flags = owner::with_our_table(flags, CLOSE_RANGE_UNSHARE as c_int);
    if first > last {
        return close_part(first, last, flags);
    }
    let mut next = first;
    for fd in own_within(first..=last).filter(|fd| is_ours_here(*fd as c_int)) {
        if next < fd {
            close_part(next, fd - 1, flags)?;
        }
        let Some(after) = fd.checked_add(1) else { return Ok(()) };
        next = after;
    }
    if next <= last { close_part(next, last, flags) } else { Ok(()) }
}

fn close_part(first: c_uint, last: c_uint, flags: c_int) -> Result<(), Errno> {
    // SAFETY: the program asks for it, and ours are not among them.
    match unsafe { call!(libc::SYS_close_range, first, last, flags) } {
        0 => Ok(()),
        _ => Err(raw::errno()),
    }
}
