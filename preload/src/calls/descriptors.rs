//! Our descriptors do not exist for the program: it can neither close nor replace them.
//!
//! Programs that close everything above standard error, as daemons do, would otherwise take the engine's
//! swap away. The engine puts its descriptors at high numbers; which they are is found by comparing what is
//! open before and after it starts. The entry points are as safe as the functions that they stand in for.
use crate::abi::callers::entry;
use crate::abi::raw::{Errno, set_errno};
use crate::abi::system_call::call;
use crate::abi::{callers, next, raw};
use crate::state::process;
use libc::{EBADF, c_int, c_uint};
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::directories;
use userswap::internals::lock::Lock;

/// The engine raises its descriptors to this number where the limit allows.
const HIGH: c_int = 900;

static OURS: Lock<Vec<c_int>> = Lock::new(Vec::new());
/// A bit for each number modulo 64 that we have: most calls need no lock.
static MASK: AtomicU64 = AtomicU64::new(0);

/// Without /proc, which descriptors are open is asked for each number below this.
const PROBED: c_int = 2048;

/// The descriptors that are open.
pub fn open_now() -> Vec<c_int> {
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

/// Keeps the program from descriptors that were opened since; signals are blocked.
pub fn protect_new(before: &[c_int]) {
    let mut new: Vec<c_int> = open_now().into_iter().filter(|fd| !before.contains(fd)).collect();
    // Other low numbers are what other threads opened meanwhile, unless ours could not be raised.
    if new.iter().any(|fd| *fd >= HIGH) {
        new.retain(|fd| *fd >= HIGH || is_ring(*fd));
    }
    // Not the one that the directory itself was read by.
    new.retain(|fd| is_open(*fd));
    let mut ours = OURS.lock();
    // A forked child has let go of some of its parent's.
    ours.retain(|fd| is_open(*fd));
    ours.extend(new);
    let mask = ours.iter().fold(0, |mask, fd| mask | 1u64 << (fd % 64));
    MASK.store(mask, Ordering::Release);
}

/// Keeps the program from one descriptor; signals are blocked.
pub fn protect(fd: c_int) {
    OURS.lock().push(fd);
    MASK.fetch_or(1u64 << (fd % 64), Ordering::Release);
}

/// Request queues keep the number that the kernel gave them.
pub fn is_ring(fd: c_int) -> bool {
    std::fs::read_link(format!("/proc/thread-self/fd/{fd}"))
        .is_ok_and(|name| name.as_os_str() == "anon_inode:[io_uring]")
}

fn is_open(fd: c_int) -> bool {
    // SAFETY: asks for flags.
    unsafe { libc::fcntl(fd, libc::F_GETFD) >= 0 }
}

fn is_ours(fd: c_int) -> bool {
    let listed = fd >= 0 && MASK.load(Ordering::Acquire) & 1u64 << (fd % 64) != 0 && {
        let _blocked = userswap::internals::signal::Blocked::new();
        OURS.lock().contains(&fd)
    };
    listed || clients().any(|client| client == fd)
}

/// Descriptors of the connections to the control socket: they come and go.
fn clients() -> impl Iterator<Item = c_int> {
    let engine = process::current().and_then(process::Process::engine);
    engine.into_iter().flat_map(|engine| engine.control_connections())
}

entry!(
    /// close; the engine itself closes what it pleases.
    close(c_int) -> c_int, "rsi", "x1", serve_close
);

extern "C" fn serve_close(fd: c_int, caller: usize) -> c_int {
    if is_ours(fd) && !callers::is_ours(caller) {
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
    if is_ours(from) || is_ours(to) { refuse() } else { next::dup2(from, to) }
}

entry!(
    /// dup3; the engine replaces its own in a forked child.
    dup3(c_int, c_int, c_int) -> c_int, "rcx", "x3", serve_dup3
);

extern "C" fn serve_dup3(from: c_int, to: c_int, flags: c_int, caller: usize) -> c_int {
    if !callers::is_ours(caller) && (is_ours(from) || is_ours(to)) {
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
    let mut ours: Vec<c_uint> = match process::current() {
        Some(_) => {
            let _blocked = userswap::internals::signal::Blocked::new();
            OURS.lock().iter().copied().chain(clients()).map(|fd| fd as c_uint).collect()
        }
        None => Vec::new(),
    };
    ours.retain(|fd| (first..=last).contains(fd));
    ours.sort_unstable();
    ours.dedup();
    if first > last {
        return close_part(first, last, flags);
    }
    let mut next = first;
    for fd in ours {
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
