//! Counts what mimalloc has committed in the arena: a bit for every slice.
//!
//! Only counting: no call to the kernel and no split mapping comes of a commitment.
use super::engagement;
use crate::abi::raw::Span;
use crate::state::process::Process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::PAGE_BYTES;
use userswap::internals::mapping::ZeroedSlice;

/// mimalloc's unit of commitment.
const SLICE_BYTES: usize = 64 << 10;
const SLICE_PAGES: u64 = (SLICE_BYTES / PAGE_BYTES) as u64;

static COMMITTED: OnceLock<ZeroedSlice<AtomicU64>> = OnceLock::new();

/// Makes the table; called by the constructor.
///
/// # Errors
/// No memory for it.
pub fn prepare(process: &Process) -> std::io::Result<()> {
    let slices = process.arena.bytes() / SLICE_BYTES + 2;
    let committed = ZeroedSlice::new(slices / 64 + 1)?;
    assert!(COMMITTED.set(committed).is_ok(), "the constructor runs once");
    Ok(())
}

/// Counts bytes as in use; mimalloc also says so by mprotect, when it extends a page of its own.
pub fn commit(process: &Process, span: Span) {
    let pages = mark(process, span, Mark::Committed);
    process.heap_pages.fetch_add(pages, Ordering::Relaxed);
    engagement::engage_if_needed(process);
}

/// Counts bytes as free.
pub fn release(process: &Process, span: Span) {
    process.heap_pages.fetch_sub(mark(process, span, Mark::Free), Ordering::Relaxed);
    // Some of them may be among these.
    process.untouched_pages.store(0, Ordering::Relaxed);
    engagement::settle(process);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Mark {
    Committed,
    Free,
}

/// Marks the slices that some bytes lie in; returns how many pages changed sides.
fn mark(process: &Process, span: Span, mark: Mark) -> u64 {
    let base = process.arena.address() / SLICE_BYTES;
    let first = span.address / SLICE_BYTES - base;
    let end = (span.address + span.bytes).div_ceil(SLICE_BYTES) - base;
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
