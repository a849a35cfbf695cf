//! Bitmaps: masks of a range, search for runs, and a set of indices with a fast successor.
//!
//! [`Set`] is a tree of words: a bit of an upper level says whether the word below it has a member. A
//! search therefore reads a few words per level however large and empty the set is. A set that starts
//! full is stored inverted, so that both kinds begin as untouched zero memory.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Bits in one word of a bitmap.
pub const WORD: u32 = u64::BITS;

/// Splits the bits `first .. first + count` into words: pairs of word number and mask in it.
pub fn masks(first: u32, count: u32) -> impl Iterator<Item = (usize, u64)> {
    let end = first.checked_add(count).expect("a run ends within 32 bits");
    let mut at = first;
    core::iter::from_fn(move || {
        if at >= end {
            return None;
        }
        let bit = at % WORD;
        let length = (end - at).min(WORD - bit);
        let word = (at / WORD) as usize;
        at += length;
        Some((word, (u64::MAX >> (WORD - length)) << bit))
    })
}

/// The first set bit in `range` of the bitmap whose words `word_at` gives.
pub fn first_one(word_at: impl Fn(usize) -> u64, range: Range<u32>) -> Option<u32> {
    let mut at = range.start;
    while at < range.end {
        let base = at - at % WORD;
        let word = word_at((at / WORD) as usize) & (u64::MAX << (at % WORD));
        if word != 0 {
            let found = base + word.trailing_zeros();
            return (found < range.end).then_some(found);
        }
        at = base.checked_add(WORD)?;
    }
    None
}

/// The first run of `want` set bits in `range`, or the longest one when none is that long.
pub fn longest_run(
    word_at: impl Fn(usize) -> u64,
    range: Range<u32>,
    want: u32,
) -> Option<Range<u32>> {
    let mut longest = 0..0;
    let mut from = range.start;
    while longest.len() < want as usize {
        let Some(first) = first_one(&word_at, from..range.end) else { break };
        let limit = first.saturating_add(want).min(range.end);
        let end = first_one(|word| !word_at(word), first..limit).unwrap_or(limit);
        if ((end - first) as usize) > longest.len() {
            longest = first..end;
        }
        from = end;
    }
    (!longest.is_empty()).then_some(longest)
}

/// A set of the indices below a fixed length that finds the next member in a few steps.
#[derive(Debug)]
pub struct Set {
    /// Level 0 holds the members; a bit above says that the word below has one.
    levels: Vec<Vec<u64>>,
    /// What a zero in memory stands for: all ones in a set that started full.
    inverted: u64,
}

impl Set {
    /// No index below `length` is a member.
    pub fn empty(length: u32) -> Self {
        let mut levels = Vec::new();
        let mut length = length as usize;
        loop {
            length = length.div_ceil(WORD as usize).max(1);
            levels.push(vec![0; length]);
            if length == 1 {
                return Self { levels, inverted: 0 };
            }
        }
    }

    /// Every index below `length` is a member.
    pub fn full(length: u32) -> Self {
        let mut set = Self { inverted: u64::MAX, ..Self::empty(length) };
        let mut length = length as usize;
        for level in &mut set.levels {
            let last = level.last_mut().expect("a level has a word");
            // What lies after the end is no member, on any level.
            *last = match length % WORD as usize {
                0 if length == 0 => u64::MAX,
                0 => 0,
                tail => u64::MAX << tail,
            };
            length = level.len();
        }
        set
    }

    pub fn contains(&self, index: u32) -> bool {
        self.word(0, (index / WORD) as usize) >> (index % WORD) & 1 == 1
    }

    pub fn insert(&mut self, index: u32) {
        let mut at = index as usize;
        for level in 0..self.levels.len() {
            let (word, bit) = (at / WORD as usize, 1 << (at % WORD as usize));
            let before = self.word(level, word);
            self.levels[level][word] = (before | bit) ^ self.inverted;
            if before != 0 {
                return;
            }
            at = word;
        }
    }

    pub fn remove(&mut self, index: u32) {
        let mut at = index as usize;
        for level in 0..self.levels.len() {
            let (word, bit) = (at / WORD as usize, 1 << (at % WORD as usize));
            let after = self.word(level, word) & !bit;
            self.levels[level][word] = after ^ self.inverted;
            if after != 0 {
                return;
            }
            at = word;
        }
    }

