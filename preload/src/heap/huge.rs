//! Blocks so large, or so strangely aligned, that they are mappings of their own.
//!
//! glibc does the same from 32 MiB at the latest. Growing such a block moves pages instead of copying
//! bytes, which under the engine would bring everything in and out once more.
use crate::abi::raw::{RemapRequest, Span};
use crate::memory::own_stack::on_own_stack;
use crate::memory::{mappings, origins, ranges, remap};
use crate::state::areas::Area;
use crate::state::process::{self, Process};
use libc::c_void;
use std::collections::BTreeMap;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// Blocks from this size: the limit up to which glibc learns to keep blocks in its heap.
pub const HUGE_BYTES_MIN: usize = 32 << 20;
/// mimalloc serves alignments up to this from its areas.
pub const ALIGN_BYTES_MAX: usize = 64 << 10;

/// Address to pages of every huge block.
pub static BLOCKS: Lock<BTreeMap<usize, u32>> = Lock::new(BTreeMap::new());

/// A zeroed block; null when there is no room.
pub fn allocate(bytes: usize, align: usize) -> *mut c_void {
    let range = process::current().and_then(|process| {
        let count = u32::try_from(bytes.div_ceil(PAGE_BYTES).max(1)).ok()?;
        // Room to grow in place is left by aligning to huge pages.
        let align = u32::try_from(align.div_ceil(PAGE_BYTES)).ok()?;
        let align = if count >= ranges::HUGE_PAGES { align.max(ranges::HUGE_PAGES) } else { align };
        let range = on_own_stack(|| mappings::allocate_open(process, count, align))?;
        Some((process, range))
    });
    let Some((process, range)) = range else { return std::ptr::null_mut() };
    let address = process.arena.address_of(range.first);
    let _blocked = Blocked::new();
    BLOCKS.lock().insert(address, range.count);
    address as *mut c_void
}

/// Whether a managed address can be a huge block's: page aligned, and not mimalloc's.
pub fn is_candidate(address: usize) -> bool {
    if !address.is_multiple_of(PAGE_BYTES) {
        return false;
    }
    // SAFETY: only looks at mimalloc's map.
    let is_small = unsafe { libmimalloc_sys::mi_is_in_heap_region(address as *const c_void) };
    !is_small
}

/// Length of the block at an address; None if there is none.
pub fn bytes_of(address: usize) -> Option<usize> {
    let _blocked = Blocked::new();
    BLOCKS.lock().get(&address).map(|count| *count as usize * PAGE_BYTES)
}

/// Gives a block back; false if there is none at the address.
pub fn free(address: usize) -> bool {
    let blocked = Blocked::new();
    let block = BLOCKS.lock().remove(&address);
    drop(blocked);
    let (Some(count), Some(process)) = (block, process::current()) else { return false };
    let _blocked = Blocked::new();
    on_own_stack(|| ranges::unmap(process, range_of(process, address, count))).is_ok()
}

/// Changes a block's length, moving it if need be; null when there is no room, the block is kept then.
pub fn resize(address: usize, bytes: usize) -> *mut c_void {
    let Some(old_bytes) = bytes_of(address) else { return std::ptr::null_mut() };
    let new_bytes = bytes.next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
    if new_bytes == old_bytes {
        return address as *mut c_void;
    }
    let request = RemapRequest {
        address,
        bytes: old_bytes,
        new_bytes,
        flags: libc::MREMAP_MAYMOVE,
        new_address: 0,
    };
    let origin = origins::of_page(address);
    // Out of the table while it moves: the old address may be given out again before it is done.
    let blocked = Blocked::new();
    BLOCKS.lock().remove(&address);
    drop(blocked);
    let moved = on_own_stack(|| remap::remap(request));
    let block = match moved {
        Ok(address) => Span { address, bytes: new_bytes },
        Err(_) => Span { address, bytes: old_bytes },
    };
    origins::moved(block, origin);
    let _blocked = Blocked::new();
    BLOCKS.lock().insert(block.address, (block.bytes / PAGE_BYTES) as u32);
    moved.map_or(std::ptr::null_mut(), |address| address as *mut c_void)
}

fn range_of(process: &Process, address: usize, count: u32) -> PageRange {
    let range = PageRange { first: process.arena.page_of(address), count };
    debug_assert!(
        process.areas_within(range).iter().all(|(_, area)| matches!(area, Area::Memory(_))),
        "a huge block is plain memory"
    );
    range
}
