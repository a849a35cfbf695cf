//! Where each page lies, in one word: its owner changes it, and may be read beside.
use crate::device::zram::Form;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::cells::COMPRESSED_BYTES_MAX;
use userswap_policy::pack::UNIT;

const ABSENT: u64 = 0;
const SAME_BIT: u64 = 1;
const BYTES_SHIFT: u32 = 1;
const START_SHIFT: u32 = 13;
const SLOT_SHIFT: u32 = 21;
const BYTES_MASK: u64 = (1 << (START_SHIFT - BYTES_SHIFT)) - 1;
const START_MASK: u64 = (1 << (SLOT_SHIFT - START_SHIFT)) - 1;

const _: () = assert!(COMPRESSED_BYTES_MAX as u64 <= BYTES_MASK, "a length fits");

/// A page, as it is kept.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kept {
    /// The slot below that it is on.
    pub slot: u32,
    /// Its first byte there.
    pub start: usize,
    /// What it is kept as.
    pub form: Form,
}

impl Kept {
    /// Its bytes on the slot.
    pub fn bytes(self) -> Range<usize> {
        self.start..self.start + self.form.bytes()
    }
}

/// All entries.
pub struct Entries(ZeroedSlice<AtomicU64>);

impl Entries {
    /// All slots hold nothing.
    ///
    /// # Errors
    /// No address space.
    pub fn new(slots: u32) -> io::Result<Self> {
        ZeroedSlice::new(slots as usize).map(Self)
    }

    /// What a slot holds.
    pub fn get(&self, number: u32) -> Option<Kept> {
        // Relaxed: the page word that names the slot was published after the entry, and is read before. Who has not
        // claimed the page yet looks at it as at a hint.
        of_word(self.0[number as usize].load(Ordering::Relaxed))
    }

    /// Puts another entry there, and returns the one before.
    pub fn replace(&self, number: u32, kept: Option<Kept>) -> Option<Kept> {
        // Relaxed, as above.
        of_word(self.0[number as usize].swap(kept.map_or(ABSENT, word_of), Ordering::Relaxed))
    }
}

fn word_of(kept: Kept) -> u64 {
    let Kept { slot, start, form } = kept;
    assert!(start.is_multiple_of(UNIT), "a page begins at a unit");
    let place = u64::from(slot) << SLOT_SHIFT | ((start / UNIT) as u64) << START_SHIFT;
    place | (form.bytes() as u64) << BYTES_SHIFT | u64::from(form == Form::Same)
}

fn of_word(word: u64) -> Option<Kept> {
    let bytes = (word >> BYTES_SHIFT & BYTES_MASK) as usize;
    (word != ABSENT).then(|| Kept {
        slot: (word >> SLOT_SHIFT) as u32,
        start: (word >> START_SHIFT & START_MASK) as usize * UNIT,
        form: if word & SAME_BIT == 0 { Form::Packed(bytes) } else { Form::Same },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE_BYTES;

    #[test]
    fn an_entry_is_what_was_put_there_to_the_last_bit() {
        let entries = Entries::new(3).unwrap();
        let last = Kept { slot: u32::MAX, start: PAGE_BYTES - UNIT, form: Form::Packed(UNIT) };
        let first = Kept { slot: 0, start: 0, form: Form::Packed(COMPRESSED_BYTES_MAX) };
        let same = Kept { slot: 1, start: UNIT, form: Form::Same };
        let mut before = None;
        for kept in [Some(last), Some(same), Some(first), None] {
            assert_eq!(entries.replace(2, kept), before);
            assert_eq!((entries.get(2), entries.get(1)), (kept, None));
            before = kept;
        }
    }
}
