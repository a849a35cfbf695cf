//! A pointer chase: the address of each access is on the page before it, so nothing can be read ahead or at once.

use super::{Job, PAGE_WORDS, Work, word_of};
use crate::random::{Random, cycle};
use crate::usemem::pass::{WrongData, wrong};
use std::sync::atomic::Ordering::Relaxed;

/// The bits of a pointer that name the next page; those above name the page that it is on.
const NEXT_BITS: u32 = 32;
const SEED: u64 = 7;

pub(super) struct PointerChase<'a> {
    job: Job<'a>,
}

impl<'a> PointerChase<'a> {
    pub(super) fn new(job: Job<'a>) -> Self {
        Self { job }
    }

    /// The page that `page` points to.
    fn follow(&self, page: u64) -> Result<u64, WrongData> {
        let index = word_of(page);
        let found = self.job.words[index as usize].load(Relaxed);
        let next = found & ((1 << NEXT_BITS) - 1);
        if found >> NEXT_BITS == page && next < self.job.pages() {
            Ok(next)
        } else {
            Err(wrong(index, index, found))
        }
    }
}

impl Work for PointerChase<'_> {
    fn fill(&self) {
        let next = cycle(self.job.pages() as usize, &mut Random::new(SEED));
        for (page, next) in (0..).zip(next) {
            let words = &self.job.words[(page * PAGE_WORDS) as usize..][..PAGE_WORDS as usize];
            words
                .iter()
                .zip(page * PAGE_WORDS..)
                .for_each(|(word, index)| word.store(index, Relaxed));
            let pointer = page << NEXT_BITS | u64::from(next);
            self.job.words[word_of(page) as usize].store(pointer, Relaxed);
        }
    }

    fn work(&self, thread: usize) -> Result<(), WrongData> {
        let mut page = self.job.pages() * thread as u64 / self.job.threads as u64;
        for _ in 0..self.job.operations {
            page = self.follow(page)?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), WrongData> {
        let mut back = 0;
        for page in 0..self.job.pages() {
            back += u64::from(self.follow(page)? == 0);
            for index in page * PAGE_WORDS..(page + 1) * PAGE_WORDS {
                let found = self.job.words[index as usize].load(Relaxed);
                if found != index && index != word_of(page) {
                    return Err(wrong(index, index, found));
                }
            }
        }
        if back == 1 { Ok(()) } else { Err(WrongData { offset: 0, expected: 1, found: back }) }
    }
}
