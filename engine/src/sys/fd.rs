//! Descriptors: events, polling, files in RAM.
use super::own_fd::{self, Own};
use super::own_table::Here;
use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// A counter to wait for with [`poll`].
#[derive(Debug)]
pub struct Event(Own<OwnedFd>);

impl Event {
    /// An event that is not signalled yet.
    ///
    /// # Errors
    /// No descriptor to be had.
    pub fn new() -> io::Result<Self> {
        // SAFETY: creates a descriptor.
        let fd = unsafe { libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and ours.
        Ok(Self(Own::raised(unsafe { OwnedFd::from_raw_fd(fd) })))
    }

    /// Signals the event; safe in a signal handler.
    pub fn signal(&self) {
        let one = 1u64;
        // SAFETY: `one` is eight readable bytes. A full counter (EAGAIN) is signalled already. The raw system call passes
        // by an interposed write, which may wait for the engine: in a handler on managed memory, with pages owned.
        unsafe { libc::syscall(libc::SYS_write, self.0.as_raw_fd(), &raw const one, 8) };
    }

    /// Makes the event not signalled.
    pub fn clear(&self) {
        let mut count = 0u64;
        // SAFETY: `count` is eight writable bytes. Raw as above.
        unsafe { libc::syscall(libc::SYS_read, self.0.as_raw_fd(), &raw mut count, 8) };
    }
}

impl AsRawFd for Event {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

/// Waits until one of `fds` is readable, and says which are; negative numbers are ignored.
pub fn poll(fds: &[RawFd; 3], timeout_ms: i32) -> [bool; 3] {
    let mut entries = fds.map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 });
    // SAFETY: `entries` is an array of that length; an interrupted wait is a spurious wake-up.
    unsafe { libc::poll(entries.as_mut_ptr(), entries.len() as libc::nfds_t, timeout_ms) };
    entries.map(|entry| entry.revents != 0)
}

/// A file in RAM, for `mem:` devices.
///
/// # Errors
/// No descriptor to be had.
pub fn memory_file() -> io::Result<std::fs::File> {
    // SAFETY: the name is a C string; the call creates a descriptor.
    let fd = unsafe { libc::memfd_create(c"userswap".as_ptr(), libc::MFD_CLOEXEC) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptor is new and ours.
    Ok(unsafe { std::fs::File::from_raw_fd(fd) })
}

/// Allocates real blocks for a part of a file.
///
/// # Errors
/// ENOSPC on a full file system, EOPNOTSUPP where it cannot be done.
pub fn allocate(fd: RawFd, offset: u64, bytes: u64) -> io::Result<()> {
    let here = Here::of(fd)?;
    // SAFETY: changes only the file's allocation.
    match unsafe {
        libc::fallocate(here.number(), libc::FALLOC_FL_KEEP_SIZE, offset as i64, bytes as i64)
    } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Puts a duplicate of `new` under the number `old`, closing what was there.
///
/// # Errors
/// What dup3 says.
pub fn replace(old: RawFd, new: RawFd) -> io::Result<()> {
    // SAFETY: both descriptors are ours.
    match unsafe { libc::syscall(libc::SYS_dup3, new, old, libc::O_CLOEXEC) } {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Closes a descriptor by number, after fork: its owner is a thread that does not exist in the child.
pub fn close_inherited(fd: RawFd) {
    own_fd::forget(fd);
    // SAFETY: the descriptor is ours and nobody in this process uses it.
    unsafe { libc::close(fd) };
}

/// Makes `to` share all blocks of `from`, where the file system can.
///
/// # Errors
/// EOPNOTSUPP or EXDEV where it cannot.
pub fn reflink(from: RawFd, to: RawFd) -> io::Result<()> {
    const FICLONE: u64 = 0x4004_9409;
    // SAFETY: both descriptors are ours; the request passes one of them by value. The raw system call passes by an
    // interposed ioctl.
    match unsafe { libc::syscall(libc::SYS_ioctl, to, FICLONE, from) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What fcntl is told of a lock on bytes of a file.
pub(super) fn byte_lock(kind: libc::c_int, bytes: Range<usize>) -> libc::flock {
    libc::flock {
        l_type: kind as libc::c_short,
        l_whence: libc::SEEK_SET as libc::c_short,
        l_start: bytes.start as i64,
        l_len: bytes.len() as i64,
        l_pid: 0,
    }
}
