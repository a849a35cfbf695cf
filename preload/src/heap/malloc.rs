//! The malloc family: mimalloc in managed memory for the program, glibc's own for the C library itself, and
//! nothing of ours where the program brings an allocator (`elsewhere`).
//!
//! A block's address tells where it came from, so that freeing or growing it is served by the same side.
//! Which code asks for a new one is told by the address that the call returns to, which only a naked
//! function can see: each entry point passes it on as one more argument. The entry points are as safe as
//! the functions that they stand in for.
use super::{elsewhere, exact, huge, mimalloc};
use crate::abi::allocator::is_foreign;
use crate::abi::callers::{self, entry};
use crate::abi::native::ALIGN_NATURAL;
use crate::abi::raw::{self, Errno, set_errno};
use crate::state::process::{routes_large_to_glibc, routes_to_glibc};
use libc::{EINVAL, ENOMEM, c_char, c_int, c_void};
use libmimalloc_sys as mi;
use userswap::internals::PAGE_BYTES;

entry!(malloc(usize) -> *mut c_void, "rsi", "x1", serve_malloc);
entry!(calloc(usize, usize) -> *mut c_void, "rdx", "x2", serve_calloc);
entry!(realloc(*mut c_void, usize) -> *mut c_void, "rdx", "x2", serve_realloc);
entry!(reallocarray(*mut c_void, usize, usize) -> *mut c_void, "rcx", "x3", serve_reallocarray);
entry!(memalign(usize, usize) -> *mut c_void, "rdx", "x2", serve_memalign);
entry!(aligned_alloc(usize, usize) -> *mut c_void, "rdx", "x2", serve_aligned_alloc);
entry!(posix_memalign(*mut *mut c_void, usize, usize) -> c_int, "rcx", "x3", serve_posix_memalign);
entry!(valloc(usize) -> *mut c_void, "rsi", "x1", serve_valloc);
entry!(pvalloc(usize) -> *mut c_void, "rsi", "x1", serve_pvalloc);

/// From here on glibc maps a block by itself.
const LARGE_BYTES: usize = 128 << 10;

/// Whether a new block for this caller is glibc's, or the program's own allocator's.
#[inline]
fn is_native(caller: usize, bytes: usize) -> bool {
    callers::is_system(caller)
        || routes_to_glibc() && (bytes < LARGE_BYTES || routes_large_to_glibc())
}

extern "C" fn serve_malloc(bytes: usize, caller: usize) -> *mut c_void {
    if is_native(caller, bytes) {
        // SAFETY: any size may be asked for.
        return unsafe { elsewhere::malloc(bytes) };
    }
    managed_malloc(bytes)
}

extern "C" fn serve_calloc(count: usize, each: usize, caller: usize) -> *mut c_void {
    if is_native(caller, count.saturating_mul(each)) {
        // SAFETY: any size may be asked for; glibc checks the product.
        return unsafe { elsewhere::calloc(count, each) };
    }
    let Some(bytes) = count.checked_mul(each) else { return refuse(ENOMEM) };
    if let Some((block, is_zero)) = exact::allocate(bytes) {
        if !is_zero {
            // SAFETY: the block has that many bytes.
            unsafe { block.write_bytes(0, bytes) };
        }
        return block;
    }
    // SAFETY: any size may be asked for.
    managed(bytes, ALIGN_NATURAL, || unsafe { mi::mi_zalloc(bytes) })
}

extern "C" fn serve_realloc(block: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    if block.is_null() {
        return serve_malloc(bytes, caller);
    }
    if !elsewhere::owns(block) {
        return realloc_elsewhere(block, bytes, caller);
    }
    if bytes == 0 {
        // As glibc does it.
        // SAFETY: the caller gives the block up.
        unsafe { give_back(block) };
        return std::ptr::null_mut();
    }
    if let Some(old_bytes) = exact::bytes_of(block as usize) {
        let fits = bytes <= old_bytes && bytes > old_bytes / 2;
        return if fits { block } else { copy_to_new(block, old_bytes, bytes) };
    }
    if huge::is_candidate(block as usize) {
        return realloc_huge(block, bytes);
    }
    if bytes < huge::HUGE_BYTES_MIN {
        // SAFETY: the block is mimalloc's.
        let new = unsafe { mi::mi_realloc(block, bytes) };
        if !new.is_null() {
            return new;
        }
    }
    // SAFETY: the block is mimalloc's.
    let old_bytes = unsafe { mi::mi_usable_size(block) };
    copy_to_new(block, old_bytes, bytes)
}

