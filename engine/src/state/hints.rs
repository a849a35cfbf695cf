//! What a program has said about how it will use its pages: two bits for each page, in a table that takes
//! memory only where something was said.
use crate::base::index::{PageIndex, PageRange};
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use userswap_policy::readahead::Hint;

/// Pages whose bits are in one word.
const WORD_PAGES: u32 = 32;

/// The hints for all pages of an arena.
#[derive(Debug)]
pub struct Hints {
    words: ZeroedSlice<AtomicU64>,
    /// Something was said: until then the words are not looked at.
    used: AtomicBool,
}

impl Hints {
    /// Nothing said about any of `pages` pages.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(pages: u32) -> io::Result<Self> {
        let words = ZeroedSlice::new(pages.div_ceil(WORD_PAGES) as usize)?;
        Ok(Self { words, used: AtomicBool::new(false) })
    }

    /// What was said about a page last.
    pub fn of(&self, page: PageIndex) -> Hint {
        // Relaxed here and below: a hint that is seen late costs a better guess.
        if !self.used.load(Ordering::Relaxed) {
            return Hint::Normal;
        }
        let word = self.words[(page / WORD_PAGES) as usize].load(Ordering::Relaxed);
        match word >> (page % WORD_PAGES * 2) & 3 {
            1 => Hint::Sequential,
            2 => Hint::Random,
            _ => Hint::Normal,
        }
    }

    /// Keeps what is said about a range.
    pub fn set(&self, range: PageRange, hint: Hint) {
        let bits = match hint {
            Hint::Normal if !self.used.load(Ordering::Relaxed) => return,
            Hint::Normal => 0,
            Hint::Sequential => 1,
            Hint::Random => 2,
        };
        self.used.store(true, Ordering::Relaxed);
        let mut page = range.first;
        while page < range.end() {
            let end = range.end().min((page / WORD_PAGES + 1) * WORD_PAGES);
            self.set_in_word(page, end - page, bits);
            page = end;
        }
    }

    /// Sets the bits of `count` pages of one word.
    fn set_in_word(&self, page: PageIndex, count: u32, bits: u64) {
        let low = page % WORD_PAGES * 2;
        let mask = (u64::MAX >> (64 - count * 2)) << low;
        // The same two bits for every page.
        let wanted = (bits * (u64::MAX / 3)) & mask;
        let word = &self.words[(page / WORD_PAGES) as usize];
        // Memory about which nothing was said is only looked at.
        if word.load(Ordering::Relaxed) & mask != wanted {
            let change = |before: u64| Some(before & !mask | wanted);
            let changed = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
            assert!(changed.is_ok(), "the change is always wanted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn before_anything_was_said_every_page_is_normal() {
        let hints = Hints::new(100).unwrap();
        hints.set(PageRange { first: 0, count: 100 }, Hint::Normal);
        assert!((0..100).all(|page| hints.of(page) == Hint::Normal));
    }

    proptest! {
        #[test]
        fn every_page_keeps_what_was_said_last(
            said in prop::collection::vec((0u32..200, 0u32..100, 0usize..3), 1..50),
        ) {
            let hints = Hints::new(300).unwrap();
            let mut model = [Hint::Normal; 300];
            for (first, count, which) in said {
                let hint = [Hint::Normal, Hint::Sequential, Hint::Random][which];
                hints.set(PageRange { first, count }, hint);
                model[first as usize..(first + count) as usize].fill(hint);
                for page in 0..300 {
                    prop_assert_eq!(hints.of(page), model[page as usize], "page {}", page);
                }
            }
        }
    }
}
