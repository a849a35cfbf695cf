//! Loads whose pages are needed one by one: zipf, a hash join, a pointer chase.
//!
//! One mapping is filled in order; after a signal all threads work on it, each for its number of operations; after
//! another signal everything is checked. So a measurement has neither the filling nor the checking in it, and
//! what the work itself reads is verified as it goes: wrong content cannot pass for speed.

mod hash_join;
mod pointer_chase;
mod zipf;

pub(crate) use zipf::SKEW;

use super::notice::Notice;
use super::options::{Options, WORD_BYTES};
use super::pass::WrongData;
use super::task::{self, Failure};
use super::{in_threads, report};
use clap::ValueEnum;
use rand::SeedableRng;
use rand::rngs::SmallRng;
use serde::Serialize;
use std::sync::atomic::AtomicU64;
use std::time::Instant;
use userswap::internals::PAGE_BYTES;

/// The least memory of such a load: enough for every part of each to have a page.
pub(crate) const SCATTERED_MIN_BYTES: u64 = 16 * PAGE_BYTES as u64;
const PAGE_WORDS: u64 = PAGE_BYTES as u64 / WORD_BYTES;
/// A prime near the golden ratio of 2^64 (the first of xxHash): multiplying by it puts neighbours far apart, and as
/// no number of pages is a multiple of it, hits each once.
const SPREAD: u64 = 0x9E37_79B1_85EB_CA87;

/// What the threads do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Scattered {
    /// Read a word of pages drawn by zipf's law
    ZipfRead,
    /// Add to a word of pages drawn by zipf's law
    ZipfWrite,
    /// Look rows up in a hash table, in the order of another table, and write what is joined
    HashJoin,
    /// Follow pointers, each of which is on the page that the last one named
    PointerChase,
}

/// A load and its length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ScatteredLoad {
    pub(super) kind: Scattered,
    /// Of each thread.
    pub(super) operations: u64,
}

/// What every load works with.
#[derive(Debug, Clone, Copy)]
struct Job<'a> {
    words: &'a [AtomicU64],
    threads: usize,
    operations: u64,
}

impl Job<'_> {
    fn pages(&self) -> u64 {
        self.words.len() as u64 / PAGE_WORDS
    }

    fn random(&self, thread: usize) -> SmallRng {
        SmallRng::seed_from_u64(thread as u64)
    }
}

/// The three parts of a load.
trait Work: Sync {
    fn fill(&self);
    /// The operations of one thread.
    fn work(&self, thread: usize) -> Result<(), WrongData>;
    /// Everything is as the work of all threads must have left it.
    fn check(&self) -> Result<(), WrongData>;
}

/// Fills, waits for a signal if asked to, works, waits again, checks.
pub(super) fn run(options: &Options, load: ScatteredLoad) -> Result<(), Failure> {
    let notice = if options.wait_for_signal { Some(Notice::new()?) } else { None };
    let memory = task::allocate_shared(options)?;
    let job = Job { words: memory.words(), threads: options.threads, operations: load.operations };
    let work = prepare(job, load.kind);
    work.fill();
    notice.as_ref().map_or(Ok(()), Notice::wait_alone)?;
    in_threads(options.threads, |thread| {
        let clock = Instant::now();
        work.work(thread)?;
        report::print(&report::operations(load.operations, clock.elapsed()))?;
        Ok(())
    });
    notice.as_ref().map_or(Ok(()), Notice::wait_alone)?;
    work.check()?;
    Ok(())
}

fn prepare(job: Job<'_>, kind: Scattered) -> Box<dyn Work + '_> {
    match kind {
        Scattered::ZipfRead => Box::new(zipf::Zipf::new(job, zipf::Access::Read)),
        Scattered::ZipfWrite => Box::new(zipf::Zipf::new(job, zipf::Access::Write)),
        Scattered::HashJoin => Box::new(hash_join::HashJoin::new(job)),
        Scattered::PointerChase => Box::new(pointer_chase::PointerChase::new(job)),
    }
}

/// Where the number `index` of `count` goes when neighbours are to be far from each other.
fn spread(index: u64, count: u64) -> u64 {
    (u128::from(index) * u128::from(SPREAD) % u128::from(count)) as u64
}

/// The word of a page that a load looks at: another one from page to page, so that a wrong mapping of right pages
/// is noticed too.
fn word_of(page: u64) -> u64 {
    page * PAGE_WORDS + page * 7 % PAGE_WORDS
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::Ordering::Relaxed;

    const THREADS: usize = 3;

    fn memory() -> Vec<AtomicU64> {
        // Not a power of two, and a last page that is not whole.
        (0..37 * PAGE_WORDS + 5).map(|_| AtomicU64::new(0)).collect()
    }

    fn each(test: impl Fn(&dyn Work, &[AtomicU64], Scattered)) {
        for &kind in Scattered::value_variants() {
            let words = memory();
            let work = prepare(Job { words: &words, threads: THREADS, operations: 500 }, kind);
            work.fill();
            test(&*work, &words, kind);
        }
    }

    #[test]
    fn what_was_filled_and_worked_on_is_right() {
        each(|work, _, kind| {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || work.work(thread).unwrap());
                }
            });
            assert_eq!(work.check(), Ok(()), "{kind:?}");
        });
    }

    #[test]
    fn a_check_before_all_have_worked_fails_where_something_is_written() {
        each(|work, _, kind| {
            work.work(0).unwrap();
            let writes = matches!(kind, Scattered::ZipfWrite | Scattered::HashJoin);
            assert_eq!(work.check().is_err(), writes, "{kind:?}");
        });
    }

    #[test]
    fn a_page_with_the_content_of_another_is_noticed_by_the_check() {
        each(|work, words, kind| {
            (0..THREADS).for_each(|thread| work.work(thread).unwrap());
            for index in 0..PAGE_WORDS as usize {
                words[index].store(words[index + PAGE_WORDS as usize].load(Relaxed), Relaxed);
            }
            assert!(work.check().is_err(), "{kind:?}");
        });
    }

    #[test]
    fn wrong_pages_are_noticed_by_the_work() {
        each(|work, words, kind| {
            // Every page has the content of the one before it.
            for index in (PAGE_WORDS as usize..words.len()).rev() {
                words[index].store(words[index - PAGE_WORDS as usize].load(Relaxed), Relaxed);
            }
            assert!((0..THREADS).any(|thread| work.work(thread).is_err()), "{kind:?}");
        });
    }

    #[test]
    fn spreading_hits_every_number_once() {
        for count in [1, 2, 16, 37, 1000, 1 << 19] {
            let mut hit: Vec<u64> = (0..count).map(|index| spread(index, count)).collect();
            hit.sort_unstable();
            assert!(hit.into_iter().eq(0..count), "{count}");
        }
    }
}
