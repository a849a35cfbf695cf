//! Which parts of the arena were ever touched: a reservation can be thousands of times larger than what is used of it.
//!
//! A bit stands for as many pages as have their words on one page of memory, so that a look at the others' words
//! would be what makes the kernel map them. It is set before the first of its pages leaves Untouched and stays set:
//! what a thread has seen happen it finds here.
use crate::base::index::{PageIndex, PageRange};
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Pages of one bit.
const BLOCK_PAGES: u32 = (PAGE_BYTES / size_of::<u64>()) as u32;

/// The bits for all pages of an arena.
pub struct Touched {
    words: ZeroedSlice<AtomicU64>,
}

impl Touched {
    /// Nothing touched of `pages` pages.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(pages: u32) -> io::Result<Self> {
        let words = ZeroedSlice::new(pages.div_ceil(BLOCK_PAGES).div_ceil(u64::BITS) as usize)?;
        Ok(Self { words })
    }

    /// Notes that a page is about to be touched.
    #[inline]
    pub fn mark(&self, page: PageIndex) {
        let block = page / BLOCK_PAGES;
        let (word, bit) = (&self.words[(block / u64::BITS) as usize], 1 << (block % u64::BITS));
        // Relaxed: the page's own word orders what is seen of it.
        if word.load(Ordering::Relaxed) & bit == 0 {
            word.fetch_or(bit, Ordering::Relaxed);
        }
    }

    /// The parts of `range` outside which no page was ever touched, in order.
    pub fn within(&self, range: PageRange) -> impl Iterator<Item = PageRange> + '_ {
        let mut next = range.first;
        std::iter::from_fn(move || {
            let first = self.find(next, range.end(), 0)?;
            next = self.find(first, range.end(), u64::MAX).unwrap_or(range.end());
            Some(PageRange { first, count: next - first })
        })
    }

    /// The first page from `page` on whose bit is not as in `unlike`.
    fn find(&self, mut page: PageIndex, end: PageIndex, unlike: u64) -> Option<PageIndex> {
        while page < end {
            let block = page / BLOCK_PAGES;
            let word = self.words[(block / u64::BITS) as usize].load(Ordering::Relaxed);
            let after = (word ^ unlike) >> (block % u64::BITS);
            if after != 0 {
                let found = page.max((block + after.trailing_zeros()) * BLOCK_PAGES);
                return (found < end).then_some(found);
            }
            page = (block / u64::BITS + 1) * u64::BITS * BLOCK_PAGES;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BLOCKS: u32 = 300;

    proptest! {
        #[test]
        fn parts_are_whole_blocks_of_touched_pages_cut_to_the_range(
            marked in prop::collection::vec(0..BLOCKS * BLOCK_PAGES, 0..40),
            first in 0..BLOCKS * BLOCK_PAGES, count in 0u32..80 * BLOCK_PAGES,
        ) {
            let touched = Touched::new(BLOCKS * BLOCK_PAGES).unwrap();
            marked.iter().for_each(|page| touched.mark(*page));
            let range = PageRange { first, count: count.min(BLOCKS * BLOCK_PAGES - first) };
            let parts: Vec<PageRange> = touched.within(range).collect();
            prop_assert!(parts.windows(2).all(|pair| pair[0].end() < pair[1].first));
            for page in range.first..range.end() {
                let expected = marked.iter().any(|marked| marked / BLOCK_PAGES == page / BLOCK_PAGES);
                prop_assert_eq!(parts.iter().any(|part| part.contains(page)), expected, "page {}", page);
            }
        }
    }
}
