//! mimalloc's memory: heap areas of the arena, added one by one as it asks for more.
//!
//! A heap area is made accessible as a whole once; what mimalloc commits and purges in it is only counted,
//! in slices, so that no call to the kernel and no split mapping comes of it. A purge drops the content.
//! mimalloc's large administration (its page map) is the kernel's, see `constructor`.
use crate::abi::raw::{self, PAGE_BYTES};
use crate::memory::engagement;
use crate::memory::mappings;
use crate::state::areas::Area;
use crate::state::process::{self, Process};
use libc::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::arena::PageRange;
use userswap::sys::lock::Lock;
use userswap::sys::mapping::ZeroedSlice;
use userswap::sys::signal::Blocked;

/// mimalloc's unit of commitment.
const SLICE_BYTES: usize = 64 << 10;
const SLICE_PAGES: u64 = (SLICE_BYTES / PAGE_BYTES) as u64;
/// The first heap area: mimalloc's administration of it is below 1 MiB.
const AREA_BYTES_FIRST: usize = 256 << 20;
/// mimalloc takes no larger ones.
const AREA_BYTES_MAX: usize = 16 << 30;
/// Less than this mimalloc does not take.
const AREA_BYTES_MIN: usize = 32 << 20;
/// Of huge page size, as the kernel would place it.
const AREA_ALIGN_PAGES: u32 = 512;

type CommitFunction = extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

unsafe extern "C" {
    /// In mimalloc since version 3; not declared by libmimalloc-sys.
    fn mi_manage_memory(
        start: *mut c_void,
        bytes: usize,
        is_committed: bool,
        is_pinned: bool,
        is_zero: bool,
        numa_node: c_int,
        exclusive: bool,
        commit: CommitFunction,
        commit_argument: *mut c_void,
        arena_id: *mut *mut c_void,
    ) -> bool;
}

/// Numbers of mimalloc's options (version 3.3), of which libmimalloc-sys names only the stable ones.
mod option {
    pub const SHOW_ERRORS: i32 = 0;
    pub const SHOW_STATS: i32 = 1;
    pub const VERBOSE: i32 = 2;
    pub const DISALLOW_OS_ALLOC: i32 = 17;
    pub const DESTROY_ON_EXIT: i32 = 22;
    pub const PAGE_COMMIT_ON_DEMAND: i32 = 40;
}

/// The next heap area's size; held while one is added.
pub static GROWTH: Lock<usize> = Lock::new(AREA_BYTES_FIRST);

/// A bit for every slice of the arena that is committed.
static COMMITTED: OnceLock<ZeroedSlice<AtomicU64>> = OnceLock::new();

/// Sets mimalloc up; called by the constructor, after mimalloc's own.
///
/// # Errors
/// No memory for the books.
pub fn prepare(process: &Process) -> std::io::Result<()> {
    let slices = process.arena.bytes() / SLICE_BYTES + 2;
    let committed = ZeroedSlice::new(slices / 64 + 1)?;
    assert!(COMMITTED.set(committed).is_ok(), "the constructor runs once");
    let settings = [
        (option::SHOW_ERRORS, 0),
        (option::SHOW_STATS, 0),
        (option::VERBOSE, 0),
        // Only heap areas of ours.
        (option::DISALLOW_OS_ALLOC, 1),
        // Above one: nothing at exit, where collecting would bring everything in that is swapped.
        (option::DESTROY_ON_EXIT, 2),
        // Its pages of 4 MiB would make every small program look large.
        (option::PAGE_COMMIT_ON_DEMAND, 1),
    ];
    for (option, value) in settings {
        // SAFETY: the options exist and take these values.
        unsafe { libmimalloc_sys::mi_option_set(option, value) };
    }
    Ok(())
}

