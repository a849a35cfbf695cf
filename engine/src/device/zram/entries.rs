//! What each slot of a compressed device holds.
use crate::sys::lock::{Guard, Lock};
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::cells::Cell;

/// Locks that the slots share, neighbours none: two threads hardly ever meet at one.
const LOCKS: usize = 64;

const ABSENT: u32 = 0;
const RESERVED: u32 = 1;
const SAME: u32 = 2;
/// What is added to the length of a compressed page.
const CELL: u32 = 3;
/// Cells begin at multiples of so many bytes.
const START_UNIT: usize = 16;

/// What a slot holds.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Entry {
    /// Nothing.
    Absent,
    /// Nothing yet: it is given out, and its memory promised.
    Reserved,
    /// A page of one value.
    Same(u64),
    /// A page in a cell.
    Cell(Place),
}

/// A page in a cell.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of the cell.
    pub cell: u32,
    /// The cell's first byte, counted from that of the first slab.
    pub start: usize,
    /// Length of the page there.
    pub bytes: u32,
}

/// The entries, in two tables that begin as zeros, each guarded by one of the locks.
pub struct Entries {
    tags: ZeroedSlice<AtomicU32>,
    values: ZeroedSlice<AtomicU64>,
    locks: [Lock<()>; LOCKS],
}

/// An entry that no other thread looks at meanwhile.
pub struct Held<'a> {
    tag: &'a AtomicU32,
    value: &'a AtomicU64,
    _guard: Guard<'a, ()>,
}

impl Entries {
    /// All slots hold nothing.
    ///
    /// # Errors
    /// No address space.
    pub fn new(slots: u32) -> io::Result<Self> {
        let slots = slots as usize;
        let locks = [const { Lock::new(()) }; LOCKS];
        Ok(Self { tags: ZeroedSlice::new(slots)?, values: ZeroedSlice::new(slots)?, locks })
    }

    /// The cell that a slot's page was in a moment ago, if it was in one.
    pub fn cell_hint(&self, number: u32) -> Option<Cell> {
        let has_cell = self.tags[number as usize].load(Ordering::Relaxed) >= CELL;
        let value = || self.values[number as usize].load(Ordering::Relaxed);
        has_cell.then(|| Cell::from_number(value() as u32))
    }

    /// The entry of the slot with this number on its device.
    pub fn hold(&self, number: u32) -> Held<'_> {
        let number = number as usize;
        let _guard = self.locks[number % LOCKS].lock();
        Held { tag: &self.tags[number], value: &self.values[number], _guard }
    }
}

// Relaxed below: the lock of the entry orders all of it.
impl Held<'_> {
    /// What the slot holds.
    pub fn entry(&self) -> Entry {
        let value = self.value.load(Ordering::Relaxed);
        match self.tag.load(Ordering::Relaxed) {
            ABSENT => Entry::Absent,
            RESERVED => Entry::Reserved,
            SAME => Entry::Same(value),
            tag => Entry::Cell(Place {
                cell: value as u32,
                start: (value >> u32::BITS) as usize * START_UNIT,
                bytes: tag - CELL,
            }),
        }
    }

    /// Puts another entry there, and returns the one before.
    pub fn replace(&self, entry: Entry) -> Entry {
        let before = self.entry();
        let (tag, value) = match entry {
            Entry::Absent => (ABSENT, 0),
            Entry::Reserved => (RESERVED, 0),
            Entry::Same(value) => (SAME, value),
            Entry::Cell(Place { cell, start, bytes }) => {
                let start = (start / START_UNIT) as u64;
                (CELL + bytes, start << u32::BITS | u64::from(cell))
            }
        };
        self.tag.store(tag, Ordering::Relaxed);
        self.value.store(value, Ordering::Relaxed);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_what_was_put_there_to_the_last_bit() {
        let entries = Entries::new(3).unwrap();
        let last = Place { cell: u32::MAX, start: (1 << 36) - 16, bytes: 4096 };
        let first = Place { cell: 0, start: 0, bytes: 1 };
        let all = [
            Entry::Reserved,
            Entry::Same(u64::MAX),
            Entry::Cell(last),
            Entry::Cell(first),
            Entry::Absent,
        ];
        let mut before = Entry::Absent;
        for entry in all {
            assert_eq!(entries.hold(2).replace(entry), before);
            assert_eq!((entries.hold(2).entry(), entries.hold(1).entry()), (entry, Entry::Absent));
            before = entry;
        }
    }
}
