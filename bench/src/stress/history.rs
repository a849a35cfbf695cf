//! What was done to which pages last: the first thing to know of a page that is wrong.
//!
//! It lies, as the stamps do, in memory that is shared: the engine does not manage it, so it is right when a page is not.
use super::content::Stamp;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::bench::stress::Span;

/// Operations that are remembered of a worker.
pub const KEPT: usize = 512;

/// Words of an entry: operation and area, first page and count, stamp.
pub const ENTRY_WORDS: usize = 3;

/// A worker's last operations.
pub struct History<'a> {
    words: &'a [AtomicU64],
    next: usize,
}

/// An operation on pages of one of a worker's areas.
#[derive(Clone, Copy)]
pub struct Entry {
    /// By its index among the operations.
    pub operation: usize,
    /// The worker's area.
    pub area: usize,
    /// The pages.
    pub span: Span,
    /// What they held afterwards, where all held the same.
    pub stamp: Stamp,
}

impl<'a> History<'a> {
    /// An empty one in `words`.
    pub fn new(words: &'a [AtomicU64]) -> Self {
        assert_eq!(words.len(), KEPT * ENTRY_WORDS, "as many as are kept");
        Self { words, next: 0 }
    }

    /// One more, before it is done.
    pub fn note(&mut self, Entry { operation, area, span, stamp }: Entry) {
        let entry = &self.words[self.next % KEPT * ENTRY_WORDS..][..ENTRY_WORDS];
        let packed = [
            1 + operation as u64 + ((area as u64) << 32),
            span.first as u64 | (span.count as u64) << 32,
            stamp.0,
        ];
        entry.iter().zip(packed).for_each(|(word, value)| word.store(value, Ordering::Relaxed));
        self.next += 1;
    }

    /// Those that concern a page, oldest first.
    pub fn of(&self, area: usize, page: usize) -> Vec<Entry> {
        let entries = (0..KEPT).map(|index| {
            let at = (self.next + index) % KEPT * ENTRY_WORDS;
            let word = |index: usize| self.words[at + index].load(Ordering::Relaxed);
            (word(0), word(1), word(2))
        });
        let known = entries.filter(|(operation, ..)| *operation > 0);
        let entry = |(operation, span, stamp): (u64, u64, u64)| Entry {
            operation: (operation & 0xFFFF_FFFF) as usize - 1,
            area: (operation >> 32) as usize,
            span: Span { first: (span & 0xFFFF_FFFF) as usize, count: (span >> 32) as usize },
            stamp: Stamp(stamp),
        };
        let concerns = |entry: &Entry| {
            let Span { first, count } = entry.span;
            entry.area == area && (first..first + count).contains(&page)
        };
        known.map(entry).filter(concerns).collect()
    }
}
