//! Two servers for each slot: what is written to one of them only while the other does not answer, and which is read.
//!
//! A server that was silent comes back with what it had: which of its slots are out of date is kept here, and these are
//! read from the other alone, for however long that takes. A checksum would tell as well, but only that there is nothing
//! to be had, where the other server is silent at that moment.
use super::keys::Copy;
use super::talk::{Act, bit_of, fields};
use super::{Copies, Remote};
use crate::sys::mapping::ZeroedSlice;
use crate::sys::request::Pieces;
use std::cell::Cell;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::lent::SlotWord;

/// The slots of which a copy is out of date, or missing.
pub(super) struct Stale {
    first: ZeroedSlice<AtomicU64>,
    second: ZeroedSlice<AtomicU64>,
}

impl Stale {
    /// None yet, of so many groups.
    ///
    /// # Errors
    /// No address space.
    pub(super) fn new(groups: usize) -> io::Result<Self> {
        Ok(Self { first: ZeroedSlice::new(groups)?, second: ZeroedSlice::new(groups)? })
    }

    fn of(&self, copy: Copy) -> &[AtomicU64] {
        match copy {
            Copy::First => &self.first,
            Copy::Second => &self.second,
        }
    }

    /// Which slots of a word. Relaxed, as all here: who reads a slot has seen the page word that was published after it was written.
    fn bits(&self, word: SlotWord, copy: Copy) -> u64 {
        self.of(copy)[word.index].load(Ordering::Relaxed) & word.mask
    }

    /// Slots were written, but for those of the words that this copy missed.
    fn note(&self, words: &[SlotWord], copy: Copy, missed: u64) {
        for word in words {
            let bits = &self.of(copy)[word.index];
            if missed & bit_of(word) != 0 {
                bits.fetch_or(word.mask, Ordering::Relaxed);
            } else if bits.load(Ordering::Relaxed) & word.mask != 0 {
                bits.fetch_and(!word.mask, Ordering::Relaxed);
            }
        }
    }

    /// What is known of a group, for another that reads it, or has what was copied from it.
    pub(super) fn inherit(&self, from: &Self, group: usize) {
        for copy in [Copy::First, Copy::Second] {
            let bits = from.of(copy)[group].load(Ordering::Relaxed);
            self.of(copy)[group].store(bits, Ordering::Relaxed);
        }
    }
}

impl Remote {
    /// Does something with slots, in all copies; what is written or deleted, in one of them where the server of the other has
    /// not answered for a while.
    ///
    /// # Errors
    /// What went wrong first; copies that come after it are tried all the same.
    pub(super) fn act_on_all(&self, act: Act, words: &[SlotWord]) -> io::Result<()> {
        if self.config.copies == Copies::One {
            return self.act(act, Copy::First, words);
        }
        let (first, second) = (Cell::new(0), Cell::new(0));
        let one = self.act(act.noting(&first), Copy::First, words);
        one.and(self.act(act.noting(&second), Copy::Second, words))?;
        if first.get() & second.get() != 0 {
            return Err(io::Error::from_raw_os_error(libc::ETIMEDOUT));
        }
        if matches!(act, Act::Write { .. }) {
            self.stale.note(words, Copy::First, first.get());
            self.stale.note(words, Copy::Second, second.get());
        }
        Ok(())
    }

    /// Reads slots from the copy that is to be had, one of them first.
    pub(super) fn read(
        &self,
        preferred: Copy,
        (first, into): (u32, &Pieces),
        words: &[SlotWord],
    ) -> io::Result<()> {
        let act = Act::Read { first, into };
        if self.config.copies == Copies::One {
            return self.act(act, Copy::First, words);
        }
        let stale = |word: SlotWord, copy| self.stale.bits(word, copy);
        let is_any = |word: &SlotWord| stale(*word, Copy::First) | stale(*word, Copy::Second) != 0;
        if !words.iter().any(is_any) {
            return self.read_either(act, preferred, words);
        }
        for word in words {
            for bit in fields(word.mask) {
                let slot = [SlotWord { mask: 1 << bit, ..*word }];
                match (stale(slot[0], Copy::First), stale(slot[0], Copy::Second)) {
                    (0, 0) => self.read_either(act, preferred, &slot)?,
                    (0, _) => self.act(act, Copy::First, &slot)?,
                    (_, _) => self.act(act, Copy::Second, &slot)?,
                }
            }
        }
        Ok(())
    }

    fn read_either(&self, act: Act, preferred: Copy, words: &[SlotWord]) -> io::Result<()> {
        let (one, other) = match preferred {
            Copy::First => (Copy::First, Copy::Second),
            Copy::Second => (Copy::Second, Copy::First),
        };
        let is_gone = |error: &io::Error| error.raw_os_error() == Some(libc::ENODATA);
        let Err(here) = self.act(act, one, words) else { return Ok(()) };
        // Each has servers of its own: one that is dead may have the first copy of this and the second of that.
        if words.len() > 1 {
            return words.iter().try_for_each(|word| self.read_either(act, preferred, &[*word]));
        }
        // A server that says nothing for the moment may have it still, and what the first has is known to be wrong.
        if one == Copy::Second && !is_gone(&here) {
            return Err(here);
        }
        let Err(there) = self.act(act, other, words) else { return Ok(()) };
        Err(if is_gone(&there) { here } else { there })
    }
}
