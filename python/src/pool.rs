//! An engine and its heap, from which all memory of arrays comes.
use crate::pins::Pins;
use crate::recent::Recent;
use std::alloc::Layout;
use std::ptr::NonNull;
use std::sync::Arc;
use userswap::internals::PAGE_BYTES;
use userswap::{Advice, Engine, Error, Heap};

/// What C's malloc promises on x86-64, and numpy's.
const ALIGN: usize = 16;

/// Blocks from this size begin at a page, so that as many rows of an array as can be are whole pages. Smaller ones begin at
/// 16 bytes and share pages: a page for each would be mostly empty.
const PAGE_ALIGNED_MIN_BYTES: usize = 16 << 10;

/// An engine and its heap. It lives as long as a block: each owner of one has a pool with it, whoever has closed it.
pub struct Pool {
    /// The engine.
    pub engine: Engine,
    /// Where the blocks come from.
    pub heap: Heap,
    /// Blocks that numpy's allocator keeps.
    pub recent: Recent,
    /// What is pinned of blocks without pages of their own.
    pub pins: Pins,
}

impl Pool {
    /// A pool without blocks.
    pub fn new(engine: Engine, budget_bytes: u64) -> Arc<Self> {
        let heap = engine.heap();
        let recent = Recent::new(budget_bytes);
        Arc::new(Self { engine, heap, recent, pins: Pins::new() })
    }

    /// A block is about to be freed: a pin goes with the memory.
    pub fn unpin_block(&self, block: NonNull<u8>) {
        for piece in self.pins.forget_block(&self.heap, block) {
            let unpinned = self.engine.advise(piece.start, piece.len(), Advice::Unpin);
            unpinned.expect("the block is still there");
        }
    }

    /// Before fork: no other thread has a lock of it until [`Self::release`].
    pub fn hold(&self) {
        self.recent.hold();
        self.pins.hold();
    }

    /// After fork, on both sides.
    pub fn release(&self) {
        self.pins.release();
        self.recent.release();
    }
}

/// What is asked of the heap for an array of so many bytes.
///
/// # Errors
/// More than can be addressed.
pub fn layout(bytes: usize) -> Result<Layout, Error> {
    let align = if bytes < PAGE_ALIGNED_MIN_BYTES { ALIGN } else { PAGE_BYTES };
    // A block without bytes would have no address of its own.
    Layout::from_size_align(bytes.max(1), align).map_err(|_| Error::ArenaFull(bytes as u64))
}
