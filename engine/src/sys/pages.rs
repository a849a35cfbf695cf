//! The bytes of frames and pages.
//!
//! A frame's bytes belong to its holder (`policy::frames`), so these functions hand out plain slices;
//! a page of a region is touched only while its word is Leaving and the page is known to be mapped.
use super::PAGE_BYTES;

/// The bytes of `pages` pages at `address`, for reading.
///
/// The caller holds the frames there: they are present and no other thread writes to them.
pub fn bytes<'a>(address: usize, pages: u32) -> &'a [u8] {
    // SAFETY: held frames are mapped, present and written to by nobody but the holder.
    unsafe { std::slice::from_raw_parts(address as *const u8, pages as usize * PAGE_BYTES) }
}

/// Fills `pages` pages at `address` with zeros; the caller holds the frames there.
pub fn zero(address: usize, pages: u32) {
    // SAFETY: held frames are mapped, present and used by nobody but the holder.
    unsafe { std::ptr::write_bytes(address as *mut u8, 0, pages as usize * PAGE_BYTES) };
}

/// Copies `pages` pages; the caller holds the frames at `to` and has the pages at `from` protected.
pub fn copy(to: usize, from: usize, pages: u32) {
    let bytes = pages as usize * PAGE_BYTES;
    // SAFETY: both ranges are mapped and distinct, and no thread writes to either meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
}

/// Makes a mapped page this process's own, where fork left it shared, without changing a byte of it; false
/// when it cannot be written, because the program has just protected or dropped it.
///
/// The kernel does the write. An instruction of ours would raise SIGSEGV if the program protects the page meanwhile,
/// and if the program drops it would wait for a fault to be served, as MADV_POPULATE_WRITE would.
pub fn unshare(address: usize) -> bool {
    super::futex::rewrite(address)
}

/// Makes the page at `address` ready to be written to, by a fault if it is protected by userfaultfd, without changing a
/// byte. Where the program has forbidden writing nothing happens.
pub fn prepare_write(address: usize) {
    // SAFETY: changes nothing. The raw system call passes by an interposed madvise.
    unsafe {
        libc::syscall(libc::SYS_madvise, address, PAGE_BYTES, libc::MADV_POPULATE_WRITE);
    }
}

/// Reads one byte of every page in a range, so that missing ones are swapped in.
pub fn touch(address: usize, pages: usize) {
    for page in 0..pages {
        // SAFETY: the caller owns a region there; a fault on it is what this is for.
        unsafe { std::ptr::read_volatile((address + page * PAGE_BYTES) as *const u8) };
    }
}

/// Fills a block of a heap with zeros; the caller was just given it.
pub fn clear(address: usize, bytes: usize) {
    // SAFETY: the block is mapped and nobody else's.
    unsafe { std::ptr::write_bytes(address as *mut u8, 0, bytes) };
}

/// Copies what is in one block of a heap to another; the caller owns both.
pub fn copy_block(to: usize, from: usize, bytes: usize) {
    // SAFETY: both blocks are mapped, distinct, that long at least, and nobody else uses them meanwhile.
    unsafe { std::ptr::copy_nonoverlapping(from as *const u8, to as *mut u8, bytes) };
}

/// A view of a region's memory.
pub fn view<'a>(address: usize, bytes: usize) -> &'a [u8] {
    // SAFETY: the range is one live region, readable for as long as the region handle is borrowed.
    unsafe { std::slice::from_raw_parts(address as *const u8, bytes) }
}

/// A view of a region's memory for writing.
pub fn view_mut<'a>(address: usize, bytes: usize) -> &'a mut [u8] {
    // SAFETY: the range is one live region, and its handle is borrowed exclusively.
    unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) }
}
