//! zstd at one level, or at the quicker of two where that makes pages hardly larger.
//!
//! Whatever a page was packed at, it is unpacked in the same way.
use crate::device::zram::options::Level;
use crate::sys::zstd::Zstd;
use std::io;
use userswap_policy::effort::{Choice, Effort};

const THOROUGH: i32 = 1;
const QUICK: i32 = -1;

/// What one CPU packs with, and unpacks.
pub(super) enum Levels {
    Fixed(Zstd),
    Auto(Pair),
}

/// Both levels, and which of them is used.
pub(super) struct Pair {
    thorough: Zstd,
    quick: Zstd,
    choice: Choice,
}

impl Levels {
    /// With all that they will need.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(level: Level) -> io::Result<Self> {
        Ok(match level {
            Level::Fixed(level) => Self::Fixed(Zstd::new(level)?),
            Level::Auto => Self::Auto(Pair {
                thorough: Zstd::new(THOROUGH)?,
                quick: Zstd::new(QUICK)?,
                choice: Choice::default(),
            }),
        })
    }

    /// Packs a page, and returns how long it has become; None where there is no room for that.
    pub(super) fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        match self {
            Self::Fixed(zstd) => zstd.pack(page, packed),
            Self::Auto(pair) => pair.pack(page, packed),
        }
    }

    /// Unpacks one, and returns how much it has filled; None where these bytes make no page.
    pub(super) fn unpack(&mut self, packed: &[u8], page: &mut [u8]) -> Option<usize> {
        match self {
            Self::Fixed(zstd) => zstd.unpack(packed, page),
            Self::Auto(pair) => pair.thorough.unpack(packed, page),
        }
    }
}

impl Pair {
    fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<usize> {
        if self.choice.wants_both() {
            // What does not get smaller takes a page.
            let bytes = |packed: Option<usize>| packed.unwrap_or(page.len()).min(page.len()) as u32;
            let quick = bytes(self.quick.pack(page, packed));
            let thorough = self.thorough.pack(page, packed);
            self.choice.compare(quick, bytes(thorough));
            return thorough;
        }
        match self.choice.effort() {
            Effort::Quick => self.quick.pack(page, packed),
            Effort::Thorough => self.thorough.pack(page, packed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::PAGE_BYTES;

    /// Bytes by a generator.
    fn noise(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed | 1;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        })
    }

    /// Half of it noise, the other half zeros: as small at any level.
    fn half(seed: u64) -> Vec<u8> {
        let mut page: Vec<u8> = noise(seed).take(PAGE_BYTES / 2).collect();
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Digits, of which only entropy coding makes less: the quick level has none for literals.
    fn digits(seed: u64) -> Vec<u8> {
        noise(seed).map(|byte| b'0' + byte % 10).take(PAGE_BYTES).collect()
    }

    #[test]
    fn the_quick_level_is_taken_where_it_is_as_good_and_all_comes_back() {
        let (mut levels, mut thorough) = (Levels::new(Level::Auto).unwrap(), Zstd::new(1).unwrap());
        let mut quick = Zstd::new(QUICK).unwrap();
        for is_quick in [true, false, true] {
            let (mut packed, mut other) = ([0; 2 * PAGE_BYTES], [0; 2 * PAGE_BYTES]);
            let mut as_expected = 0;
            for seed in 0..5_000 {
                let page = if is_quick { half(seed) } else { digits(seed) };
                let bytes = levels.pack(&page, &mut packed).unwrap();
                let zstd = if is_quick { &mut quick } else { &mut thorough };
                let expected = zstd.pack(&page, &mut other).unwrap();
                let is_same = packed[..bytes] == other[..expected];
                as_expected = if is_same { as_expected + 1 } else { 0 };
                let mut back = vec![0; PAGE_BYTES];
                assert_eq!(levels.unpack(&packed[..bytes], &mut back), Some(PAGE_BYTES));
                assert!(back == page);
            }
            // One of 64 is packed both ways, and kept as the thorough level has it.
            let kept = if is_quick { 32 } else { 1000 };
            assert!(as_expected >= kept, "only the last {as_expected} are of the level expected");
        }
    }
}
