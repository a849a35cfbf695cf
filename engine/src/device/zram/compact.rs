//! Pages move together: where pages have gone here and there, those of the emptiest slabs go to others of their class, so
//! that slabs become empty and can be given back.
//!
//! Which cell holds which slot is not kept: a sweep over all entries finds those of the slabs that leave. Each page is moved
//! with its entry held, as a read or write of its slot would be, so that neither notices.
use super::Zram;
use super::entries::Entry;
use crate::sys::lock::Lock;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::cells::Cell;

/// Slabs that leave in one sweep: 8 MiB, which take a few milliseconds.
const LEAVING_MAX: u32 = 128;
/// Of the slabs in use, this part must be to be had, and no less than a few: a sweep costs as much for one as for all.
const WORTH_PART: u32 = 32;
const WORTH_MIN: u32 = 4;

/// The slabs that leave.
pub(super) struct Leaving {
    /// Held by the thread that moves their pages; the outermost lock of the device.
    sweeping: Lock<()>,
    /// A bit for each slab. Relaxed, a hint: looked at again with a page's entry held.
    slabs: ZeroedSlice<AtomicU64>,
    /// Slots that were ever given out are below it. Relaxed, a hint: what is missed stays where it is.
    pub(super) slots_ever: AtomicU32,
}

impl Leaving {
    /// None of so many slabs.
    ///
    /// # Errors
    /// No address space.
    pub(super) fn new(slabs: usize) -> io::Result<Self> {
        let words = ZeroedSlice::new(slabs.div_ceil(u64::BITS as usize))?;
        Ok(Self { sweeping: Lock::new(()), slabs: words, slots_ever: AtomicU32::new(0) })
    }

    fn name(&self, slab: u32) {
        let word = &self.slabs[(slab / u64::BITS) as usize];
        word.fetch_or(1 << (slab % u64::BITS), Ordering::Relaxed);
    }

    /// Also of a hint that was torn, which may be any number.
    fn has(&self, slab: u32) -> bool {
        let word = self.slabs.get((slab / u64::BITS) as usize);
        word.is_some_and(|word| word.load(Ordering::Relaxed) >> (slab % u64::BITS) & 1 == 1)
    }

    fn forget_all(&self) {
        self.slabs.iter().for_each(|word| word.store(0, Ordering::Relaxed));
    }
}

impl Zram {
    /// Moves pages together if that frees enough slabs; false if not. Takes milliseconds: never in a fault.
    pub fn compact(&self) -> bool {
        let Some(_alone) = self.leaving.sweeping.try_lock() else { return false };
        let mut cells = self.cells.lock();
        if cells.scattered() < (cells.counts().busy / WORTH_PART).max(WORTH_MIN) {
            return false;
        }
        cells.start_leaving(LEAVING_MAX, |slab| self.leaving.name(slab));
        drop(cells);
        for number in 0..self.leaving.slots_ever.load(Ordering::Relaxed) {
            let cell = self.entries.cell_hint(number);
            if cell.is_some_and(|cell| self.leaving.has(cell.slab())) {
                self.move_page(number);
            }
        }
        self.cells.lock().end_leaving();
        self.leaving.forget_all();
        true
    }

    fn move_page(&self, number: u32) {
        let held = self.entries.hold(number);
        let Entry::Cell(from) = held.entry() else { return };
        if !self.leaving.has(Cell::from_number(from.cell).slab()) {
            return;
        }
        // Nobody writes to the old cell while it is in the entry.
        let Some(to) = self.store(self.view(from)) else { return };
        held.replace(Entry::Cell(to));
        self.put(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_torn_hint_names_no_slab_that_leaves() {
        let leaving = Leaving::new(100).unwrap();
        leaving.name(99);
        assert!(leaving.has(99) && !leaving.has(98));
        assert!(!leaving.has(Cell::from_number(u32::MAX).slab()));
    }
}
