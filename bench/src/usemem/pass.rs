//! The loops that touch memory.
//!
//! The pattern is usemem's: a written word holds its own index. From the second write pass on a
//! sequential pass first verifies that, and so do reads of what was written; at random positions a word may also hold nothing
//! yet. Other content (`content`) is written a page at a time, and verified by all reads. Words are atomics accessed relaxed,
//! which compile to the single loads and stores of the original's `volatile` and can be shared between threads.

use super::content::{Content, PAGE_WORDS};
use crate::random::Random;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use thiserror::Error;

/// The clock is looked at once per this many words of a pass.
const CLOCK_WORDS: usize = 1 << 16;

/// A word that does not hold what was written to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
#[error("Data wrong at offset 0x{offset:x}. Expected 0x{expected:08x}, got 0x{found:08x}")]
pub(super) struct WrongData {
    pub(super) offset: u64,
    pub(super) expected: u64,
    pub(super) found: u64,
}

/// What a pass does at each word.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Work {
    Write,
    /// Expect the index of an earlier pass, then write it again; at random positions, the index or nothing yet.
    VerifyAndWrite,
    Read,
    /// Expect the same, and leave it.
    Verify,
}

/// One pass over the words of a mapping.
pub(super) struct Pass<'a> {
    pub(super) work: Work,
    pub(super) content: &'a Content,
    pub(super) step_words: usize,
    /// Asked every [`CLOCK_WORDS`] words whether time is up.
    pub(super) time_is_up: &'a dyn Fn() -> bool,
}

/// How a pass ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    Complete { accesses: u64 },
    TimeIsUp { accesses: u64 },
}

impl Pass<'_> {
    /// Visits every step-th word in order.
    pub(super) fn sequential(&self, words: &[AtomicU64]) -> Result<Ended, WrongData> {
        let mut first = 0;
        let mut accesses = 0;
        while first < words.len() {
            // A block ends where the next access is due, so that blocks join without a seam.
            let steps = CLOCK_WORDS.div_ceil(self.step_words);
            let end = (first + steps * self.step_words).min(words.len());
            accesses += self.block(&words[first..end], first)?;
            first = end;
            if (self.time_is_up)() && first < words.len() {
                return Ok(Ended::TimeIsUp { accesses });
            }
        }
        Ok(Ended::Complete { accesses })
    }

    fn block(&self, words: &[AtomicU64], first: usize) -> Result<u64, WrongData> {
        if !self.content.is_index() {
            return self.content_block(words, first);
        }
        // The step of one word is the usual one; a constant lets the compiler unroll the loop.
        match self.step_words {
            1 => match self.work {
                Work::Write => write(words, first, 1),
                Work::Read => read(words, 1),
                Work::VerifyAndWrite => verify_and_write(words, first, 1)?,
                Work::Verify => verify_all(words, first, 1)?,
            },
            step => match self.work {
                Work::Write => write(words, first, step),
                Work::Read => read(words, step),
                Work::VerifyAndWrite => verify_and_write(words, first, step)?,
                Work::Verify => verify_all(words, first, step)?,
            },
        }
        Ok(words.len().div_ceil(self.step_words) as u64)
    }

    fn content_block(&self, words: &[AtomicU64], first: usize) -> Result<u64, WrongData> {
        for offset in (0..words.len()).step_by(self.step_words) {
            let (word, index) = (&words[offset], (first + offset) as u64);
            let expected = self.content.word(index);
            match self.work {
                Work::Write => word.store(expected, Relaxed),
                Work::Read | Work::Verify => verify(word, index, expected)?,
                Work::VerifyAndWrite => {
                    verify(word, index, expected)?;
                    word.store(expected, Relaxed);
                }
            }
        }
        Ok(words.len().div_ceil(self.step_words) as u64)
    }

    /// Visits as many random words as a sequential pass would visit in order.
    pub(super) fn random(
        &self,
        words: &[AtomicU64],
        random: &mut Random,
    ) -> Result<Ended, WrongData> {
        // usemem's bound: the last word is never chosen.
        let bound = words.len() as u64 - 1;
        let total = words.len().div_ceil(self.step_words) as u64;
        let per_clock = CLOCK_WORDS.div_ceil(self.step_words) as u64;
        let mut accesses = 0;
        while accesses < total {
            let end = (accesses + per_clock).min(total);
            for _ in accesses..end {
                let index = random.below(bound);
                if !self.content.is_index() {
                    self.content_page(words, index)?;
                    continue;
                }
                let word = &words[index as usize];
                match self.work {
                    Work::Read => drop(std::hint::black_box(word.load(Relaxed))),
                    Work::Write => word.store(index, Relaxed),
                    Work::Verify => index_or_nothing(index, word.load(Relaxed))?,
                    // One instruction: a load before the store would be a fault of its own.
                    Work::VerifyAndWrite => index_or_nothing(index, word.swap(index, Relaxed))?,
                }
            }
            accesses = end;
            if (self.time_is_up)() && accesses < total {
                return Ok(Ended::TimeIsUp { accesses });
            }
        }
        Ok(Ended::Complete { accesses })
    }

    /// The page of the word at `index` holds nothing yet, or its content; writes fill all of it.
    fn content_page(&self, words: &[AtomicU64], index: u64) -> Result<(), WrongData> {
        let (found, expected) = (words[index as usize].load(Relaxed), self.content.word(index));
        if found != expected && found != 0 {
            return Err(wrong(index, expected, found));
        }
        if matches!(self.work, Work::Write | Work::VerifyAndWrite) {
            let first = index / PAGE_WORDS * PAGE_WORDS;
            let end = (first + PAGE_WORDS).min(words.len() as u64);
            (first..end)
                .for_each(|index| words[index as usize].store(self.content.word(index), Relaxed));
        }
        Ok(())
    }
}