    /// The first member from `from` on, continuing at 0 after the last index.
    pub fn next_cyclic(&self, from: u32) -> Option<u32> {
        self.next(from).or_else(|| self.next(0))
    }

    /// The first member from `from` on.
    pub fn next(&self, from: u32) -> Option<u32> {
        let mut at = from as usize;
        for level in 0..self.levels.len() {
            let word = at / WORD as usize;
            if word >= self.levels[level].len() {
                return None;
            }
            let bits = self.word(level, word) & (u64::MAX << (at % WORD as usize));
            if bits != 0 {
                let found = word * WORD as usize + bits.trailing_zeros() as usize;
                return Some(self.first_below(level, found));
            }
            at = word + 1;
        }
        None
    }

    /// The first member below bit `at` of `level`.
    fn first_below(&self, level: usize, at: usize) -> u32 {
        let mut at = at;
        for lower in (0..level).rev() {
            let bits = self.word(lower, at);
            assert!(bits != 0, "a set bit above stands for a member below");
            at = at * WORD as usize + bits.trailing_zeros() as usize;
        }
        at as u32
    }

    fn word(&self, level: usize, word: usize) -> u64 {
        self.levels[level][word] ^ self.inverted
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn bits_of(runs: &[Range<u32>], words: usize) -> Vec<u64> {
        let mut bitmap = vec![0; words];
        for run in runs {
            for (word, mask) in masks(run.start, run.end - run.start) {
                bitmap[word] |= mask;
            }
        }
        bitmap
    }

    #[test]
    fn masks_cover_a_range_across_words() {
        let all: Vec<_> = masks(62, 68).collect();
        assert_eq!(all, [(0, 3 << 62), (1, u64::MAX), (2, 3)]);
        assert_eq!(masks(5, 0).count(), 0);
    }

    #[test]
    fn the_first_run_that_is_long_enough_wins_over_a_longer_one() {
        let bitmap = bits_of(&[1..3, 10..15, 60..80], 2);
        let word_at = |word: usize| bitmap[word];
        assert_eq!(longest_run(word_at, 0..128, 2), Some(1..3));
        assert_eq!(longest_run(word_at, 0..128, 4), Some(10..14));
        assert_eq!(longest_run(word_at, 0..128, 64), Some(60..80));
        assert_eq!(longest_run(word_at, 0..64, 64), Some(10..15));
        assert_eq!(longest_run(word_at, 80..128, 1), None);
        assert_eq!(longest_run(word_at, 0..128, 0), None);
    }

    #[test]
    fn a_full_set_ends_at_its_length() {
        for length in [0, 1, 63, 64, 65, 4095, 4096, 4097, 300_000] {
            let mut set = Set::full(length);
            assert_eq!(set.next_cyclic(0), (length > 0).then_some(0), "length {length}");
            if length > 0 {
                assert_eq!(set.next_cyclic(length - 1), Some(length - 1));
                assert_eq!(set.next_cyclic(length), Some(0));
                (0..length).for_each(|index| set.remove(index));
                assert_eq!(set.next_cyclic(0), None, "length {length}");
            }
        }
    }

    proptest! {
        #[test]
        fn a_set_equals_a_tree_set(
            length in 1u32..10_000,
            full in any::<bool>(),
            operations in prop::collection::vec((any::<bool>(), any::<u32>()), 1..300),
        ) {
            let mut set = if full { Set::full(length) } else { Set::empty(length) };
            let mut model: BTreeSet<u32> = if full { (0..length).collect() } else { BTreeSet::new() };
            for (insert, number) in operations {
                let index = number % length;
                if insert {
                    set.insert(index);
                    model.insert(index);
                } else {
                    set.remove(index);
                    model.remove(&index);
                }
                prop_assert_eq!(set.contains(index), model.contains(&index));
                let from = number.rotate_left(16) % (length + 1);
                let next = model.range(from..).next().or_else(|| model.first());
                prop_assert_eq!(set.next_cyclic(from), next.copied());
            }
        }
    }
}
