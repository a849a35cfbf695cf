//! glibc's own malloc under the names it exports for this purpose: the heap of everything that must never
//! be paged by the engine, which is the engine itself, this library, and the C library.
use libc::{c_void, size_t};
use std::alloc::{GlobalAlloc, Layout};

unsafe extern "C" {
    #[link_name = "__libc_malloc"]
    pub fn malloc(bytes: size_t) -> *mut c_void;
    #[link_name = "__libc_calloc"]
    pub fn calloc(count: size_t, bytes: size_t) -> *mut c_void;
    #[link_name = "__libc_realloc"]
    pub fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void;
    #[link_name = "__libc_memalign"]
    pub fn memalign(align: size_t, bytes: size_t) -> *mut c_void;
    #[link_name = "__libc_free"]
    pub fn free(block: *mut c_void);
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
            return unsafe { malloc(layout.size()) }.cast();
        }
        // SAFETY: a layout's alignment is a power of two.
        unsafe { memalign(layout.align(), layout.size()) }.cast()
    }

    unsafe fn dealloc(&self, block: *mut u8, _: Layout) {
        // SAFETY: the block came from one of the functions above.
        unsafe { free(block.cast()) };
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if layout.align() <= ALIGN_NATURAL {
            // SAFETY: any size may be asked for.
            return unsafe { calloc(1, layout.size()) }.cast();
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
            return unsafe { realloc(block.cast(), bytes) }.cast();
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
