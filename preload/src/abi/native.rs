//! glibc's own malloc under the names it exports for this purpose: the heap of everything that must never
//! be paged by the engine, which is the engine itself, this library, and the C library. They are the C
//! library's own, also where another allocator defines these names.
use super::raw::{self, MapRequest, Span};
use super::symbols::symbol_functions;
use super::system_call::make;
use libc::{c_void, size_t};
use std::alloc::{GlobalAlloc, Layout};
use userswap::internals::{PAGE_BYTES, memory_limit};

symbol_functions! { Libc:
    fn malloc(bytes: size_t) -> *mut c_void = c"__libc_malloc";
    fn calloc(count: size_t, bytes: size_t) -> *mut c_void = c"__libc_calloc";
    fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void = c"__libc_realloc";
    fn memalign(align: size_t, bytes: size_t) -> *mut c_void = c"__libc_memalign";
    fn free(block: *mut c_void) = c"__libc_free";
    /// A block's length.
    fn malloc_usable_size(block: *mut c_void) -> size_t = c"malloc_usable_size";
    /// A setting of this heap's.
    fn mallopt(setting: libc::c_int, value: libc::c_int) -> libc::c_int = c"mallopt";
    fn realpath(path: *const libc::c_char, result: *mut libc::c_char) -> *mut libc::c_char = c"realpath";
}

