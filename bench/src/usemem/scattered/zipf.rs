//! Pages drawn by zipf's law, of which few get most accesses: a cache, an index, a key-value store.

use super::{Job, Work, spread, word_of};
use crate::usemem::pass::{WrongData, wrong};
use rand_distr::Distribution;
use std::sync::atomic::Ordering::Relaxed;

/// The skew, which is that of the YCSB benchmarks.
pub(crate) const SKEW: f64 = 0.99;
/// The bits of a word that hold its index; those above count what was added.
const INDEX_BITS: u32 = 40;
const INDEX_MASK: u64 = (1 << INDEX_BITS) - 1;

/// What is done with a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Access {
    Read,
    Write,
}

pub(super) struct Zipf<'a> {
    job: Job<'a>,
    access: Access,
    ranks: rand_distr::Zipf<f64>,
}

impl<'a> Zipf<'a> {
    pub(super) fn new(job: Job<'a>, access: Access) -> Self {
        let ranks = rand_distr::Zipf::new(job.pages() as f64, SKEW);
        Self { job, access, ranks: ranks.expect("there is a page, and the skew is positive") }
    }
}

impl Work for Zipf<'_> {
    fn fill(&self) {
        for (index, word) in self.job.words.iter().enumerate() {
            word.store(index as u64, Relaxed);
        }
    }

    fn work(&self, thread: usize) -> Result<(), WrongData> {
        let mut random = self.job.random(thread);
        for _ in 0..self.job.operations {
            let rank = self.ranks.sample(&mut random) as u64;
            let index = word_of(spread(rank, self.job.pages()));
            let word = &self.job.words[index as usize];
            let found = match self.access {
                Access::Read => word.load(Relaxed),
                // One instruction, so that no thread's addition gets lost on another's.
                Access::Write => word.fetch_add(1 << INDEX_BITS, Relaxed),
            };
            if found & INDEX_MASK != index {
                return Err(wrong(index, index, found));
            }
        }
        Ok(())
    }

    fn check(&self) -> Result<(), WrongData> {
        let mut added = 0;
        for (index, word) in self.job.words.iter().enumerate() {
            let (index, found) = (index as u64, word.load(Relaxed));
            if found & INDEX_MASK != index {
                return Err(wrong(index, index, found));
            }
            added += found >> INDEX_BITS;
        }
        let expected = match self.access {
            Access::Read => 0,
            Access::Write => self.job.operations * self.job.threads as u64,
        };
        // A count of one word goes round after 2^24 additions, which no measurement has time for.
        if added == expected {
            Ok(())
        } else {
            Err(WrongData { offset: 0, expected, found: added })
        }
    }
}
