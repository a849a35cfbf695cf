//! Heaps: malloc on an engine.
use crate::engine::us_engine;
use crate::failure::{Failure, code_of, us_error, value_of};
use crate::handle;
use crate::handle::{Handle, Part, find};
use crate::region::range;
use std::alloc::Layout;
use std::ffi::{c_int, c_void};
use std::ptr::{NonNull, null_mut};
use userswap::Heap;

/// Memory of an engine in blocks of any size.
pub struct us_heap {
    _opaque: [u8; 0],
}

handle!(us_heap, Part<Heap>);

/// Alignment of a block where nothing else is asked for, as malloc's.
const ALIGN_NATURAL: usize = 16;

/// A heap without any block; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_heap_new(engine: *mut us_engine) -> *mut us_heap {
    value_of(null_mut(), || {
        let engine = find(engine)?;
        let heap = Part::of(&engine, |engine| Ok(engine.heap()))?;
        Ok(us_heap::open().insert(heap))
    })
}

/// Forgets a heap with all its blocks.
#[unsafe(no_mangle)]
pub extern "C" fn us_heap_close(heap: *mut us_heap) -> c_int {
    code_of(|| us_heap::open().remove(heap).map(drop))
}

/// A block, aligned to 16 bytes, with arbitrary content; NULL on failure. A block of 0 bytes has an address of its own.
#[unsafe(no_mangle)]
pub extern "C" fn us_malloc(heap: *mut us_heap, bytes: usize) -> *mut c_void {
    block(|| Ok(find(heap)?.allocate(layout(bytes, ALIGN_NATURAL)?)?))
}

/// A block for `count` things of `each` bytes, all zero; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_calloc(heap: *mut us_heap, count: usize, each: usize) -> *mut c_void {
    block(|| {
        let bytes = count.checked_mul(each).ok_or_else(|| {
            let line = format!(
                "{count} times {each} bytes are more than there are addresses: ask for less"
            );
            Failure::new(us_error::US_NO_MEMORY, line)
        })?;
        Ok(find(heap)?.allocate_zeroed(layout(bytes, ALIGN_NATURAL)?)?)
    })
}

/// A block at a multiple of `alignment`, a power of two; NULL on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_aligned_alloc(
    heap: *mut us_heap,
    alignment: usize,
    bytes: usize,
) -> *mut c_void {
    block(|| Ok(find(heap)?.allocate(layout(bytes, alignment)?)?))
}

/// Makes a block larger or smaller, in another place if need be; a block of NULL is a new one. NULL on failure, the
/// block is unchanged then. Aligned to 16 bytes afterwards, whatever it was before.
#[unsafe(no_mangle)]
pub extern "C" fn us_realloc(heap: *mut us_heap, old: *mut c_void, bytes: usize) -> *mut c_void {
    block(|| {
        let (heap, layout) = (find(heap)?, layout(bytes, ALIGN_NATURAL)?);
        Ok(match NonNull::new(old.cast()) {
            Some(old) => heap.reallocate(old, layout)?,
            None => heap.allocate(layout)?,
        })
    })
}

/// Takes a block back; NULL is none. Unlike free it says when that is no block: US_NOT_A_BLOCK.
#[unsafe(no_mangle)]
pub extern "C" fn us_free(heap: *mut us_heap, block: *mut c_void) -> c_int {
    code_of(|| {
        let heap = find(heap)?;
        NonNull::new(block.cast()).map_or(Ok(()), |block| Ok(heap.free(block)?))
    })
}

/// Bytes that a block has room for; 0 for NULL and on failure.
#[unsafe(no_mangle)]
pub extern "C" fn us_malloc_usable_size(heap: *mut us_heap, block: *mut c_void) -> usize {
    value_of(0, || {
        let heap = find(heap)?;
        NonNull::new(block.cast()).map_or(Ok(0), |block| Ok(heap.usable_bytes(block)?))
    })
}

/// Forgets the pages that lie within these bytes of a block as a whole: they are zero afterwards, and nothing is written.
#[unsafe(no_mangle)]
pub extern "C" fn us_heap_discard(
    heap: *mut us_heap,
    block: *mut c_void,
    first: usize,
    bytes: usize,
) -> c_int {
    code_of(|| {
        let (heap, range) = (find(heap)?, range(first, bytes)?);
        let block =
            NonNull::new(block.cast()).ok_or_else(|| Failure::invalid("the block is NULL"))?;
        Ok(heap.discard(block, range)?)
    })
}

fn block(act: impl FnOnce() -> Result<NonNull<u8>, Failure>) -> *mut c_void {
    value_of(null_mut(), || Ok(act()?.as_ptr().cast()))
}

fn layout(bytes: usize, align: usize) -> Result<Layout, Failure> {
    if !align.is_power_of_two() {
        return Err(Failure::invalid(format!("an alignment of {align}: use a power of two")));
    }
    Layout::from_size_align(bytes, align).map_err(|_| {
        let line = format!("{bytes} bytes are more than there are addresses: ask for less");
        Failure::new(us_error::US_NO_MEMORY, line)
    })
}
