//! Slots that their owner has freed while another process may still read them: taken until nobody does.
//!
//! Everything goes by words of 64 slots, as who reads what is told by bitmaps. Whether a slot is still read
//! is the caller's to say.

use crate::bits::{WORD, masks};
use crate::slots::SlotRun;
use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// The lent slots of one device.
#[derive(Debug)]
pub struct Lent {
    words: Vec<u64>,
    /// Outside of these words there are none.
    span: Range<usize>,
    count: u32,
}

/// Slots of one word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotWord {
    /// The slot of bit 0, divided by 64.
    pub index: usize,
    /// A bit per slot.
    pub mask: u64,
}

impl SlotWord {
    /// The slots of a run, word by word.
    pub fn of(run: SlotRun) -> impl Iterator<Item = Self> {
        masks(run.first, run.count).map(|(index, mask)| Self { index, mask })
    }

    /// The slots as runs.
    pub fn runs(self) -> impl Iterator<Item = SlotRun> {
        let mut left = self.mask;
        core::iter::from_fn(move || {
            let first = left.trailing_zeros();
            if first == WORD {
                return None;
            }
            let count = (left >> first).trailing_ones();
            left &= !(u64::MAX >> (WORD - count) << first);
            Some(SlotRun { first: self.index as u32 * WORD + first, count })
        })
    }
}

impl Lent {
    /// None of a device of `max` slots.
    pub fn new(max: u32) -> Self {
        Self { words: vec![0; max.div_ceil(WORD) as usize], span: 0..0, count: 0 }
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The words outside of which there are none.
    pub fn span(&self) -> Range<usize> {
        self.span.clone()
    }

    /// Those of one word.
    pub fn word(&self, index: usize) -> u64 {
        self.words[index]
    }

    /// Of `freed` slots keeps those that are `borrowed`; the others, which are returned, are free.
    ///
    /// # Panics
    /// When one of them was lent already: it is freed twice.
    pub fn keep(&mut self, freed: SlotWord, borrowed: u64) -> SlotWord {
        let kept = freed.mask & borrowed;
        let word = &mut self.words[freed.index];
        assert!(*word & freed.mask == 0, "slots {freed:?} are freed twice");
        *word |= kept;
        if kept != 0 {
            self.count += kept.count_ones();
            self.span = match self.span.is_empty() {
                true => freed.index..freed.index + 1,
                false => self.span.start.min(freed.index)..self.span.end.max(freed.index + 1),
            };
        }
        SlotWord { mask: freed.mask & !kept, ..freed }
    }

    /// Gives up those of a word that are not `borrowed` any more, and returns them: they are free.
    pub fn give_back(&mut self, index: usize, borrowed: u64) -> SlotWord {
        let word = &mut self.words[index];
        let mask = *word & !borrowed;
        *word &= borrowed;
        self.count -= mask.count_ones();
        if self.count == 0 {
            self.span = 0..0;
        }
        SlotWord { index, mask }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn slots(word: SlotWord) -> impl Iterator<Item = u32> {
        word.runs().flat_map(|run| run.first..run.first + run.count)
    }

    #[test]
    fn a_word_is_split_into_its_longest_runs() {
        let runs = |mask| SlotWord { index: 1, mask }.runs().collect::<Vec<_>>();
        let run = |first, count| SlotRun { first, count };
        assert_eq!(runs(0), []);
        assert_eq!(runs(u64::MAX), [run(64, 64)]);
        assert_eq!(runs(1 << 63 | 0b110), [run(65, 2), run(127, 1)]);
    }

    proptest! {
        #[test]
        fn lent_slots_are_those_freed_while_borrowed(
            steps in prop::collection::vec((0u32..300, 1u32..90, any::<u64>(), any::<bool>()), 1..60),
        ) {
            let (mut lent, mut model) = (Lent::new(400), BTreeSet::new());
            for (first, count, borrowed, gives_back) in steps {
                if gives_back {
                    for index in lent.span() {
                        let back: Vec<u32> = slots(lent.give_back(index, borrowed)).collect();
                        let expected = |slot: &u32| {
                            (slot / 64) as usize == index && borrowed >> (slot % 64) & 1 == 0
                        };
                        let gone: Vec<u32> = model.iter().copied().filter(expected).collect();
                        prop_assert_eq!(&back, &gone);
                        model.retain(|slot| !gone.contains(slot));
                    }
                } else {
                    for word in SlotWord::of(SlotRun { first, count }) {
                        let fresh = SlotWord { mask: word.mask & !lent.word(word.index), ..word };
                        let free: Vec<u32> = slots(lent.keep(fresh, borrowed)).collect();
                        prop_assert!(free.iter().all(|slot| borrowed >> (slot % 64) & 1 == 0));
                        model.extend(slots(fresh).filter(|slot| !free.contains(slot)));
                    }
                }
                prop_assert_eq!(lent.count() as usize, model.len());
                let inside = |slot: &u32| lent.span().contains(&((slot / 64) as usize));
                prop_assert!(model.iter().all(inside));
            }
        }
    }
}
