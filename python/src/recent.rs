//! Blocks that numpy has freed a moment ago, to be given out again as they are.
//!
//! Computing makes and drops temporary arrays of the same few sizes. The heap forgets the pages of a freed block at once, and each page
//! of the next one then costs a fault: `a + 1` on 160 KB took 281 µs instead of 5. What is kept here is little enough to
//! stay in RAM, the newest goes out first, and the oldest back to the heap.
use crate::pool::layout;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use userswap::internals::lock::Lock;
use userswap::internals::pages;
use userswap::{Error, Heap};

/// Blocks from this size are kept: below, the heap keeps the pages itself.
const KEPT_MIN_BYTES: usize = 16 << 10;

/// The part of the budget that is kept at most, one in so many: little beside what a program computes on.
const BUDGET_PART: usize = 16;

/// Blocks that are looked through for one that fits.
const BLOCKS_MAX: usize = 32;

#[derive(Clone, Copy)]
struct Kept {
    address: usize,
    bytes: usize,
}

/// See the top of the file.
pub struct Recent {
    /// The oldest first. Held across fork, and over nothing that waits.
    kept: Lock<Vec<Kept>>,
    bytes_max: AtomicUsize,
    is_off: AtomicBool,
}

impl Recent {
    /// Keeps nothing yet.
    pub fn new(budget_bytes: u64) -> Self {
        let recent = Self {
            kept: Lock::new(Vec::new()),
            bytes_max: AtomicUsize::new(0),
            is_off: AtomicBool::new(false),
        };
        recent.note_budget(budget_bytes);
        recent
    }

    /// Keeps a part of another budget from now on.
    pub fn note_budget(&self, bytes: u64) {
        // Relaxed: only how much is kept depends on it.
        self.bytes_max.store(bytes as usize / BUDGET_PART, Ordering::Relaxed);
    }

    /// Keeps nothing any more: a pin goes with the memory, and stays with a block that is kept.
    pub fn turn_off(&self, heap: &Heap) {
        // Relaxed: a block that is freed by another thread at this moment was not pinned yet, or could have been kept before.
        self.is_off.store(true, Ordering::Relaxed);
        let all = std::mem::take(&mut *self.kept.lock());
        give_back(heap, all);
    }

    /// A block for so many bytes with arbitrary content: a kept one, or the heap's.
    ///
    /// # Errors
    /// As for [`Heap::allocate`].
    pub fn allocate(&self, heap: &Heap, bytes: usize) -> Result<NonNull<u8>, Error> {
        self.take(bytes).map_or_else(|| heap.allocate(layout(bytes)?), Ok)
    }

    /// As [`Self::allocate`], all zero.
    ///
    /// # Errors
    /// As for [`Heap::allocate`].
    pub fn allocate_zeroed(&self, heap: &Heap, bytes: usize) -> Result<NonNull<u8>, Error> {
        let Some(block) = self.take(bytes) else { return heap.allocate_zeroed(layout(bytes)?) };
        // Cheaper than faults on fresh pages.
        pages::clear(block.addr().get(), bytes);
        Ok(block)
    }

    /// Takes a block back, and gives the heap those for which there is no more room.
    ///
    /// # Errors
    /// As for [`Heap::free`].
    pub fn free(&self, heap: &Heap, block: NonNull<u8>) -> Result<(), Error> {
        let bytes = heap.usable_bytes(block)?;
        let most = self.bytes_max.load(Ordering::Relaxed);
        if bytes < KEPT_MIN_BYTES || bytes > most || self.is_off.load(Ordering::Relaxed) {
            return heap.free(block);
        }
        let mut kept = self.kept.lock();
        kept.push(Kept { address: block.as_ptr().expose_provenance(), bytes });
        let held: usize = kept.iter().map(|block| block.bytes).sum();
        let mut excess = held.saturating_sub(most);
        let oldest = kept.iter().take_while(|block| {
            let goes = excess > 0;
            excess = excess.saturating_sub(block.bytes);
            goes
        });
        let goes = oldest.count().max(kept.len().saturating_sub(BLOCKS_MAX));
        let goes: Vec<_> = kept.drain(..goes).collect();
        drop(kept);
        give_back(heap, goes);
        Ok(())
    }

    fn take(&self, bytes: usize) -> Option<NonNull<u8>> {
        if bytes < KEPT_MIN_BYTES {
            return None;
        }
        let mut kept = self.kept.lock();
        // As much may be wasted as the heap's own sizes waste.
        let fits = |block: &Kept| block.bytes >= bytes && block.bytes - bytes <= block.bytes / 4;
        let found = kept.iter().rposition(fits)?;
        let Kept { address, .. } = kept.remove(found);
        drop(kept);
        NonNull::new(std::ptr::with_exposed_provenance_mut(address))
    }

    /// Before fork: no other thread has the lock until [`Self::release`].
    pub fn hold(&self) {
        self.kept.hold();
    }

    /// After fork, on both sides.
    pub fn release(&self) {
        self.kept.release();
    }
}

fn give_back(heap: &Heap, blocks: Vec<Kept>) {
    for Kept { address, .. } in blocks {
        let block = NonNull::new(std::ptr::with_exposed_provenance_mut(address));
        heap.free(block.expect("no block begins at zero"))
            .expect("a kept block is in use, for the heap");
    }
}
