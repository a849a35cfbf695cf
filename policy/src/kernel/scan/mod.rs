//! The kernel's own search for a free slot, as from 4.11 to 4.19: one variant for rotational devices,
//! one for solid-state devices.
//!
//! They are the baseline that the slot caches of 2016 and 2017 were measured against, and are measured here
//! beside [`Slots`](crate::slots::Slots). Slots are asked for one at a time, under the device's lock. The kernel scans in parts with the device unlocked and may be
//! overtaken; here a search is one step. Left out are discard, and the reuse of slots of pages that are
//! in RAM once swap is half full, which needs to know pages.
//!
//! One defect is put right. Where the kernel's fallback scan begins, after `cluster_next`, it leaves out
//! that very slot, also on its second leg: a solid-state device whose only free slot that is finds none,
//! and stays listed. Here it is looked at last, so that the order is otherwise the kernel's.

mod rotational;
mod solid_state;

pub use rotational::Rotational;
pub use solid_state::SolidState;

use crate::bits::{WORD, first_one, longest_run};
use crate::slots::{CLUSTER, ClusterCursor, SLOTS_MAX};
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// A search for free slots, on a device of one kind.
pub trait Scan {
    /// Takes a free slot into use, for the CPU that owns the cursor; `None` if the device is full.
    fn allocate(&mut self, cursor: &mut ClusterCursor) -> Option<u32>;

    /// Gives a slot back.
    ///
    /// # Panics
    /// When it is not in use.
    fn free(&mut self, slot: u32);
}

/// Which slots of a device are free, between which bounds, and where the last one was found.
#[derive(Debug)]
struct Map {
    /// Bitmaps: a slot is used if it is taken and not bad.
    taken: Vec<u64>,
    bad: Vec<u64>,
    /// No free slot is below, or above. They move by one slot at a time, so that they may be at used
    /// ones. In a full device they are the number of slots and 0.
    lowest: u32,
    highest: u32,
    /// The slot after the one allocated last.
    next: u32,
    max: u32,
    pages: u32,
    used: u32,
}

impl Map {
    /// A device of `max` slots, counting the header.
    fn new(max: u32, start: u32) -> Self {
        assert!(max <= SLOTS_MAX, "a device of {max} slots");
        let words = max.div_ceil(WORD) as usize;
        let mut map = Self {
            taken: vec![0; words],
            bad: vec![0; words],
            lowest: 1,
            highest: max.saturating_sub(1),
            next: start,
            max,
            pages: max,
            used: 0,
        };
        if max > 0 {
            map.exclude(0);
        }
        map
    }

    /// Makes a slot of a device that is not in use yet unusable; false if it is already.
    fn exclude(&mut self, slot: u32) -> bool {
        assert!(slot < self.max, "bad slot {slot} of {}", self.max);
        let (word, mask) = bit_of(slot);
        let is_new = self.bad[word] & mask == 0;
        self.taken[word] |= mask;
        self.bad[word] |= mask;
        self.pages -= u32::from(is_new);
        is_new
    }

    fn is_full(&self) -> bool {
        self.used == self.pages
    }

    fn is_used(&self, slot: u32) -> bool {
        let (word, mask) = bit_of(slot);
        slot < self.max && self.taken[word] & !self.bad[word] & mask != 0
    }

    fn is_free(&self, slot: u32) -> bool {
        let (word, mask) = bit_of(slot);
        self.taken[word] & mask == 0
    }

    /// Takes a free slot into use.
    fn take(&mut self, slot: u32) {
        assert!(self.is_free(slot), "slot {slot} was found to be free");
        let (word, mask) = bit_of(slot);
        self.taken[word] |= mask;
        if slot == self.lowest {
            self.lowest += 1;
        }
        if slot == self.highest {
            self.highest -= 1;
        }
        self.used += 1;
        if self.is_full() {
            (self.lowest, self.highest) = (self.max, 0);
        }
        self.next = slot + 1;
    }

    fn give_back(&mut self, slot: u32) {
        assert!(self.is_used(slot), "slot {slot} is not in use");
        let (word, mask) = bit_of(slot);
        self.taken[word] &= !mask;
        self.lowest = self.lowest.min(slot);
        self.highest = self.highest.max(slot);
        self.used -= 1;
    }

    fn first_free(&self, range: Range<u32>) -> Option<u32> {
        first_one(|word| !self.taken[word], range)
    }

    /// The first run of a cluster's length of free slots, wherever it starts.
    fn first_free_run(&self) -> Option<u32> {
        let run = longest_run(|word| !self.taken[word], self.lowest..self.highest + 1, CLUSTER)?;
        (run.end - run.start == CLUSTER).then_some(run.start)
    }

    /// The first free slot after `slot`, continuing at the lower bound; `slot` itself comes last.
    fn first_free_after(&self, slot: u32) -> Option<u32> {
        let end = self.highest + 1;
        self.first_free(slot + 1..end).or_else(|| self.first_free(self.lowest..end.min(slot + 1)))
    }
}

/// Word and mask of a slot's bit.
fn bit_of(slot: u32) -> (usize, u64) {
    ((slot / WORD) as usize, 1 << (slot % WORD))
}

#[cfg(test)]
mod tests;