/// A block that the C library made for the program, or that glibc served while an engine started, moves in when it grows large.
fn realloc_elsewhere(block: *mut c_void, bytes: usize, caller: usize) -> *mut c_void {
    if bytes < LARGE_BYTES || is_native(caller, bytes) {
        // SAFETY: the block is not of ours.
        return unsafe { elsewhere::realloc(block, bytes) };
    }
    // SAFETY: the block is one of theirs.
    let old_bytes = unsafe { elsewhere::malloc_usable_size(block) };
    copy_to_new(block, old_bytes, bytes)
}

fn realloc_huge(block: *mut c_void, bytes: usize) -> *mut c_void {
    let Some(old_bytes) = huge::bytes_of(block as usize) else { return refuse(EINVAL) };
    if bytes > isize::MAX as usize {
        return refuse(ENOMEM);
    }
    if bytes < huge::HUGE_BYTES_MIN / 2 {
        return copy_to_new(block, old_bytes, bytes);
    }
    let new = huge::resize(block as usize, bytes);
    if new.is_null() { refuse(ENOMEM) } else { new }
}

/// Whatever code asks for it, the block stays managed.
fn copy_to_new(block: *mut c_void, old_bytes: usize, bytes: usize) -> *mut c_void {
    let new = managed_malloc(bytes);
    if !new.is_null() {
        // SAFETY: both blocks have that many bytes and are distinct.
        unsafe { new.copy_from_nonoverlapping(block, old_bytes.min(bytes)) };
        // SAFETY: the old block is given up.
        unsafe { give_back(block) };
    }
    new
}

extern "C" fn serve_reallocarray(
    block: *mut c_void,
    count: usize,
    each: usize,
    caller: usize,
) -> *mut c_void {
    if is_foreign() {
        // SAFETY: null, or a block of the program's allocator.
        return unsafe { elsewhere::reallocarray(block, count, each) };
    }
    match count.checked_mul(each) {
        Some(bytes) => serve_realloc(block, bytes, caller),
        None => refuse(ENOMEM),
    }
}

extern "C" fn serve_memalign(align: usize, bytes: usize, caller: usize) -> *mut c_void {
    if is_native(caller, bytes) {
        // SAFETY: glibc checks the alignment.
        return unsafe { elsewhere::memalign(align, bytes) };
    }
    let Some(align) = align.max(ALIGN_NATURAL).checked_next_power_of_two() else {
        return refuse(EINVAL);
    };
    // SAFETY: the alignment is a power of two.
    managed(bytes, align, || unsafe { mi::mi_malloc_aligned(bytes, align) })
}

extern "C" fn serve_aligned_alloc(align: usize, bytes: usize, caller: usize) -> *mut c_void {
    if is_foreign() {
        // SAFETY: the program's allocator checks the alignment.
        return unsafe { elsewhere::aligned_alloc(align, bytes) };
    }
    serve_memalign(align, bytes, caller)
}

extern "C" fn serve_posix_memalign(
    result: *mut *mut c_void,
    align: usize,
    bytes: usize,
    caller: usize,
) -> c_int {
    if is_foreign() {
        // SAFETY: the caller passes room for a pointer.
        return unsafe { elsewhere::posix_memalign(result, align, bytes) };
    }
    if !align.is_power_of_two() || !align.is_multiple_of(size_of::<usize>()) {
        return EINVAL;
    }
    let errno = raw::errno();
    let block = serve_memalign(align, bytes, caller);
    set_errno(errno);
    if block.is_null() {
        return ENOMEM;
    }
    // SAFETY: the caller passes room for a pointer.
    unsafe { result.write(block) };
    0
}

extern "C" fn serve_valloc(bytes: usize, caller: usize) -> *mut c_void {
    if is_foreign() {
        // SAFETY: any size may be asked for.
        return unsafe { elsewhere::valloc(bytes) };
    }
    serve_memalign(PAGE_BYTES, bytes, caller)
}

extern "C" fn serve_pvalloc(bytes: usize, caller: usize) -> *mut c_void {
    if is_foreign() {
        // SAFETY: any size may be asked for.
        return unsafe { elsewhere::pvalloc(bytes) };
    }
    match bytes.checked_next_multiple_of(PAGE_BYTES) {
        Some(bytes) => serve_memalign(PAGE_BYTES, bytes, caller),
        None => refuse(ENOMEM),
    }
}

/// Any size, in managed memory.
#[inline]
fn managed_malloc(bytes: usize) -> *mut c_void {
    if let Some((block, _)) = exact::allocate(bytes) {
        return block;
    }
    // SAFETY: any size may be asked for.
    managed(bytes, ALIGN_NATURAL, || unsafe { mi::mi_malloc(bytes) })
}