#[inline(always)]
fn write(words: &[AtomicU64], first: usize, step: usize) {
    let mut index = first as u64;
    for word in words.iter().step_by(step) {
        word.store(index, Relaxed);
        index += step as u64;
    }
}

#[inline(always)]
fn read(words: &[AtomicU64], step: usize) {
    let mut seen = 0;
    for word in words.iter().step_by(step) {
        seen ^= word.load(Relaxed);
    }
    // Without a use of the values the compiler could leave the loads out.
    std::hint::black_box(seen);
}

#[inline(always)]
fn verify_and_write(words: &[AtomicU64], first: usize, step: usize) -> Result<(), WrongData> {
    let mut index = first as u64;
    for word in words.iter().step_by(step) {
        verify(word, index, index)?;
        word.store(index, Relaxed);
        index += step as u64;
    }
    Ok(())
}

/// Reads as fast as [`read`]: which word is wrong is looked for where one is.
#[inline(always)]
fn verify_all(words: &[AtomicU64], first: usize, step: usize) -> Result<(), WrongData> {
    let mut index = first as u64;
    let mut difference = 0;
    for word in words.iter().step_by(step) {
        difference |= word.load(Relaxed) ^ index;
        index += step as u64;
    }
    if difference == 0 { Ok(()) } else { Err(first_wrong(words, first, step)) }
}

#[cold]
fn first_wrong(words: &[AtomicU64], first: usize, step: usize) -> WrongData {
    let mut of_words = (first as u64..).step_by(step).zip(words.iter().step_by(step));
    let found = of_words.find_map(|(index, word)| verify(word, index, index).err());
    // It may have changed back since, which is as bad.
    found.unwrap_or_else(|| wrong(first as u64, first as u64, first as u64))
}

/// Checks what was at a random position.
#[inline(always)]
fn index_or_nothing(index: u64, found: u64) -> Result<(), WrongData> {
    if found == index || found == 0 { Ok(()) } else { Err(wrong(index, index, found)) }
}

/// Checks that `word`, the one at `index`, holds what is expected there.
#[inline(always)]
pub(super) fn verify(word: &AtomicU64, index: u64, expected: u64) -> Result<(), WrongData> {
    let found = word.load(Relaxed);
    if found == expected { Ok(()) } else { Err(wrong(index, expected, found)) }
}