/// What Rust's standard library calls where it does not use the global allocator (build.rs).
mod wrapped {
    use super::*;
    use libc::{c_char, c_int};

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_malloc(bytes: size_t) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { malloc(bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_calloc(count: size_t, bytes: size_t) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { calloc(count, bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_realloc(block: *mut c_void, bytes: size_t) -> *mut c_void {
        // SAFETY: the caller's promise.
        unsafe { realloc(block, bytes) }
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_posix_memalign(
        result: *mut *mut c_void,
        align: size_t,
        bytes: size_t,
    ) -> c_int {
        // SAFETY: the caller's promise.
        let block = unsafe { memalign(align, bytes) };
        if block.is_null() {
            return libc::ENOMEM;
        }
        // SAFETY: the caller passes room for a pointer.
        unsafe { result.write(block) };
        0
    }

    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_free(block: *mut c_void) {
        // SAFETY: the caller's promise.
        unsafe { free(block) }
    }

    /// The C library would take the room for its result from the program's malloc.
    #[unsafe(no_mangle)]
    unsafe extern "C" fn __wrap_realpath(path: *const c_char, result: *mut c_char) -> *mut c_char {
        if !result.is_null() {
            // SAFETY: the caller's promise.
            return unsafe { realpath(path, result) };
        }
        // SAFETY: any size may be asked for.
        let room = unsafe { malloc(libc::PATH_MAX as size_t) };
        if room.is_null() {
            return std::ptr::null_mut();
        }
        // SAFETY: the room is as large as the longest result.
        let found = unsafe { realpath(path, room.cast()) };
        if found.is_null() {
            // SAFETY: the block is from above.
            unsafe { free(room) };
        }
        found
    }
}

/// What a process needs of this heap twice over; less than a huge page, which would be in memory whole.
const HEAP_BYTES: size_t = 1 << 20;
/// The same where the heap must never grow; what is not used of it is not in memory.
const HEAP_BYTES_ELSEWHERE: size_t = 16 << 20;

/// In the constructor, before anything is allocated: the heap behind the program's data gets its room at once. A program that
/// takes memory there itself (brk), and gives it back by going to where the end was before, would else give back what is ours.
pub fn widen() {
    let block = room(HEAP_BYTES);
    // SAFETY: the block is from this heap, or null.
    unsafe { free(block) };
}

/// The same for a program with a malloc of its own, which may take for granted that all memory behind its data is its own: the
/// heap gets its room elsewhere. glibc would look there for more.
pub fn widen_elsewhere() {
    let errno = raw::errno();
    let fence = Fence::new();
    let block = room(HEAP_BYTES_ELSEWHERE);
    drop(fence);
    if !block.is_null() {
        let start = block.addr().next_multiple_of(PAGE_BYTES);
        let bytes = (block.addr() + HEAP_BYTES_ELSEWHERE - start) / PAGE_BYTES * PAGE_BYTES;
        // Without it a huge page would be in memory whole; a kernel without huge pages refuses.
        let _ = raw::advise(Span { address: start, bytes }, libc::MADV_NOHUGEPAGE);
    }
    // SAFETY: the block is from this heap, or null.
    unsafe { free(block) };
    raw::set_errno(errno);
}

/// A block at the end of the heap, which is not mapped by itself, and is not given back to the kernel when it is free; null
/// where there is no room.
fn room(bytes: size_t) -> *mut c_void {
    /// Settings, and what glibc begins with.
    const TRIM_THRESHOLD: libc::c_int = -1;
    const MAP_THRESHOLD: libc::c_int = -3;
    const MAP_THRESHOLD_BYTES: libc::c_int = 128 << 10;
    // SAFETY: a setting and a value of it, here and below.
    let set = |setting, value| unsafe { mallopt(setting, value) };
    set(TRIM_THRESHOLD, libc::c_int::MAX);
    set(MAP_THRESHOLD, libc::c_int::MAX >> 6);
    // SAFETY: any size may be asked for.
    let block = unsafe { malloc(bytes) };
    set(MAP_THRESHOLD, MAP_THRESHOLD_BYTES);
    block
}

/// A page at the end of the program's data: as long as it is there, that has no room to grow, and glibc maps what it needs.
struct Fence(Option<Span>);

impl Fence {
    fn new() -> Self {
        let address = make(libc::SYS_brk, [0; 6]).next_multiple_of(PAGE_BYTES);
        let (bytes, protection) = (PAGE_BYTES, libc::PROT_NONE);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED_NOREPLACE;
        let request = MapRequest { address, bytes, protection, flags, fd: -1, offset: 0 };
        Self(raw::map(request).is_ok().then_some(Span { address, bytes }))
    }
}

impl Drop for Fence {
    fn drop(&mut self) {
        self.0.into_iter().for_each(|page| _ = raw::unmap(page));
    }
}

/// glibc aligns every block to this, and so does mimalloc, in bytes.
pub const ALIGN_NATURAL: usize = 16;

/// Rust's heap on glibc's malloc.
pub struct Native;

// SAFETY: glibc's malloc family keeps the contract of an allocator; larger alignments go to memalign.
unsafe impl GlobalAlloc for Native {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_NATURAL {
            // SAFETY: any size may be asked for.
            return had(unsafe { malloc(layout.size()) }, layout.size());
        }
        // SAFETY: a layout's alignment is a power of two.
        had(unsafe { memalign(layout.align(), layout.size()) }, layout.size())
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block came from one of the functions above.
        unsafe { free(block.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_NATURAL {
            // SAFETY: any size may be asked for.
            return had(unsafe { calloc(1, layout.size()) }, layout.size());
        }
        // SAFETY: the caller keeps the contract of `alloc`.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        if layout.align() <= ALIGN_NATURAL {
            // SAFETY: the block came from `malloc` or `calloc` above.
            return had(unsafe { realloc(block.cast(), bytes) }, bytes);
        }
        // SAFETY: the alignment is the old one, which was valid.
        let wanted = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        // SAFETY: the caller keeps the contract of `alloc`.
        let new = unsafe { self.alloc(wanted) };
        if !new.is_null() {
            // SAFETY: both blocks have that many bytes and are distinct.
            unsafe { new.copy_from_nonoverlapping(block, layout.size().min(bytes)) };
            // SAFETY: the caller gives the old block up.
            unsafe { self.dealloc(block, layout) };
        }
        new
    }
}

/// What is larger than this, in bytes, may be asked for by code that goes on without it.
const GONE_WITHOUT_BYTES: usize = 1024;

/// A block that has been asked for. Where there is not even a small one the process ends, and says why: Rust's own message
/// names no reason.
fn had(block: *mut c_void, bytes: usize) -> *mut u8 {
    if block.is_null() && bytes <= GONE_WITHOUT_BYTES {
        raw::stop(match memory_limit::is_tight() {
            true => {
                "no memory is left for managing this process, which ends: raise its limit of data or address space \
                 (RLIMIT_DATA, ulimit -d; RLIMIT_AS, ulimit -v), by 6G for an engine's tables\n"
            }
            false => "no memory is left for managing this process, which ends\n",
        });
    }
    block.cast()
}
