//! A hash join: the rows of one table are read in order, each is looked up in a hash table, and what is found is
//! written, in order again. The lookups are random; the streams beside them compete for the same memory.
//!
//! The hash table has half of the memory, rows and results a quarter each. A hash is the index of its entry, so that
//! the table can be filled in order: inserting at random would take longer than what is measured.

use super::{Job, Work};
use crate::usemem::pass::{WrongData, wrong};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Words of an entry: the hash, and the value that belongs to it.
const ENTRY_WORDS: u64 = 2;
/// The most words that a row, and a result, has: 512 bytes.
const ROW_WORDS_MAX: u64 = 64;
/// Words of a row that mean something: the key; of a result: the key, and the value.
const ROW_WORDS_MIN: u64 = 2;

pub(super) struct HashJoin<'a> {
    job: Job<'a>,
    table: &'a [AtomicU64],
    rows: &'a [AtomicU64],
    results: &'a [AtomicU64],
    row_words: u64,
}

impl<'a> HashJoin<'a> {
    /// Where there are more operations than rows fit, the rows are read several times.
    pub(super) fn new(job: Job<'a>) -> Self {
        let quarter = job.words.len() / 4;
        let (table, rest) = job.words.split_at(2 * quarter);
        let (rows, rest) = rest.split_at(quarter);
        let wanted = quarter as u64 / (job.operations * job.threads as u64);
        let row_words = wanted.clamp(ROW_WORDS_MIN, ROW_WORDS_MAX);
        Self { job, table, rows, results: &rest[..quarter], row_words }
    }

    fn entries(&self) -> u64 {
        self.table.len() as u64 / ENTRY_WORDS
    }

    fn rows_each(&self) -> u64 {
        let rows = self.rows.len() as u64 / self.row_words / self.job.threads as u64;
        rows.min(self.job.operations)
    }

    /// The first word of a thread's row.
    fn row(&self, thread: usize, number: u64) -> u64 {
        (thread as u64 * self.rows_each() + number % self.rows_each()) * self.row_words
    }

    fn word_index(&self, word: &AtomicU64) -> u64 {
        let bytes = (&raw const *word).addr() - self.job.words.as_ptr().addr();
        (bytes / size_of::<AtomicU64>()) as u64
    }

    /// The value of `key`, from its entry.
    fn look_up(&self, key: u64) -> Result<u64, WrongData> {
        let hash = mixed(key) % self.entries();
        let entry = &self.table[(hash * ENTRY_WORDS) as usize..][..ENTRY_WORDS as usize];
        for (word, expected) in entry.iter().zip([hash, mixed(hash)]) {
            self.expect(word, expected)?;
        }
        Ok(entry[1].load(Relaxed))
    }

    fn expect(&self, word: &AtomicU64, expected: u64) -> Result<(), WrongData> {
        let found = word.load(Relaxed);
        match found == expected {
            true => Ok(()),
            false => Err(wrong(self.word_index(word), expected, found)),
        }
    }
}

impl Work for HashJoin<'_> {
    fn fill(&self) {
        for (hash, entry) in (0..).zip(self.table.chunks_exact(ENTRY_WORDS as usize)) {
            entry[0].store(hash, Relaxed);
            entry[1].store(mixed(hash), Relaxed);
        }
        for (index, word) in (0..).zip(self.rows) {
            word.store(index, Relaxed);
        }
    }

    fn work(&self, thread: usize) -> Result<(), WrongData> {
        for number in 0..self.job.operations {
            let row = self.row(thread, number);
            let key = &self.rows[row as usize];
            self.expect(key, row)?;
            let value = self.look_up(row)?;
            let result = &self.results[row as usize..];
            result[0].store(key.load(Relaxed), Relaxed);
            result[1].store(value, Relaxed);
        }
        Ok(())
    }

    fn check(&self) -> Result<(), WrongData> {
        for hash in 0..self.entries() {
            let entry = &self.table[(hash * ENTRY_WORDS) as usize..];
            self.expect(&entry[0], hash)?;
            self.expect(&entry[1], mixed(hash))?;
        }
        for (index, word) in (0..).zip(self.rows) {
            self.expect(word, index)?;
        }
        for thread in 0..self.job.threads {
            for number in 0..self.rows_each() {
                let row = self.row(thread, number);
                self.expect(&self.results[row as usize], row)?;
                let hash = mixed(row) % self.entries();
                self.expect(&self.results[row as usize + 1], mixed(hash))?;
            }
        }
        Ok(())
    }
}

/// splitmix64's finish (Steele and others, 2014): every bit of the key decides about every bit of the hash.
fn mixed(key: u64) -> u64 {
    let mut bits = key.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}