#[cold]
pub(super) fn wrong(index: u64, expected: u64, found: u64) -> WrongData {
    WrongData { offset: index * size_of::<AtomicU64>() as u64, expected, found }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usemem::Data;
    use std::cell::Cell;

    const WORDS: usize = 3 * CLOCK_WORDS + 17;

    fn zeros() -> Vec<AtomicU64> {
        (0..WORDS).map(|_| AtomicU64::new(0)).collect()
    }

    fn content(data: Data) -> &'static Content {
        Box::leak(Box::new(Content::new(data).unwrap()))
    }

    fn pass(work: Work, step_words: usize) -> Pass<'static> {
        Pass { work, content: content(Data::Index), step_words, time_is_up: &|| false }
    }

    #[test]
    fn a_write_pass_leaves_its_index_in_every_stepped_word_and_touches_no_other() {
        for step in [1, 2, 7, 512, CLOCK_WORDS - 1, CLOCK_WORDS + 1, 2 * WORDS] {
            let words = zeros();
            let ended = pass(Work::Write, step).sequential(&words).unwrap();
            assert_eq!(ended, Ended::Complete { accesses: WORDS.div_ceil(step) as u64 });
            for (index, word) in words.iter().enumerate() {
                let expected = if index % step == 0 { index as u64 } else { 0 };
                assert_eq!(word.load(Relaxed), expected, "step {step}, word {index}");
            }
        }
    }

    #[test]
    fn the_second_pass_accepts_what_the_first_wrote() {
        let words = zeros();
        pass(Work::Write, 3).sequential(&words).unwrap();
        pass(Work::VerifyAndWrite, 3).sequential(&words).unwrap();
    }

    #[test]
    fn the_second_pass_finds_the_one_wrong_word() {
        for wrong in [1, CLOCK_WORDS, WORDS - 1] {
            let words = zeros();
            pass(Work::Write, 1).sequential(&words).unwrap();
            words[wrong].store(0xBAD, Relaxed);
            let error = pass(Work::VerifyAndWrite, 1).sequential(&words).unwrap_err();
            let index = wrong as u64;
            assert_eq!(error, WrongData { offset: index * 8, expected: index, found: 0xBAD });
        }
    }

    #[test]
    fn a_read_of_what_was_written_finds_the_one_wrong_word_whatever_the_step() {
        for step in [1, 7, 512, CLOCK_WORDS + 1] {
            let words = zeros();
            pass(Work::Write, step).sequential(&words).unwrap();
            pass(Work::Verify, step).sequential(&words).unwrap();
            for index in [step, (WORDS - 1) / step * step] {
                words[index].store(0xBAD, Relaxed);
                let error = pass(Work::Verify, step).sequential(&words).unwrap_err();
                let index = index as u64;
                assert_eq!(error, WrongData { offset: index * 8, expected: index, found: 0xBAD });
                words[index as usize].store(index, Relaxed);
            }
        }
    }

    #[test]
    fn at_random_positions_is_the_index_or_nothing_yet() {
        for work in [Work::VerifyAndWrite, Work::Verify] {
            let words = zeros();
            pass(work, 1).random(&words, &mut Random::new(1)).unwrap();
            pass(work, 1).random(&words, &mut Random::new(2)).unwrap();
            let written = words.iter().filter(|word| word.load(Relaxed) != 0).count();
            assert_eq!(written > WORDS / 2, work == Work::VerifyAndWrite);
            words.iter().for_each(|word| word.store(0xBAD, Relaxed));
            let error = pass(work, 1).random(&words, &mut Random::new(1)).unwrap_err();
            assert_eq!((error.offset, error.found), (error.expected * 8, 0xBAD));
        }
    }

    #[test]
    fn wrong_data_is_told_as_usemem_tells_it() {
        let error = WrongData { offset: 0x1000, expected: 0x200, found: 0 };
        let text = "Data wrong at offset 0x1000. Expected 0x00000200, got 0x00000000";
        assert_eq!(error.to_string(), text);
    }

    #[test]
    fn a_random_pass_makes_the_accesses_of_a_sequential_one_and_spares_the_last_word() {
        let words = zeros();
        let mut random = Random::new(1);
        let ended = pass(Work::Write, 1).random(&words, &mut random).unwrap();
        assert_eq!(ended, Ended::Complete { accesses: WORDS as u64 });
        let (last, others) = words.split_last().unwrap();
        assert_eq!(last.load(Relaxed), 0);
        let written =
            others.iter().enumerate().filter(|(index, word)| word.load(Relaxed) == *index as u64);
        assert!(written.count() > WORDS / 2);
    }

    #[test]
    fn other_content_is_written_in_whole_pages_and_verified_by_every_pass() {
        let content = content(Data::Json);
        let pass = |work, step_words| Pass { content, ..pass(work, step_words) };
        let words = zeros();
        pass(Work::Write, PAGE_WORDS as usize).random(&words, &mut Random::new(1)).unwrap();
        let found: Vec<u64> = words.iter().map(|word| word.load(Relaxed)).collect();
        let is_written = |page: &(usize, &[u64])| page.1[0] != 0;
        let pages = found.chunks(PAGE_WORDS as usize).enumerate();
        let written: Vec<_> = pages.filter(is_written).collect();
        assert!(written.len() > WORDS / PAGE_WORDS as usize / 2);
        for (page, words) in written {
            let first = page as u64 * PAGE_WORDS;
            let right = (first..).zip(words).all(|(index, word)| *word == content.word(index));
            assert!(right, "page {page}");
        }
        for work in [Work::Write, Work::Read, Work::VerifyAndWrite] {
            pass(work, 1).sequential(&words).unwrap();
        }
        words.iter().for_each(|word| word.store(7, Relaxed));
        for work in [Work::Read, Work::Verify, Work::VerifyAndWrite] {
            assert!(pass(work, 1).sequential(&words).is_err());
            assert!(pass(work, 1).random(&words, &mut Random::new(1)).is_err());
        }
    }

    #[test]
    fn a_pass_stops_when_its_time_is_up() {
        let words = zeros();
        let looks = Cell::new(0);
        let at_the_second_look = || looks.replace(looks.get() + 1) == 1;
        let time_is_up = &at_the_second_look;
        let pass = Pass { time_is_up, ..pass(Work::Write, 1) };
        let ended = pass.sequential(&words).unwrap();
        assert_eq!(ended, Ended::TimeIsUp { accesses: 2 * CLOCK_WORDS as u64 });
        assert_eq!(words[2 * CLOCK_WORDS].load(Relaxed), 0);
    }
}
