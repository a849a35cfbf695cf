//! Which sizes of windows have been worth it of late, over all streams.
//!
//! Scans of large arrays go on and on; those of an allocator's blocks, of a column's chunks or of an object's pages end
//! where each of them ends, and what was read beyond comes for nothing and pushes out what is used. Which of the two a
//! program does is known from the windows that it has had: one whose last page was passed has saved a fault, one whose
//! stream was forgotten has cost its pages. A stream that has come far will come as far again, whatever the others do.
use crate::readahead::Limits;

/// Pages read for nothing that cost as much as a fault: some 5 µs each, to bring in, to push out, and to read again what
/// they pushed out.
const FAULT_PAGES: i32 = 16;
/// Sizes that are told apart: 1, 2, 4, and so on; larger ones count as the last.
const SIZES: usize = 11;
/// How far a size's balance can get from zero, in windows of this size and in faults at least: what was before that is
/// forgotten.
const WINDOWS: i32 = 2;
const FAULTS: i32 = 4;
/// A stream that has come so many times as far as a window is long may have it.
const FARTHER: u32 = 2;

/// How large windows may be.
#[derive(Clone, Copy)]
pub struct Allowed<'w> {
    /// At most.
    pub limits: &'w Limits,
    /// Which sizes are worth it.
    pub worth: &'w Worth,
}

impl Allowed<'_> {
    /// The largest window ahead up to `wanted` pages for a stream that has come so far.
    pub fn ahead(self, wanted: u32, come: u32) -> u32 {
        self.worth.largest(wanted.min(self.limits.ahead_max), come)
    }
}

/// A balance for each size of windows, in pages.
#[derive(Clone, Debug)]
pub struct Worth([i32; SIZES]);

impl Worth {
    /// Every size may be tried a few times.
    pub const fn new() -> Self {
        let (mut balances, mut size) = ([0; SIZES], 0);
        while size < SIZES {
            balances[size] = most(size);
            size += 1;
        }
        Self(balances)
    }

    /// A window of this size was used to its end: without it there would have been one more fault.
    pub fn on_passed(&mut self, size: u32) {
        let (size, most) = balance(size);
        self.0[size] = (self.0[size] + FAULT_PAGES).min(most);
    }

    /// So many pages of a window of this size came for nothing. Half of it would have cost half of them.
    pub fn on_wasted(&mut self, size: u32, pages: u32) {
        let (size, most) = balance(size);
        let lost = i32::try_from(pages.div_ceil(2)).unwrap_or(i32::MAX);
        self.0[size] = self.0[size].saturating_sub(lost).max(-most);
    }

    #[cfg(test)]
    pub fn balance_of(&self, size: u32) -> i32 {
        self.0[balance(size).0]
    }

    /// The largest window up to `wanted` pages for a stream that has come so far.
    pub fn largest(&self, wanted: u32, come: u32) -> u32 {
        let is_worth =
            |size: &u32| *size <= 1 || self.0[balance(*size).0] >= 0 || come / FARTHER >= *size;
        let mut sizes = core::iter::successors(Some(wanted), |size| Some(size / 2));
        sizes.find(is_worth).expect("one page is worth it")
    }
}

/// The index of a size, and how far its balance can get from zero.
fn balance(size: u32) -> (usize, i32) {
    let index = (size.max(1).ilog2() as usize).min(SIZES - 1);
    (index, most(index))
}

/// How far the balance of a size with this index can get from zero.
const fn most(index: usize) -> i32 {
    let (windows, faults) = (WINDOWS << index, FAULTS * FAULT_PAGES);
    if windows > faults { windows } else { faults }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_that_bring_nothing_are_not_allowed_until_some_do() {
        let mut worth = Worth::new();
        assert_eq!(worth.largest(1024, 0), 1024);
        (0..6).for_each(|_| worth.on_wasted(64, 62));
        assert_eq!([64, 127, 128, 32].map(|size| worth.largest(size, 0)), [32, 63, 128, 32]);
        worth.on_wasted(128, 40_000);
        assert_eq!(worth.largest(1024, 0), 1024);
        assert_eq!(worth.largest(255, 0), 63);
        // As many as there can be were wasted: more change nothing.
        (0..99).for_each(|_| worth.on_wasted(64, 64));
        (0..7).for_each(|_| worth.on_passed(64));
        assert_eq!(worth.largest(64, 0), 32);
        worth.on_passed(64);
        assert_eq!(worth.largest(64, 0), 64);
    }

    #[test]
    fn a_stream_that_has_come_far_goes_on_as_far() {
        let mut worth = Worth::new();
        for size in 1..=2048 {
            worth.on_wasted(size, u32::MAX);
        }
        for (come, expected) in [(0, 1), (3, 1), (4, 2), (127, 32), (128, 64), (9999, 1024)] {
            assert_eq!(worth.largest(1024, come), expected, "{come}");
        }
        assert_eq!(worth.largest(0, 0), 0);
    }

    #[test]
    fn half_of_the_large_windows_must_be_used_and_few_of_the_small_ones() {
        let is_worth = |size: u32, used_of_16: u32| {
            let mut worth = Worth::new();
            for index in 0..1600 {
                match index * used_of_16 % 16 < used_of_16 {
                    true => worth.on_passed(size),
                    false => worth.on_wasted(size, size - 1),
                }
            }
            worth.largest(size, 0) == size
        };
        for (size, least) in [(2, 1), (8, 4), (32, 8), (64, 11), (512, 16)] {
            let found = (0..=16).find(|used| is_worth(size, *used));
            assert_eq!(found, Some(least), "{size}");
        }
    }
}
