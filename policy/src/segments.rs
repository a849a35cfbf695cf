//! Segments: where the pages of a device are whose store takes large objects only, and never changes one.
//!
//! Slots are numbers then. What is written to them is appended to the segment that is being filled; a full one becomes an
//! object. A slot that is freed, or written anew, leaves a hole in the segment where its page was. Of a segment with few
//! pages left these are appended once more, and its object is deleted. A segment's number is never used again, so what
//! an object is called says what is in it.

/// Bits of a place that say which page of a segment: 16 MiB at most.
const INDEX_BITS: u32 = 12;
/// Bits that say in which row of the table the segment is.
const ROW_BITS: u32 = 20;

/// Pages of the largest segment.
pub const SEGMENT_PAGES_MAX: u32 = 1 << INDEX_BITS;

/// A segment keeps its object down to this part of its pages: to move them then costs a third of a write for each page
/// that the segment had room for, and what is stored is at most four times what is wanted.
const SPARSE_SHARE: u32 = 4;

/// Rows beyond those that so many slots can need: segments that are filled, written, emptied and deleted.
const ROWS_MORE: u32 = 16;

/// Rows that are left for what is moved: it is by moving that others become free.
pub const ROWS_KEPT: usize = 4;

/// A segment: a row of the table, and its number, by which it differs from those that had the row before.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Segment {
    /// The row.
    pub row: u32,
    /// The number; the first is 1.
    pub number: u32,
}

/// Where a page is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// In which segment.
    pub segment: Segment,
    /// Which of its pages.
    pub index: u32,
}

impl Place {
    /// In one word, which is never 0.
    pub fn word(self) -> u64 {
        let Segment { row, number } = self.segment;
        debug_assert!(row < 1 << ROW_BITS && self.index < 1 << INDEX_BITS && number > 0);
        u64::from(number) << (ROW_BITS + INDEX_BITS)
            | u64::from(row) << INDEX_BITS
            | u64::from(self.index)
    }

    /// The place of a word; None of 0.
    pub fn of(word: u64) -> Option<Self> {
        let number = (word >> (ROW_BITS + INDEX_BITS)) as u32;
        let row = (word >> INDEX_BITS) as u32 & ((1 << ROW_BITS) - 1);
        let index = word as u32 & ((1 << INDEX_BITS) - 1);
        (number > 0).then_some(Self { segment: Segment { row, number }, index })
    }

    /// Where a page is that follows this one in its segment.
    #[must_use]
    pub fn after(self, pages: u32) -> Self {
        Self { index: self.index + pages, ..self }
    }
}

/// What is to become of a segment's object.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Worth {
    /// It stays.
    Kept,
    /// Its pages are to be moved.
    Sparse,
    /// Nobody needs it.
    Empty,
}

impl Worth {
    /// That of an object with so many pages left, of so many.
    pub fn of(live: u32, pages: u32) -> Self {
        match live {
            0 => Self::Empty,
            _ if live <= pages / SPARSE_SHARE => Self::Sparse,
            _ => Self::Kept,
        }
    }
}

/// Rows for a device of so many slots, in segments of so many pages; None where these are too small for it.
pub fn rows(slots: u32, pages: u32) -> Option<u32> {
    let rows = slots.div_ceil(pages).checked_mul(SPARSE_SHARE)?.checked_add(ROWS_MORE)?;
    (rows <= 1 << ROW_BITS).then_some(rows)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn a_place_is_read_from_its_word(
            row in 0u32..1 << ROW_BITS, number in 1u32.., index in 0..SEGMENT_PAGES_MAX
        ) {
            let place = Place { segment: Segment { row, number }, index };
            prop_assert!(place.word() != 0);
            prop_assert_eq!(Place::of(place.word()), Some(place));
        }
    }

    #[test]
    fn no_word_is_no_place() {
        assert_eq!(Place::of(0), None);
    }

    #[test]
    fn when_all_slots_are_in_segments_that_are_kept_there_are_rows_left() {
        for (slots, pages) in [(2, 1024), (1 << 20, 1024), (1 << 27, 1024), (1 << 27, 4096)] {
            let most_kept = slots / (pages / SPARSE_SHARE + 1);
            assert_eq!(Worth::of(pages / SPARSE_SHARE + 1, pages), Worth::Kept);
            assert!(rows(slots, pages).unwrap() >= most_kept + ROWS_MORE, "{slots} {pages}");
        }
        assert_eq!(rows(u32::MAX, 1024), None);
    }

    #[test]
    fn few_pages_are_moved_and_none_are_dropped() {
        assert_eq!(
            [0, 1, 256, 257, 1024].map(|live| Worth::of(live, 1024)),
            [Worth::Empty, Worth::Sparse, Worth::Sparse, Worth::Kept, Worth::Kept]
        );
    }
}
