//! Memory by address, past the engine: what a program may do to its own. The memory is a test's: pages of a live region, of
//! a heap or of an arena, of which each has one user at a time, who looks at them again only as what was done allows.
use super::check;
use io_uring::{IoUring, squeue};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::atomic::AtomicU64;

/// Reads from a page.
pub fn touch(address: usize) -> u8 {
    // SAFETY: memory of the test's.
    unsafe { (address as *const u8).read_volatile() }
}

/// Reads a word.
pub fn read(address: usize) -> u64 {
    // SAFETY: as above; others only write elsewhere.
    unsafe { (address as *const u64).read_volatile() }
}

/// Writes a word.
pub fn write(address: usize, word: u64) {
    // SAFETY: as above, with one writer.
    unsafe { (address as *mut u64).write_volatile(word) };
}

/// Reads words one after the other.
pub fn load(address: usize, words: &mut [u64]) {
    // SAFETY: as above.
    unsafe { (address as *const u64).copy_to_nonoverlapping(words.as_mut_ptr(), words.len()) };
}

/// Writes words one after the other.
pub fn store(address: usize, words: &[u64]) {
    // SAFETY: as above, with one writer.
    unsafe { (address as *mut u64).copy_from_nonoverlapping(words.as_ptr(), words.len()) };
}

/// What pages hold, for one user at a time.
pub fn bytes<'a>(address: usize, count: usize) -> &'a mut [u8] {
    // SAFETY: as above.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, count) }
}

/// Words as several threads may use them.
pub fn atomics(words: &mut [u64]) -> &[AtomicU64] {
    // SAFETY: same size and alignment on this architecture, and the exclusive borrow is given up for it.
    unsafe { std::slice::from_raw_parts(words.as_ptr().cast(), words.len()) }
}

/// mprotect.
///
/// # Errors
/// As mprotect's.
pub fn protect(address: usize, bytes: usize, protection: i32) -> io::Result<()> {
    // SAFETY: memory of the test's.
    check(unsafe { libc::mprotect(address as *mut _, bytes, protection) }).map(drop)
}

/// madvise.
///
/// # Errors
/// As madvise's.
pub fn advise(address: usize, bytes: usize, advice: i32) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::madvise(address as *mut _, bytes, advice) }).map(drop)
}

/// munmap.
///
/// # Errors
/// As munmap's.
pub fn unmap(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: as above.
    check(unsafe { libc::munmap(address as *mut _, bytes) }).map(drop)
}

/// Maps the beginning of a file over memory.
///
/// # Errors
/// As mmap's.
pub fn cover(address: usize, bytes: usize, file: &File) -> io::Result<()> {
    let (at, flags) = (address as *mut libc::c_void, libc::MAP_PRIVATE | libc::MAP_FIXED);
    // SAFETY: as above.
    let mapped = unsafe { libc::mmap(at, bytes, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    if mapped == at { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// mlock.
///
/// # Errors
/// As mlock's.
pub fn lock(address: usize, bytes: usize) -> io::Result<()> {
    // SAFETY: changes only where the pages may be.
    check(unsafe { libc::mlock(address as *const _, bytes) }).map(drop)
}

/// mlockall.
///
/// # Errors
/// As mlockall's.
pub fn lock_all(flags: i32) -> io::Result<()> {
    // SAFETY: changes only where the pages may be.
    check(unsafe { libc::mlockall(flags) }).map(drop)
}

/// Has a pipe have room for so many bytes.
///
/// # Errors
/// As fcntl's.
pub fn size_pipe(pipe: &impl AsRawFd, bytes: usize) -> io::Result<()> {
    // SAFETY: changes a pipe of the test's.
    check(unsafe { libc::fcntl(pipe.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) }).map(drop)
}

/// Has a pipe refer to memory (vmsplice), for as long as one of its ends is there; how many bytes of it.
///
/// # Errors
/// As vmsplice's.
pub fn lend(pipe: &impl AsRawFd, address: usize, bytes: usize) -> io::Result<usize> {
    let part = libc::iovec { iov_base: address as *mut _, iov_len: bytes };
    // SAFETY: memory of the test's, which is only read.
    let lent = unsafe { libc::vmsplice(pipe.as_raw_fd(), &part, 1, 0) };
    usize::try_from(lent).map_err(|_| io::Error::last_os_error())
}

/// Pins memory for a ring, which it outlives; from when on a device may write into it.
///
/// # Errors
/// As io_uring_register's.
pub fn register(ring: &IoUring, address: usize, bytes: usize) -> io::Result<()> {
    let held = libc::iovec { iov_base: address as *mut _, iov_len: bytes };
    // SAFETY: memory of the test's, which outlives the ring.
    unsafe { ring.submitter().register_buffers(&[held]) }
}

/// Has a request be made with the next submission; its memory lives, and is the kernel's until it has ended.
///
/// # Errors
/// When the ring is full.
pub fn enqueue(ring: &mut IoUring, request: &squeue::Entry) -> Result<(), squeue::PushError> {
    // SAFETY: as above.
    unsafe { ring.submission().push(request) }
}
