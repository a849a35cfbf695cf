//! Random page reads: one mapping, filled in order, then read by all threads in random order.
//!
//! Each read loads one word of one random page and checks it against the pattern, so a read costs
//! one fault when the page is not in memory, and wrong content cannot pass for speed. The word
//! within the page changes with the page, so that a wrong mapping of right pages is noticed too.

use super::content::{Content, PAGE_WORDS};
use super::latency::Latencies;
use super::notice::Notice;
use super::options::{Options, Order, PageReads};
use super::pass::{Pass, Work, verify};
use super::task::{self, Failure};
use super::{in_threads, report};
use crate::random::Random;
use std::sync::atomic::AtomicU64;
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

/// Reads between two looks at the clock.
const CLOCK_READS: u64 = 64;
/// Consecutive seeds of rand48 begin with neighbouring numbers; this spreads the threads.
const SEED_STRIDE: u64 = 0x9E37_79B9;

/// Fills the memory, waits for a signal if asked to, reads and reports.
pub(super) fn run(options: &Options, reads: PageReads) -> Result<(), Failure> {
    let notice = if options.wait_for_signal { Some(Notice::new()?) } else { None };
    let memory = task::allocate_shared(options)?;
    let content = &Content::new(options.data)?;
    let fill = Pass { work: Work::Write, content, step_words: 1, time_is_up: &|| false };
    fill.sequential(memory.words())?;
    if let Some(notice) = notice {
        notice.wait_alone()?;
    }
    let seed = match options.order {
        Order::Random { seed: Some(seed) } => seed,
        _ => 1,
    };
    let all = Mutex::new(Latencies::new());
    in_threads(options.threads, |number| {
        let random = Random::new(seed ^ (number as u64).wrapping_mul(SEED_STRIDE));
        read_pages(reads, content, memory.words(), random)?.add_to(&all);
        Ok(())
    });
    let all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.line().map_or(Ok(()), |line| report::print(&line))?;
    let clock = Instant::now();
    drop(memory);
    report::print(&report::freeing(clock.elapsed()))?;
    Ok(())
}

fn read_pages(
    reads: PageReads,
    content: &Content,
    words: &[AtomicU64],
    mut random: Random,
) -> Result<Latencies, Failure> {
    let mut latencies = Latencies::new();
    let pages = (words.len() as u64).div_ceil(PAGE_WORDS);
    let clock = Instant::now();
    let mut done = 0u64;
    loop {
        let finished = match reads {
            PageReads::Count(count) => done == count,
            PageReads::For(time) => done.is_multiple_of(CLOCK_READS) && clock.elapsed() >= time,
        };
        if finished {
            break;
        }
        let page = random.below(pages);
        let within = (page * 7 + done) % PAGE_WORDS;
        let index = (page * PAGE_WORDS + within).min(words.len() as u64 - 1);
        let expected = content.word(index);
        let begun = Instant::now();
        verify(&words[index as usize], index, expected)?;
        latencies.note(begun.elapsed());
        done += 1;
    }
    report::print(&report::page_reads(done, clock.elapsed()))?;
    Ok(latencies)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usemem::Data;

    fn filled(words: u64) -> Vec<AtomicU64> {
        (0..words).map(AtomicU64::new).collect()
    }

    #[test]
    fn reads_of_the_pattern_succeed_even_when_the_last_page_is_partial() {
        let content = Content::new(Data::Index).unwrap();
        read_pages(PageReads::Count(10_000), &content, &filled(5000), Random::new(3)).unwrap();
    }

    #[test]
    fn a_page_with_the_content_of_another_is_noticed() {
        let words = filled(512);
        for (index, word) in words.iter().enumerate() {
            word.store(index as u64 + 512, std::sync::atomic::Ordering::Relaxed);
        }
        let content = Content::new(Data::Index).unwrap();
        let result = read_pages(PageReads::Count(1), &content, &words, Random::new(3)).map(drop);
        assert!(matches!(result, Err(Failure::Data(_))), "{result:?}");
    }
}
