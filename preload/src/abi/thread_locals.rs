//! This library's thread-locals, found without the C library's table of them.
//!
//! Each thread has such a table (dtv), in memory of the program's malloc: where the program brings an
//! allocator, that memory is managed and may be swapped out, and the thread that would bring it in looks there
//! first. This library is loaded at the start, so its thread-locals have a fixed distance from the thread's
//! own pointer.
use super::symbols::each_object;
use libc::c_void;
use std::arch::asm;
use std::sync::atomic::{AtomicUsize, Ordering};

/// From the thread's pointer to our thread-locals; zero until it is known.
static DISTANCE: AtomicUsize = AtomicUsize::new(0);

/// The thread's pointer.
pub fn pointer() -> usize {
    let pointer: usize;
    // SAFETY: the first word that it points to is the pointer itself.
    #[cfg(target_arch = "x86_64")]
    unsafe {
        asm!("mov {}, fs:[0]", out(reg) pointer, options(nostack, readonly, preserves_flags));
    }
    // SAFETY: reads a register.
    #[cfg(target_arch = "aarch64")]
    unsafe {
        asm!("mrs {}, tpidr_el0", out(reg) pointer, options(nostack, nomem, preserves_flags));
    }
    pointer
}

/// Whether this thread has thread-locals: a child that shares memory (CLONE_VM) can have been given others by its parent
/// (CLONE_SETTLS), all zero, as Chromium's sandbox does for one that only changes directories.
pub fn are_here() -> bool {
    pointer() != 0
}

/// An entry of a table: a pointer, and what is to be freed with it.
const ENTRY_BYTES: usize = 2 * size_of::<usize>();

/// Where the block with this thread's table of thread-locals begins: with the number of its entries.
pub fn table() -> usize {
    // The word after the pointer itself, or the first one.
    let word = pointer() + if cfg!(target_arch = "x86_64") { size_of::<usize>() } else { 0 };
    // SAFETY: the layout is part of the ABI.
    unsafe { *(word as *const usize) - ENTRY_BYTES }
}

/// Where the table of another thread begins, as [`table`], by the words at that thread's pointer; None if no thread is there any
/// more.
pub fn table_of(thread: usize, [this, table, again]: [usize; 3]) -> Option<usize> {
    // Only this ABI says of a thread's pointer that it points to itself (glibc's tcbhead_t).
    let is_thread = cfg!(target_arch = "x86_64") && [this, again] == [thread; 2];
    is_thread.then(|| table - ENTRY_BYTES)
}

/// Has the blocks of a table forgotten that they are to be freed, as far as it lies within so many bytes.
///
/// # Safety
/// What [`table_of`] has returned for a thread that has ended; it can be written to.
pub unsafe fn keep_blocks(table: usize, bytes: usize) {
    let start = table as *mut [usize; 2];
    // SAFETY: the table begins with the number of its entries; before the first of them is its generation.
    let count = unsafe { (*start)[0] }.min(bytes / ENTRY_BYTES - 2);
    // SAFETY: as above; nobody else has them.
    let entries = unsafe { std::slice::from_raw_parts_mut(start, 2 + count) };
    // Where each block is, and what is to be freed.
    entries[2..].iter_mut().for_each(|[_, freed]| *freed = 0);
}

/// What the compiler passes.
#[repr(C)]
struct Index {
    module: usize,
    offset: usize,
}

/// The address of a thread-local of ours (build.rs).
#[unsafe(no_mangle)]
unsafe extern "C" fn __wrap___tls_get_addr(index: *const Index) -> *mut c_void {
    // SAFETY: the compiler passes an entry of this library's.
    let offset = unsafe { (*index).offset };
    // Relaxed: every thread finds the same.
    let distance = match DISTANCE.load(Ordering::Relaxed) {
        0 => find(),
        distance => distance,
    };
    pointer().wrapping_add(distance).wrapping_add(offset) as *mut c_void
}

/// Finds out the distance; called by the constructor, before another thread can have the loader's lock.
#[cold]
pub fn find() -> usize {
    let ours = each_object(|object| object.is_ours().then(|| object.thread_locals()));
    let ours = ours.expect("this library is loaded");
    let distance = ours.wrapping_sub(pointer());
    DISTANCE.store(distance, Ordering::Relaxed);
    distance
}
