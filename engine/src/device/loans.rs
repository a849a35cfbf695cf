//! The slots of a device that forked children read: the protocol between its owner and the borrowers.
//!
//! The **owner** is the process that took the device into use: it alone allocates and writes slots. A child made by
//! fork **borrows** the device: it reads the slots that its pages have from the parent, and drops them. What matters is
//! one thing: the owner must not give out a slot anew while a borrower may still read it.
//!
//! - All of them share a table: a **row** for each borrower, with a bit for each slot that it may still read. The bits are
//!   set by the process that forks, before the fork and behind its closed gate, for what its own pages have at that
//!   moment. The borrower alone clears them, one by one as it drops slots; only then is a slot another's.
//! - Row N belongs to the process that holds the lock on byte N. The parent takes it by a new open file description,
//!   which the child inherits: so it is held without a gap, and ends with the child, or with its exec, however either
//!   ends. Where a row is not locked, its borrower is gone: the owner, or the next that wants a row, locks it, clears it,
//!   and may then use it or let go.
//! - A borrower's own children borrow from all owners that their parent does. Their bits are set before their parent can
//!   clear its own, but the owner might read the new row just before and the old one just after. So whoever has filled a
//!   row counts that in `HANDED_ON`, and the owner looks again when the count has changed while it looked.
//! - When the owner lets go of the device, or is gone, nobody allocates: the file lives as long as someone has it open.
use crate::sys::shared::{ByteLocks, SharedWords};
use crate::sys::sync::{AtomicU64, Lock, Ordering};
use std::io;
use std::os::fd::RawFd;

/// Processes that can borrow a device at a time; a fork beyond copies the slots.
pub const BORROWERS_MAX: u32 = 64;

/// The word with a bit for each row that may have bits.
const ROWS: usize = 0;
/// The word that counts rows filled.
const HANDED_ON: usize = 1;
/// Words of a page of memory: rows begin on one, so that their memory can be given back.
const PAGE_WORDS: usize = 512;
/// Looks at a word before it counts as borrowed.
const LOOKS_MAX: u32 = 8;

/// A process's part in a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Part {
    /// It allocates the slots.
    Owner,
    /// It reads slots, and has this row.
    Borrower(u32),
}

/// The table of a device, and this process's part in it.
pub struct Loans {
    table: Table,
    seat: Lock<Seat>,
}

/// The table, which all processes see. The bits of a row are written by its holder alone.
pub struct Table {
    words: SharedWords,
    row_words: usize,
}

struct Seat {
    part: Part,
    /// The owner's holds nothing for long, a borrower's its row.
    locks: ByteLocks,
}

/// A row that was filled for a child, as long as this exists or the child does.
pub struct Loan {
    /// Its number.
    pub row: u32,
    /// What holds it.
    pub locks: ByteLocks,
}

impl Loans {
    /// For a new device of `slots` slots.
    ///
    /// # Errors
    /// No memory that can be shared, or no descriptor.
    pub fn new(slots: u32) -> io::Result<Self> {
        let seat = Seat { part: Part::Owner, locks: ByteLocks::new()? };
        Ok(Self { table: Table::new(slots)?, seat: Lock::new(seat) })
    }

    /// What is the same for all processes.
    pub fn table(&self) -> &Table {
        &self.table
    }

    /// This process's part.
    pub fn part(&self) -> Part {
        self.seat.lock().part
    }

    /// What it is locked by.
    pub fn descriptor(&self) -> RawFd {
        self.seat.lock().locks.descriptor()
    }

    /// Takes a row for a child that is about to be made, and sets its bits: pairs of word and mask.
    ///
    /// # Errors
    /// All rows are taken, or no open file description is to be had.
    pub fn lend(&self, slots: impl Iterator<Item = (usize, u64)>) -> io::Result<Loan> {
        let locks = self.seat.lock().locks.another()?;
        self.table.lend(locks, slots).ok_or_else(|| io::ErrorKind::QuotaExceeded.into())
    }

    /// In the child: this process is a borrower from now on.
    ///
    /// # Errors
    /// What dup3 says.
    pub fn borrow(&self, loan: &Loan) -> io::Result<()> {
        let mut seat = self.seat.lock();
        seat.locks.become_another(&loan.locks)?;
        seat.part = Part::Borrower(loan.row);
        Ok(())
    }

