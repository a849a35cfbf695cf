//! What a program does to its memory past the engine. The pages are a test's own, which looks at them again only as what it
//! has done allows.
use super::{PAGE, Pages};
use io_uring::{IoUring, squeue};
use std::fs::File;
use std::io::{PipeReader, PipeWriter};
use std::os::fd::AsRawFd;

/// Reads from a page.
pub fn touch(address: usize) -> u8 {
    // SAFETY: a page of a region or an arena of the test.
    unsafe { (address as *const u8).read_volatile() }
}

/// What pages hold, for one user at a time.
pub fn bytes<'a>(pages: Pages, first: usize, count: usize) -> &'a mut [u8] {
    assert!(first + count <= pages.count);
    // SAFETY: the pages lie in a live region, and each test gives every page one user at a time.
    unsafe { std::slice::from_raw_parts_mut(pages.at(first).cast(), count * PAGE) }
}

/// mprotect of all of them.
pub fn protect(pages: Pages, protection: i32) {
    // SAFETY: see above.
    let done = unsafe { libc::mprotect(pages.at(0).cast(), pages.count * PAGE, protection) };
    assert_eq!(done, 0);
}

/// Has a pipe refer to pages, for as long as one of its ends is there.
pub fn hold(pages: Pages, held: &[usize]) -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    let fd = writer.as_raw_fd();
    // SAFETY: changes a pipe of the test's.
    assert!(unsafe { libc::fcntl(fd, libc::F_SETPIPE_SZ, held.len() * PAGE) } > 0);
    for page in held {
        let part = libc::iovec { iov_base: pages.at(*page).cast(), iov_len: PAGE };
        // SAFETY: see above.
        assert_eq!(unsafe { libc::vmsplice(fd, &part, 1, 0) }, PAGE as isize);
    }
    (reader, writer)
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
pub fn register(ring: &IoUring, pages: Pages) {
    let held = libc::iovec { iov_base: pages.at(0).cast(), iov_len: pages.count * PAGE };
    // SAFETY: see above.
    unsafe { ring.submitter().register_buffers(&[held]) }.unwrap();
}

/// Has a request be made with the next submission; its memory lives, and is the kernel's until it has ended.
pub fn enqueue(ring: &mut IoUring, request: &squeue::Entry) {
    // SAFETY: see above.
    unsafe { ring.submission().push(request) }.unwrap();
}

/// Makes a request whose memory lives, and waits; what the kernel answers.
pub fn answered(ring: &mut IoUring, request: &squeue::Entry) -> i32 {
    enqueue(ring, request);
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}
