//! Whether the program insists on the addresses it asks for.
//!
//! A hint is a wish, and most programs take what they get: V8 asks for random addresses, the JVM for low ones,
//! and both go on elsewhere, so their memory can be managed. Some do not (ZGC): they give back what is not
//! where they asked, and ask again, thousands of times, and then end. After so many refusals in a row that no
//! other program goes on asking, the kernel may serve hints outside the arena.
use crate::abi::raw::Span;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering};

/// Refusals in a row. For a heap with compressed references the JVM tries some thirty places, and takes one
/// without then; Go has 128 hints, and does without when they are used up; ZGC has 8192, and ends.
const REFUSALS: u32 = 1000;

/// What became of the hints so far. Threads that ask at the same time may disturb each other's count, which
/// then takes longer.
#[derive(Default)]
pub struct Insistence {
    /// The last mapping that is not where it was asked for; none has length zero.
    address: AtomicUsize,
    bytes: AtomicUsize,
    refusals: AtomicU32,
}

impl Insistence {
    /// A mapping was made elsewhere than asked for.
    pub fn made_elsewhere(&self, made: Span) {
        self.address.store(made.address, Ordering::Relaxed);
        if self.bytes.swap(made.bytes, Ordering::Relaxed) != 0 {
            // The one before is still in use: the program can live with that.
            self.refusals.store(0, Ordering::Relaxed);
        }
    }

    /// The program gives memory back.
    #[inline]
    pub fn given_back(&self, span: Span) {
        if span.address == self.address.load(Ordering::Relaxed)
            && self
                .bytes
                .compare_exchange(span.bytes, 0, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
            && span.bytes != 0
        {
            self.refusals.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Whether the program takes nothing but what it asks for.
    pub fn is_clear(&self) -> bool {
        self.refusals.load(Ordering::Relaxed) >= REFUSALS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE: Span = Span { address: 0x1000, bytes: 0x2000 };

    #[test]
    fn a_program_that_gives_everything_back_insists() {
        let insistence = Insistence::default();
        for _ in 0..REFUSALS {
            assert!(!insistence.is_clear());
            insistence.made_elsewhere(MADE);
            insistence.given_back(MADE);
            insistence.given_back(MADE);
        }
        assert!(insistence.is_clear());
    }

    #[test]
    fn a_program_that_keeps_one_does_not() {
        let insistence = Insistence::default();
        for turn in 0..3 * REFUSALS {
            insistence.made_elsewhere(MADE);
            insistence.given_back(Span { bytes: 0x1000, ..MADE });
            if turn % REFUSALS != 0 {
                insistence.given_back(MADE);
            }
        }
        assert!(!insistence.is_clear());
    }
}