    /// For the owner: clears the rows of borrowers that are gone. It makes system calls, but waits for nothing.
    pub fn bury(&self) {
        // Held throughout: of two threads with one description both would have the lock on a byte.
        if let Some(seat) = self.seat.try_lock() {
            self.table.bury(&seat.locks);
        }
    }
}

impl Table {
    /// For a device of `slots` slots; no row is in use.
    ///
    /// # Errors
    /// No memory that can be shared.
    pub fn new(slots: u32) -> io::Result<Self> {
        let row_words = (slots.div_ceil(u64::BITS) as usize).next_multiple_of(PAGE_WORDS);
        let words = SharedWords::new(PAGE_WORDS + BORROWERS_MAX as usize * row_words)?;
        Ok(Self { words, row_words })
    }

    /// Takes and fills a row, held by `locks`, which are new; None when all are taken.
    pub fn lend(
        &self,
        locks: ByteLocks,
        slots: impl Iterator<Item = (usize, u64)>,
    ) -> Option<Loan> {
        let row = (0..BORROWERS_MAX).find(|row| locks.try_lock(*row))?;
        // Acquire pairs with the release below, of a borrower's parent: all its bits are there to be cleared.
        if self.words.at(ROWS).load(Ordering::Acquire) >> row & 1 == 1 {
            self.clear(row);
        }
        // Release pairs with the acquire in `borrowed_once`, as do the next two: an owner that misses the row misses its
        // count, too, unless it also sees what the process that forks has not dropped yet.
        self.words.at(ROWS).fetch_or(1 << row, Ordering::Release);
        for (word, mask) in slots {
            let bits = self.bits(row, word);
            bits.store(bits.load(Ordering::Relaxed) | mask, Ordering::Release);
        }
        self.words.at(HANDED_ON).fetch_add(1, Ordering::Release);
        Some(Loan { row, locks })
    }

    /// A borrower has dropped these slots of a word, and reads them no more. Its device's lock is held.
    pub fn drop_slots(&self, row: u32, word: usize, mask: u64) {
        let bits = self.bits(row, word);
        let before = bits.load(Ordering::Relaxed);
        assert!(before & mask == mask, "a slot is dropped that was not borrowed");
        // Release pairs with the acquire in `borrowed_once`: the reads come before, and so does what was handed on.
        bits.store(before & !mask, Ordering::Release);
    }

    /// Whether there may be borrowers, also dead ones.
    pub fn any(&self) -> bool {
        self.words.at(ROWS).load(Ordering::Acquire) != 0
    }

    /// For the owner: the slots of a word that others may still read.
    pub fn borrowed(&self, word: usize) -> u64 {
        // When rows are filled all the time, everything counts as borrowed.
        (0..LOOKS_MAX).find_map(|_| self.borrowed_once(word)).unwrap_or(u64::MAX)
    }

    /// None when a row was filled meanwhile.
    fn borrowed_once(&self, word: usize) -> Option<u64> {
        let handed_on = self.words.at(HANDED_ON).load(Ordering::Acquire);
        let rows = rows(self.words.at(ROWS).load(Ordering::Acquire));
        let sum = rows.fold(0, |sum, row| sum | self.bits(row, word).load(Ordering::Acquire));
        (self.words.at(HANDED_ON).load(Ordering::Acquire) == handed_on).then_some(sum)
    }

    /// Clears the rows that nobody holds. `locks` are the owner's, used by one thread.
    pub fn bury(&self, locks: &ByteLocks) {
        for row in rows(self.words.at(ROWS).load(Ordering::Acquire)) {
            if locks.try_lock(row) {
                self.clear(row);
                self.words.at(ROWS).fetch_and(!(1 << row), Ordering::AcqRel);
                locks.unlock(row);
            }
        }
    }

    fn clear(&self, row: u32) {
        self.words.clear(self.row_at(row), self.row_words);
    }

    fn bits(&self, row: u32, word: usize) -> &AtomicU64 {
        assert!(word < self.row_words, "no slot is that far");
        self.words.at(self.row_at(row) + word)
    }

    fn row_at(&self, row: u32) -> usize {
        PAGE_WORDS + row as usize * self.row_words
    }
}

/// The rows of a mask.
fn rows(mask: u64) -> impl Iterator<Item = u32> {
    (0..BORROWERS_MAX).filter(move |row| mask >> row & 1 == 1)
}
