//! What a program does to its memory past the engine, by pages.
use super::internals::bench::raw;
use super::{PAGE, Pages};
use io_uring::{IoUring, squeue};
use std::fs::File;
use std::io::{PipeReader, PipeWriter};

/// What pages hold, for one user at a time.
pub fn bytes<'a>(pages: Pages, first: usize, count: usize) -> &'a mut [u8] {
    assert!(first + count <= pages.count);
    raw::bytes(pages.at(first).addr(), count * PAGE)
}

/// mprotect of all of them.
pub fn protect(pages: Pages, protection: i32) {
    raw::protect(pages.address, pages.count * PAGE, protection).unwrap();
}

/// Has a pipe refer to pages, for as long as one of its ends is there.
pub fn hold(pages: Pages, held: &[usize]) -> (PipeReader, PipeWriter) {
    let (reader, writer) = std::io::pipe().unwrap();
    raw::size_pipe(&writer, held.len() * PAGE).unwrap();
    for page in held {
        assert_eq!(raw::lend(&writer, pages.at(*page).addr(), PAGE).unwrap(), PAGE);
    }
    (reader, writer)
}

pub fn drop_raw(pages: &Pages, first: usize, count: usize) {
    raw::advise(pages.at(first).addr(), count * PAGE, libc::MADV_DONTNEED).unwrap();
}

pub fn unmap_raw(pages: &Pages, first: usize, count: usize) {
    raw::unmap(pages.at(first).addr(), count * PAGE).unwrap();
}

/// Maps the beginning of a file over pages.
pub fn cover_with(file: &File, address: usize, count: usize) {
    raw::cover(address, count * PAGE, file).unwrap();
}

pub fn lock_raw(pages: &Pages, first: usize, count: usize) {
    raw::lock(pages.at(first).addr(), count * PAGE).expect("root, or a limit that allows it");
}

pub fn lock_all(flags: i32) {
    raw::lock_all(flags).expect("root, or a limit that allows it");
}

/// Pins pages for a ring, which they outlive; from when on a device may write into them.
pub fn register(ring: &IoUring, pages: Pages) {
    raw::register(ring, pages.address, pages.count * PAGE).unwrap();
}

/// Has a request be made with the next submission; its memory lives, and is the kernel's until it has ended.
pub fn enqueue(ring: &mut IoUring, request: &squeue::Entry) {
    raw::enqueue(ring, request).unwrap();
}

/// Makes a request whose memory lives, and waits; what the kernel answers.
pub fn answered(ring: &mut IoUring, request: &squeue::Entry) -> i32 {
    enqueue(ring, request);
    ring.submit_and_wait(1).unwrap();
    ring.completion().next().unwrap().result()
}
