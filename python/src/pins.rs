//! Pins on blocks that share their pages with others.
//!
//! The heap leaves the pages of such a block as they are when it is freed, and with them their pins: what is pinned of it is
//! noted here, to be unpinned before.
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Heap;
use userswap::internals::lock::Lock;

/// See the top of the file.
pub struct Pins {
    /// How often each piece of memory is pinned, by its first address and its end. Held across fork, and over nothing that waits.
    pieces: Lock<BTreeMap<(usize, usize), u32>>,
    /// There was one: without, freeing a block looks no further.
    is_used: AtomicBool,
}

impl Pins {
    /// None yet.
    pub const fn new() -> Self {
        Self { pieces: Lock::new(BTreeMap::new()), is_used: AtomicBool::new(false) }
    }

    /// A piece of a block was pinned.
    pub fn note(&self, heap: &Heap, piece: &Range<usize>) {
        if heap.shares_pages(piece.start) {
            // Relaxed: who frees the block has it from the thread that has pinned it.
            self.is_used.store(true, Ordering::Relaxed);
            *self.pieces.lock().entry((piece.start, piece.end)).or_default() += 1;
        }
    }

    /// A piece is about to be unpinned; false where it is not pinned, and a page of it for another block at most.
    pub fn forget(&self, heap: &Heap, piece: &Range<usize>) -> bool {
        if !heap.shares_pages(piece.start) {
            return true;
        }
        let (mut pieces, key) = (self.pieces.lock(), (piece.start, piece.end));
        let Some(pins) = pieces.get_mut(&key) else { return false };
        *pins -= 1;
        if *pins == 0 {
            pieces.remove(&key);
        }
        true
    }

    /// A block is about to be freed: what is pinned of it, once for each pin.
    pub fn forget_block(&self, heap: &Heap, block: NonNull<u8>) -> Vec<Range<usize>> {
        let first = block.addr().get();
        if !self.is_used.load(Ordering::Relaxed) || !heap.shares_pages(first) {
            return Vec::new();
        }
        let end = first + heap.usable_bytes(block).unwrap_or(0);
        let mut pieces = self.pieces.lock();
        let within = pieces.range((first, 0)..(end, 0)).map(|(key, pins)| (*key, *pins));
        let within: Vec<_> = within.collect();
        let each_pin = within.into_iter().flat_map(|(key, pins)| {
            pieces.remove(&key);
            std::iter::repeat_n(key.0..key.1, pins as usize)
        });
        each_pin.collect()
    }

    /// Before fork: no other thread has the lock until [`Self::release`].
    pub fn hold(&self) {
        self.pieces.hold();
    }

    /// After fork, on both sides.
    pub fn release(&self) {
        self.pieces.release();
    }
}
