//! zstd at one level, or the quickest of three ways that makes pages hardly larger than the others do.
use crate::device::zram::options::Level;
use crate::sys::lz4::Lz4;
use crate::sys::zstd::Zstd;
use std::io;
use userswap_policy::effort::{Choice, Effort};

const THOROUGH: i32 = 1;
const QUICK: i32 = -1;

/// What one CPU packs with, and unpacks.
pub(super) enum Levels {
    Fixed(Zstd),
    Auto(Box<Ways>),
}

/// All ways, and which of them is used.
pub(super) struct Ways {
    thorough: Zstd,
    quick: Zstd,
    least: Lz4,
    choice: Choice,
}

/// By what a page was packed: levels of zstd are all unpacked in the same way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum By {
    Zstd,
    Lz4,
}

/// How long a page has become.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Shrunk {
    pub bytes: usize,
    pub by: By,
}

impl Shrunk {
    fn by_zstd(bytes: usize) -> Self {
        Self { bytes, by: By::Zstd }
    }
}

impl Levels {
    /// With all that they will need.
    ///
    /// # Errors
    /// No memory.
    pub(super) fn new(level: Level) -> io::Result<Self> {
        Ok(match level {
            Level::Fixed(level) => Self::Fixed(Zstd::new(level)?),
            Level::Auto => Self::Auto(Box::new(Ways {
                thorough: Zstd::new(THOROUGH)?,
                quick: Zstd::new(QUICK)?,
                least: Lz4::new()?,
                choice: Choice::default(),
            })),
        })
    }

    /// Packs a page; None where there is no room for what it has become.
    pub(super) fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<Shrunk> {
        match self {
            Self::Fixed(zstd) => zstd.pack(page, packed).map(Shrunk::by_zstd),
            Self::Auto(ways) => ways.pack(page, packed),
        }
    }

    /// Unpacks what zstd has packed, and returns how much it has filled; None where these bytes make no page.
    pub(super) fn unpack(&mut self, packed: &[u8], page: &mut [u8]) -> Option<usize> {
        match self {
            Self::Fixed(zstd) => zstd.unpack(packed, page),
            Self::Auto(ways) => ways.thorough.unpack(packed, page),
        }
    }
}

impl Ways {
    fn pack(&mut self, page: &[u8], packed: &mut [u8]) -> Option<Shrunk> {
        if !self.choice.wants_all() {
            return self.pack_by(self.choice.effort(), page, packed);
        }
        let mut last = None;
        let bytes = Effort::ALL.map(|effort| {
            last = self.pack_by(effort, page, packed);
            // What does not get smaller takes a page.
            last.map_or(page.len(), |shrunk: Shrunk| shrunk.bytes.min(page.len())) as u32
        });
        self.choice.compare(bytes);
        last
    }

    fn pack_by(&mut self, effort: Effort, page: &[u8], packed: &mut [u8]) -> Option<Shrunk> {
        match effort {
            Effort::Least => {
                self.least.pack(page, packed).map(|bytes| Shrunk { bytes, by: By::Lz4 })
            }
            Effort::Quick => self.quick.pack(page, packed).map(Shrunk::by_zstd),
            Effort::Thorough => self.thorough.pack(page, packed).map(Shrunk::by_zstd),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::{PAGE_BYTES, lz4};

    /// Bytes by a generator.
    fn noise(seed: u64) -> impl Iterator<Item = u8> {
        let mut state = seed | 1;
        std::iter::repeat_with(move || {
            state = state.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(1);
            (state >> 56) as u8
        })
    }

    /// Half of it noise, the other half zeros: as small in any way.
    fn half(seed: u64) -> Vec<u8> {
        let mut page: Vec<u8> = noise(seed).take(PAGE_BYTES / 2).collect();
        page.resize(PAGE_BYTES, 0);
        page
    }

    /// Digits, of which only entropy coding makes less: lz4 and the quick level have none for literals.
    fn digits(seed: u64) -> Vec<u8> {
        noise(seed).map(|byte| b'0' + byte % 10).take(PAGE_BYTES).collect()
    }

    #[test]
    fn the_quickest_way_is_taken_that_is_as_good_and_all_comes_back() {
        let mut levels = Levels::new(Level::Auto).unwrap();
        for is_half in [true, false, true] {
            let mut packed = [0; 2 * PAGE_BYTES];
            let mut as_expected = 0;
            for seed in 0..5_000 {
                let page = if is_half { half(seed) } else { digits(seed) };
                let Shrunk { bytes, by } = levels.pack(&page, &mut packed).unwrap();
                let is_expected = by == if is_half { By::Lz4 } else { By::Zstd };
                as_expected = if is_expected { as_expected + 1 } else { 0 };
                let mut back = vec![0; PAGE_BYTES];
                let filled = match by {
                    By::Lz4 => lz4::unpack(&packed[..bytes], &mut back),
                    By::Zstd => levels.unpack(&packed[..bytes], &mut back),
                };
                assert_eq!(filled, Some(PAGE_BYTES));
                assert!(back == page);
                assert!(is_half || seed < 4_000 || bytes < PAGE_BYTES * 9 / 16, "{bytes}");
            }
            // One of 64 is packed in each way, and kept as zstd has it.
            let kept = if is_half { 1 } else { 1000 };
            assert!(as_expected >= kept, "only the last {as_expected} are as expected");
        }
    }
}
