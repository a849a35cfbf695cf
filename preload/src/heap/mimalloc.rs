//! mimalloc's memory: heap areas of the arena, added one by one as it asks for more.
//!
//! A heap area is made accessible as a whole once; what mimalloc commits and purges in it is only counted
//! (`memory/commitment`). A purge drops the content.
//! mimalloc's one large table (its page map) is the kernel's.
use crate::abi::raw::{self, Span};
use crate::memory::own_stack::on_own_stack;
use crate::memory::{commitment, locking, origins, ranges};
use crate::state::areas::Area;
use crate::state::process::{self, Process};
use libc::{c_int, c_void};
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// The first heap area: mimalloc's own tables in it are below 1 MiB.
const AREA_BYTES_FIRST: usize = 256 << 20;
/// mimalloc takes no larger ones.
const AREA_BYTES_MAX: usize = 16 << 30;
/// Less than this mimalloc does not take.
const AREA_BYTES_MIN: usize = 32 << 20;

/// Of mimalloc's page map, where addresses have 47 bits.
const PAGE_MAP_BYTES: usize = 2 << 20;

type CommitFunction = extern "C" fn(bool, *mut c_void, usize, *mut bool, *mut c_void) -> bool;

unsafe extern "C" {
    /// Its table of what is where, by 512 MiB of addresses.
    static _mi_page_map: *mut c_void;

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
    pub const RESERVE_HUGE_OS_PAGES: i32 = 7;
    pub const RESERVE_OS_MEMORY: i32 = 9;
    pub const DISALLOW_OS_ALLOC: i32 = 17;
    pub const DESTROY_ON_EXIT: i32 = 22;
    pub const PAGE_COMMIT_ON_DEMAND: i32 = 40;
}

/// The next heap area's size; held while one is added.
pub static GROWTH: Lock<usize> = Lock::new(AREA_BYTES_FIRST);

/// Sets mimalloc up; called by the constructor before there is managed memory, so that the page map is the kernel's: of its
/// 2.25 MiB few pages are ever touched, and all would count as what the program can have filled.
pub fn prepare() {
    let settings = [
        (option::SHOW_ERRORS, 0),
        (option::SHOW_STATS, 0),
        (option::VERBOSE, 0),
        // Only heap areas of ours, also where the environment tells a mimalloc of the program's to reserve memory.
        (option::DISALLOW_OS_ALLOC, 1),
        (option::RESERVE_OS_MEMORY, 0),
        (option::RESERVE_HUGE_OS_PAGES, 0),
        // Above one: nothing at exit, where collecting would bring everything in that is swapped.
        (option::DESTROY_ON_EXIT, 2),
        // Its pages of 4 MiB would make every small program look large.
        (option::PAGE_COMMIT_ON_DEMAND, 1),
    ];
    for (option, value) in settings {
        // SAFETY: the options exist and take these values.
        unsafe { libmimalloc_sys::mi_option_set(option, value) };
    }
    // SAFETY: has no conditions, and does nothing the second time.
    unsafe { libmimalloc_sys::mi_process_init() };
    // SAFETY: written by that, and not changed any more.
    let address = unsafe { _mi_page_map } as usize;
    // One huge page would be more than all that is touched of it. A kernel without them refuses.
    let _ = raw::advise(Span { address, bytes: PAGE_MAP_BYTES }, libc::MADV_NOHUGEPAGE);
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
        match on_own_stack(|| grow(process, *growth)) {
            Some(bytes) => *growth = (bytes * 2).min(AREA_BYTES_MAX),
            None => return std::ptr::null_mut(),
        }
    }
}

/// Adds a heap area of at most `bytes`; returns what it has become.
fn grow(process: &Process, bytes: usize) -> Option<usize> {
    let range = largest_area(process, bytes, AREA_BYTES_MIN)?;
    manage(process, range).then_some(process.span_of(range).bytes)
}

/// Accessible memory of the arena that malloc shares out: so many bytes, or half as many and so on, down to a least.
pub(super) fn largest_area(process: &Process, bytes: usize, least: usize) -> Option<PageRange> {
    let sizes = std::iter::successors(Some(bytes), |bytes| Some(bytes / 2));
    sizes.take_while(|bytes| *bytes >= least).find_map(|bytes| heap_area(process, bytes))
}

fn heap_area(process: &Process, bytes: usize) -> Option<PageRange> {
    let range = ranges::take(process, (bytes / PAGE_BYTES) as u32, ranges::HUGE_PAGES)?;
    let accessible = raw::protect(process.span_of(range), libc::PROT_READ | libc::PROT_WRITE);
    if accessible.is_ok() {
        ranges::add_to_dump(process, range);
    }
    let mut areas = process.areas.lock();
    if accessible.is_err() {
        // A limit on data or on commitments: a smaller one may fit.
        process.arena.free(range);
        return None;
    }
    areas.set(range, Area::HEAP);
    origins::note_heap(process, range);
    Some(range)
}

fn manage(process: &Process, range: PageRange) -> bool {
    let Span { address, bytes } = process.span_of(range);
    // SAFETY: the area is fresh, accessible, zero, aligned, and only mimalloc's from now on.
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
    // SAFETY: null, or a pointer to a flag.
    if let Some(is_zero) = unsafe { is_zero.as_mut() } {
        *is_zero = false;
    }
    let span = Span::of(start, bytes);
    if commits {
        on_own_stack(|| commitment::commit(process, span));
        return true;
    }
    on_own_stack(|| give_back(process, span));
    true
}

/// Drops the content of memory that nobody uses.
pub(super) fn give_back(process: &Process, span: Span) {
    // free() comes here, and changes none.
    let errno = raw::errno();
    let range = process.pages_between(span.address..span.address + span.bytes);
    let _blocked = Blocked::new();
    let phase = process.phase();
    // What the program freed without unlocking it is not its any more; locked memory cannot be emptied.
    locking::release(process, &phase, range);
    ranges::forget(process, &phase, range);
    commitment::release(process, span);
    raw::set_errno(errno);
}
