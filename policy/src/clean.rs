//! Which pages are mapped protected against writing after a fault that reads them, so that they can be copied and
//! dropped later.
//!
//! Protected pages that are only read leave in one call for hundreds; one that is written to costs a fault more. So
//! it is worth it where few are written: an area keeps a score, a fault that lifts the protection takes it down, a
//! page that was dropped takes it up. Where the score is low some pages are protected all the same, to notice that
//! the program does something else by now.

/// An area's score at the start, and at most.
const HIGHEST: u8 = 64;

/// Below this score an area's pages are not protected.
const ENOUGH: u8 = 32;

/// A fault by message takes 20 µs, taking a scattered page out by itself 17 and dropping it some (the machine of the
/// decisions): protecting pays as long as fewer than 4 of 9 pages are written to.
const WRITTEN: u8 = 5;

/// See [`WRITTEN`].
const DROPPED: u8 = 4;

/// Where it does not pay, one page of so many is protected.
const SAMPLED: u32 = 16;

/// How often protected pages of an area were written to of late; starts with the highest score.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Score(u8);

impl Score {
    /// From what [`Self::bits`] gave.
    pub fn from_bits(bits: u8) -> Self {
        Self(bits.min(HIGHEST))
    }

    /// Zero is the highest score: tables of scores start as zeros.
    pub fn bits(self) -> u8 {
        self.0
    }

    /// A protected page was written to.
    #[must_use]
    pub fn on_write(self) -> Self {
        Self((self.0 + WRITTEN).min(HIGHEST))
    }

    /// A protected page was dropped.
    #[must_use]
    pub fn on_drop(self) -> Self {
        Self(self.0.saturating_sub(DROPPED))
    }

    /// Whether a page that a fault reads is to be protected.
    pub fn protects(self, page: u32) -> bool {
        HIGHEST - self.0 >= ENOUGH || page.is_multiple_of(SAMPLED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The score after rounds in which `written` of `of` protected pages are written to.
    fn after(mut score: Score, written: u32, of: u32) -> Score {
        for page in 0..100 * of {
            score = if page % of < written { score.on_write() } else { score.on_drop() };
        }
        score
    }

    #[test]
    fn pages_that_are_only_read_are_protected_and_those_written_to_are_not() {
        for (written, protects) in [(0, true), (3, true), (5, false), (9, false)] {
            assert_eq!(after(Score::default(), written, 9).protects(1), protects, "{written} of 9");
        }
    }

    #[test]
    fn a_sample_is_always_protected_and_brings_the_others_back() {
        let written = after(Score::default(), 1, 1);
        assert!((0..64).filter(|page| written.protects(*page)).eq([0, 16, 32, 48]));
        let again = (0..).scan(written, |score, _| {
            *score = score.on_drop();
            Some(score.protects(1))
        });
        assert_eq!(again.take_while(|protects| !protects).count(), 7);
    }

    #[test]
    fn a_score_survives_its_encoding() {
        let score = Score::default().on_write().on_write();
        assert_eq!(
            (Score::from_bits(score.bits()), Score::from_bits(255)),
            (score, Score(HIGHEST))
        );
    }
}
