//! What a program does to its memory past the engine. The pages are a test's own, which looks at them again only as what it
//! has done allows.
use super::{PAGE, Pages};
use std::fs::File;
use std::os::fd::AsRawFd;

/// Reads from a page.
pub fn touch(address: usize) -> u8 {
    // SAFETY: a page of a region or an arena of the test.
    unsafe { (address as *const u8).read_volatile() }
}

/// mprotect of all of them.
pub fn protect(pages: Pages, protection: i32) {
    // SAFETY: see above.
    let done = unsafe { libc::mprotect(pages.at(0).cast(), pages.count * PAGE, protection) };
    assert_eq!(done, 0);
}

pub fn drop_raw(pages: &Pages, first: usize, count: usize) {
    // SAFETY: see above.
    let done = unsafe { libc::madvise(pages.at(first).cast(), count * PAGE, libc::MADV_DONTNEED) };
    assert_eq!(done, 0);
}

pub fn unmap_raw(pages: &Pages, first: usize, count: usize) {
    // SAFETY: see above.
    assert_eq!(unsafe { libc::munmap(pages.at(first).cast(), count * PAGE) }, 0);
}

/// Maps the beginning of a file over pages.
pub fn cover_with(file: &File, address: usize, count: usize) {
    let (at, flags) = (address as *mut libc::c_void, libc::MAP_PRIVATE | libc::MAP_FIXED);
    // SAFETY: see above.
    let mapped =
        unsafe { libc::mmap(at, count * PAGE, libc::PROT_READ, flags, file.as_raw_fd(), 0) };
    assert_eq!(mapped, at);
}

pub fn lock_raw(pages: &Pages, first: usize, count: usize) {
    // SAFETY: changes only where the pages may be.
    let done = unsafe { libc::mlock(pages.at(first).cast(), count * PAGE) };
    assert_eq!(done, 0, "root, or a limit that allows it");
}

pub fn lock_all(flags: i32) {
    // SAFETY: changes only where the pages may be.
    assert_eq!(unsafe { libc::mlockall(flags) }, 0, "root, or a limit that allows it");
}

/// Pins pages for a ring, which they outlive; from when on a device may write into them.
pub fn register(ring: &io_uring::IoUring, pages: Pages) {
    let held = libc::iovec { iov_base: pages.at(0).cast(), iov_len: pages.count * PAGE };
    // SAFETY: see above.
    unsafe { ring.submitter().register_buffers(&[held]) }.unwrap();
}