/// Tries `allocate` until it succeeds, giving mimalloc more room in between; null when there is no more.
#[cold]
pub fn allocate_growing(allocate: impl Fn() -> *mut c_void) -> *mut c_void {
    let Some(process) = process::current() else { return std::ptr::null_mut() };
    loop {
        let _blocked = Blocked::new();
        let mut growth = GROWTH.lock();
        let block = allocate();
        if !block.is_null() {
            return block;
        }
        match grow(process, *growth) {
            Some(bytes) => *growth = (bytes * 2).min(AREA_BYTES_MAX),
            None => return std::ptr::null_mut(),
        }
    }
}

/// Adds a heap area of at most `bytes`; returns what it has become.
fn grow(process: &Process, bytes: usize) -> Option<usize> {
    let mut bytes = bytes;
    while bytes >= AREA_BYTES_MIN {
        if let Some(range) = heap_area(process, bytes) {
            return manage(process, range).then_some(bytes);
        }
        bytes /= 2;
    }
    None
}

fn heap_area(process: &Process, bytes: usize) -> Option<PageRange> {
    let books = process.books.lock();
    let range = process.arena.allocate((bytes / PAGE_BYTES) as u32, AREA_ALIGN_PAGES)?;
    drop(books);
    let (address, bytes) = process.bytes_of(range);
    let accessible = raw::protect(address, bytes, libc::PROT_READ | libc::PROT_WRITE).is_ok();
    let mut books = process.books.lock();
    if !accessible {
        // A limit on data or on commitments: a smaller one may fit.
        process.arena.free(range);
        return None;
    }
    books.set(range, Area::Heap);
    Some(range)
}

fn manage(process: &Process, range: PageRange) -> bool {
    let (address, bytes) = process.bytes_of(range);
    // SAFETY: the area is fresh, accessible, zero, aligned, and nobody's but mimalloc's from now on.
    unsafe {
        mi_manage_memory(
            address as *mut c_void,
            bytes,
            false,
            false,
            true,
            -1,
            false,
            on_commit,
            std::ptr::null_mut(),
            std::ptr::null_mut(),
        )
    }
}

/// mimalloc is about to use a range, or has no use for its content any more.
///
/// Returns, for a commitment, whether the range may be used; for the contrary, whether it has to be
/// committed before it is used again.
extern "C" fn on_commit(
    commits: bool,
    start: *mut c_void,
    bytes: usize,
    is_zero: *mut bool,
    _: *mut c_void,
) -> bool {
    let Some(process) = process::current() else { return false };
    // SAFETY: null, or a place for a flag.
    if let Some(is_zero) = unsafe { is_zero.as_mut() } {
        *is_zero = false;
    }
    if commits {
        commit(process, start as usize, bytes);
        return true;
    }
    let range = process.pages_between(start as usize, start as usize + bytes);
    let _blocked = Blocked::new();
    mappings::forget(process, &process.phase(), range);
    process
        .heap_pages
        .fetch_sub(mark(process, start as usize, bytes, Mark::Free), Ordering::Relaxed);
    true
}

/// Counts a range as in use; mimalloc also says so by mprotect, when it extends a page of its own.
pub fn commit(process: &Process, start: usize, bytes: usize) {
    let pages = mark(process, start, bytes, Mark::Committed);
    process.heap_pages.fetch_add(pages, Ordering::Relaxed);
    engagement::engage_if_needed(process);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Committed,
    Free,
}

/// Marks the slices of a range; returns how many pages changed sides.
fn mark(process: &Process, start: usize, bytes: usize, mark: Mark) -> u64 {
    let base = process.arena.address() / SLICE_BYTES;
    let first = start / SLICE_BYTES - base;
    let end = (start + bytes).div_ceil(SLICE_BYTES) - base;
    let words = COMMITTED.get().expect("the constructor has made it");
    let changed = (first..end).filter(|slice| {
        let (word, bit) = (&words[slice / 64], 1u64 << (slice % 64));
        // Relaxed: mimalloc orders what happens to a slice.
        let before = match mark {
            Mark::Committed => word.fetch_or(bit, Ordering::Relaxed),
            Mark::Free => word.fetch_and(!bit, Ordering::Relaxed),
        };
        (before & bit == 0) == (mark == Mark::Committed)
    });
    changed.count() as u64 * SLICE_PAGES
}