/// A block of mimalloc's, which `allocate` asks for, or one that is a mapping of its own.
#[inline]
fn managed(bytes: usize, align: usize, allocate: impl Fn() -> *mut c_void) -> *mut c_void {
    if bytes < huge::HUGE_BYTES_MIN && align < huge::ALIGN_BYTES_MAX {
        let block = allocate();
        if !block.is_null() {
            return block;
        }
    }
    slowly(bytes, align, allocate)
}

/// What mimalloc has no room for: more room, or a mapping of its own.
#[cold]
fn slowly(bytes: usize, align: usize, allocate: impl Fn() -> *mut c_void) -> *mut c_void {
    let is_huge = bytes >= huge::HUGE_BYTES_MIN || align >= huge::ALIGN_BYTES_MAX;
    let block = if bytes > isize::MAX as usize {
        std::ptr::null_mut()
    } else if is_huge {
        huge::allocate(bytes, align)
    } else {
        mimalloc::allocate_growing(allocate)
    };
    if block.is_null() { refuse(ENOMEM) } else { block }
}

#[cold]
fn refuse(error: Errno) -> *mut c_void {
    set_errno(error);
    std::ptr::null_mut()
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn free(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { give_back(block) };
}

/// free: called here by a name that the linker does not wrap (build.rs).
#[inline]
unsafe fn give_back(block: *mut c_void) {
    if !elsewhere::owns(block) {
        // SAFETY: null, or a block that is not of ours.
        return unsafe { elsewhere::free(block) };
    }
    if exact::free(block as usize) {
        return;
    }
    if huge::is_candidate(block as usize) {
        let errno = raw::errno();
        if !huge::free(block as usize) {
            not_a_block();
        }
        set_errno(errno);
        return;
    }
    // SAFETY: the block is mimalloc's.
    unsafe { mi::mi_free(block) };
}

/// Ends the process, as glibc does.
#[cold]
pub(super) fn not_a_block() -> ! {
    raw::say("free(): not the address of a block");
    // SAFETY: has no conditions.
    unsafe { libc::abort() }
}

/// cfree, which old programs still call.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn cfree(block: *mut c_void) {
    // SAFETY: the caller's promise.
    unsafe { give_back(block) };
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn malloc_usable_size(block: *mut c_void) -> usize {
    if block.is_null() {
        return 0;
    }
    if !elsewhere::owns(block) {
        // SAFETY: the block is one of theirs.
        return unsafe { elsewhere::malloc_usable_size(block) };
    }
    if let Some(bytes) = exact::bytes_of(block as usize) {
        return bytes;
    }
    if huge::is_candidate(block as usize) {
        return huge::bytes_of(block as usize).unwrap_or(0);
    }
    // SAFETY: the block is mimalloc's.
    unsafe { mi::mi_usable_size(block) }
}

entry!(
    /// strdup: a program's strings are the program's, although the C library makes them.
    strdup(*const c_char) -> *mut c_char, "rsi", "x1", serve_strdup
);
entry!(
    /// strndup, likewise.
    strndup(*const c_char, usize) -> *mut c_char, "rdx", "x2", serve_strndup
);

extern "C" fn serve_strdup(text: *const c_char, caller: usize) -> *mut c_char {
    if is_foreign() {
        // SAFETY: the caller passes a C string.
        return unsafe { elsewhere::strdup(text) };
    }
    // SAFETY: the caller passes a C string.
    let bytes = unsafe { libc::strlen(text) };
    copy_text(text, bytes, caller)
}

extern "C" fn serve_strndup(text: *const c_char, most: usize, caller: usize) -> *mut c_char {
    if is_foreign() {
        // SAFETY: the caller passes a C string, or at least `most` bytes.
        return unsafe { elsewhere::strndup(text, most) };
    }
    // SAFETY: the caller passes a C string, or at least `most` bytes.
    let bytes = unsafe { libc::strnlen(text, most) };
    copy_text(text, bytes, caller)
}

fn copy_text(text: *const c_char, bytes: usize, caller: usize) -> *mut c_char {
    let copy = serve_malloc(bytes + 1, caller).cast::<c_char>();
    if !copy.is_null() {
        // SAFETY: the copy has one byte more than the text.
        unsafe { copy.copy_from_nonoverlapping(text, bytes) };
        // SAFETY: as above.
        let end = unsafe { copy.add(bytes) };
        // SAFETY: as above.
        unsafe { end.write(0) };
    }
    copy
}
