//! Pages of numbers that follow each other: sorted integers, indices, times.
//!
//! What a compressor looks for, bytes that were there before, it does not find in them: it is their differences that are
//! small. So such a page is compressed as the differences of its words, their first bytes before all second ones, and so on:
//! most of that is zeros. Sorted integers of nine bits of noise each become a sixth that way by zstd, and a fourth without.
use crate::sys::PAGE_BYTES;

const WORD: usize = size_of::<u64>();
const WORDS: usize = PAGE_BYTES / WORD;

/// A difference is small if, as [`folded`], it is below this: its last five bytes are zeros.
const SMALL: u64 = 1 << 24;
/// So many of a page's differences are small where it is one of numbers that follow each other.
const SMALL_MIN: usize = WORDS * 7 / 8;
/// So many are nothing at most: words that repeat are what compressors are good at.
const SAME_MAX: usize = WORDS / 4;

/// Whether it is such a page.
pub fn follow(page: &[u8]) -> bool {
    let (mut small, mut same) = (0, 0);
    for (word, before) in words(&page[WORD..]).zip(words(page)) {
        let difference = folded(word.wrapping_sub(before));
        small += usize::from(difference < SMALL);
        same += usize::from(difference == 0);
    }
    small >= SMALL_MIN && same <= SAME_MAX
}

/// Fills `spread` with what a page is compressed as.
pub fn spread(page: &[u8], spread: &mut [u8]) {
    let mut before = 0;
    for (index, word) in words(page).enumerate() {
        let bytes = folded(word.wrapping_sub(before)).to_le_bytes();
        before = word;
        for (row, byte) in bytes.into_iter().enumerate() {
            spread[row * WORDS + index] = byte;
        }
    }
}

/// Fills a page from what it was compressed as.
pub fn gather(spread: &[u8], page: &mut [u8]) {
    let mut word = 0u64;
    for (index, to) in page.chunks_exact_mut(WORD).enumerate() {
        let row = |row: usize| u64::from(spread[row * WORDS + index]) << (8 * row);
        let difference = (0..WORD).fold(0, |all, number| all | row(number));
        word = word.wrapping_add(unfolded(difference));
        to.copy_from_slice(&word.to_le_bytes());
    }
}

fn words(bytes: &[u8]) -> impl Iterator<Item = u64> {
    bytes.chunks_exact(WORD).map(|word| u64::from_le_bytes(word.try_into().expect("eight bytes")))
}

/// Small for small differences of either sign.
fn folded(difference: u64) -> u64 {
    difference << 1 ^ (difference as i64 >> 63) as u64
}

fn unfolded(folded: u64) -> u64 {
    folded >> 1 ^ (folded & 1).wrapping_neg()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn page_of(word: impl FnMut(u64) -> u64) -> Vec<u8> {
        (0..WORDS as u64).map(word).flat_map(u64::to_le_bytes).collect()
    }

    #[test]
    fn numbers_that_follow_each_other_are_told_from_others() {
        let noise = |at: u64| (at + 7).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        assert!(follow(&page_of(|at| (5 << 40) + at * 300 + noise(at) % 300)), "sorted");
        assert!(follow(&page_of(|at| (5 << 40) - at * 3)), "falling");
        assert!(follow(&page_of(|at| 7_u64.wrapping_sub(at))), "through nothing");
        assert!(!follow(&page_of(noise)), "noise");
        assert!(!follow(&page_of(|at| at / 3)), "words that repeat");
        assert!(!follow(&page_of(|_| u64::from_le_bytes(*b"text tex"))), "one word");
        assert!(
            !follow(&page_of(|at| if at % 2 == 0 { 3 } else { 0x7f00_0000_0000 + at })),
            "objects"
        );
    }

    #[test]
    fn differences_that_are_small_are_zeros_in_most_rows() {
        let (page, mut rows) = (page_of(|at| (1 << 50) + at * 301), vec![1; PAGE_BYTES]);
        spread(&page, &mut rows);
        // But for the first word, which is its difference from nothing.
        assert!(rows[2 * WORDS..].iter().filter(|byte| **byte != 0).count() <= WORD);
    }

    proptest! {
        #[test]
        fn any_page_comes_back_as_it_was(bytes in prop::collection::vec(any::<u8>(), PAGE_BYTES)) {
            let (mut rows, mut back) = (vec![0; PAGE_BYTES], vec![0; PAGE_BYTES]);
            spread(&bytes, &mut rows);
            gather(&rows, &mut back);
            prop_assert!(bytes == back);
        }
    }
}
