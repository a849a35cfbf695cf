//! Blocks that are not mimalloc's: glibc's, or those of an allocator that the program brings along.
//!
//! A program may define malloc itself (in its executable, or in a library that comes after this one). Our
//! functions then step aside, all of them and from the first call on: whatever reaches them goes to the next
//! definition of its name, as if this library were not there. Serving only a part would hand blocks of one
//! allocator to another's free: who calls which function is decided by the linker, by the compiler and by
//! what the allocator leaves out (strdup, reallocarray). Such a program has its mappings managed, which
//! is where its allocator takes its memory from.
use crate::abi::allocator::is_foreign;
use crate::abi::native;
use crate::abi::symbols::symbol_functions;
use crate::state::process::{self, Process};
use libc::{c_char, c_int, c_void, size_t};
use std::sync::atomic::{AtomicUsize, Ordering};

/// First address and length of where mimalloc's blocks are; nothing before there are any.
static HEAP_START: AtomicUsize = AtomicUsize::new(0);
static HEAP_BYTES: AtomicUsize = AtomicUsize::new(0);

/// Whether a block is mimalloc's, or one that is a mapping of its own.
#[inline]
pub fn owns(block: *mut c_void) -> bool {
    // Relaxed: written by the constructor, before there is a second thread.
    let offset = (block as usize).wrapping_sub(HEAP_START.load(Ordering::Relaxed));
    offset < HEAP_BYTES.load(Ordering::Relaxed)
}

/// Looks up what will be called.
pub fn look_up() {
    if is_foreign() {
        foreign::look_up();
    }
}

/// Sends malloc to managed memory, unless the program has an allocator of its own.
pub fn open_heap(process: &Process) {
    if !is_foreign() {
        let (start, end) = (process.arena.start(), process.arena.address() + process.arena.bytes());
        HEAP_START.store(start, Ordering::Relaxed);
        HEAP_BYTES.store(end - start, Ordering::Relaxed);
        process::open_heap();
    }
}

/// The next definitions, the program's allocator or what it leaves to the C library.
mod foreign {
    use super::*;

    symbol_functions! { AfterOurs:
        fn malloc(bytes: size_t) -> *mut c_void = c"malloc";
        fn calloc(count: size_t, each: size_t) -> *mut c_void = c"calloc";
        fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void = c"realloc";
        fn reallocarray(block: *mut c_void, count: size_t, each: size_t) -> *mut c_void = c"reallocarray";
        fn memalign(align: size_t, bytes: size_t) -> *mut c_void = c"memalign";
        fn aligned_alloc(align: size_t, bytes: size_t) -> *mut c_void = c"aligned_alloc";
        fn posix_memalign(result: *mut *mut c_void, align: size_t, bytes: size_t) -> c_int = c"posix_memalign";
        fn valloc(bytes: size_t) -> *mut c_void = c"valloc";
        fn pvalloc(bytes: size_t) -> *mut c_void = c"pvalloc";
        fn free(block: *mut c_void) = c"free";
        fn malloc_usable_size(block: *mut c_void) -> size_t = c"malloc_usable_size";
        fn strdup(text: *const c_char) -> *mut c_char = c"strdup";
        fn strndup(text: *const c_char, most: size_t) -> *mut c_char = c"strndup";
    }
}

/// Declares functions that ask the program's allocator, or glibc's.
macro_rules! elsewhere {
    ($(fn $name:ident($($argument:ident: $type:ty),*) $(-> $result:ty)?;)+) => { $(
        /// By the program's allocator, or glibc's.
        #[cold]
        pub unsafe fn $name($($argument: $type),*) $(-> $result)? {
            if is_foreign() {
                // SAFETY: the caller's promise.
                return unsafe { foreign::$name($($argument),*) };
            }
            // SAFETY: the caller's promise.
            unsafe { native::$name($($argument),*) }
        }
    )+ };
}

elsewhere! {
    fn malloc(bytes: size_t) -> *mut c_void;
    fn calloc(count: size_t, each: size_t) -> *mut c_void;
    fn realloc(block: *mut c_void, bytes: size_t) -> *mut c_void;
    fn memalign(align: size_t, bytes: size_t) -> *mut c_void;
    fn free(block: *mut c_void);
    fn malloc_usable_size(block: *mut c_void) -> size_t;
}

pub use foreign::{aligned_alloc, posix_memalign, pvalloc, reallocarray, strdup, strndup, valloc};
