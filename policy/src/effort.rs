//! How hard to try to make pages small, where quicker ways are nearly as good with some data.
//!
//! One page of many is packed in each way. The quickest is taken that makes those pages hardly larger than any other does.

/// One page of so many is packed in each way, and at first each of so many.
const SAMPLED_SHARE: u32 = 64;
const FIRST: u32 = 16;
/// Sizes count half once so many bytes have been seen: of some 16 to 64 pages.
const REMEMBERED_BYTES: u32 = 64 << 10;
/// A quicker way makes pages larger by so much at most: nine bytes instead of eight.
const LARGER: (u64, u64) = (9, 8);

/// A way to pack a page, by what it takes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// 2 to 7 µs.
    Least,
    /// Twice that.
    Quick,
    /// Four times that.
    Thorough,
}

impl Effort {
    /// All of them, the quickest first.
    pub const ALL: [Self; 3] = [Self::Least, Self::Quick, Self::Thorough];
}

/// What pages have become in each way, and which of them is taken.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    bytes: [u32; Effort::ALL.len()],
    /// Pages that it was asked for.
    pages: u32,
}

impl Choice {
    /// Asked once for each page: whether it is to be packed in each way.
    pub fn wants_all(&mut self) -> bool {
        let page = self.pages;
        self.pages = page.wrapping_add(1);
        page < FIRST || (page - FIRST).is_multiple_of(SAMPLED_SHARE)
    }

    /// So large became a page that was, in the order of [`Effort::ALL`].
    pub fn compare(&mut self, bytes: [u32; Effort::ALL.len()]) {
        self.bytes.iter_mut().zip(bytes).for_each(|(sum, bytes)| *sum += bytes);
        if self.bytes.iter().any(|sum| *sum >= REMEMBERED_BYTES) {
            self.bytes.iter_mut().for_each(|sum| *sum /= 2);
        }
    }

    /// How all others are packed.
    pub fn effort(&self) -> Effort {
        let least = self.bytes.iter().copied().min().map_or(0, u64::from);
        let mut ways = Effort::ALL.into_iter().zip(self.bytes);
        let way = ways.find(|(_, bytes)| u64::from(*bytes) * LARGER.1 <= least * LARGER.0);
        way.map_or(Effort::Thorough, |(effort, _)| effort)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of pages of such sizes: how many were packed in each way, and how the last.
    fn pack(choice: &mut Choice, pages: u32, bytes: [u32; 3]) -> (u32, Effort) {
        let mut all = 0;
        for _ in 0..pages {
            if choice.wants_all() {
                choice.compare(bytes);
                all += 1;
            }
        }
        (all, choice.effort())
    }

    #[test]
    fn the_quickest_way_is_taken_that_is_nearly_as_good() {
        // Pages of docs/tiers.md by lz4 and by zstd at -1 and at 1: halves, quarters, noise; code; a heap, JSON, numbers.
        let cases = [
            ([2048, 2048, 2048], Effort::Least),
            ([1045, 1053, 1042], Effort::Least),
            ([4096, 4096, 4096], Effort::Least),
            ([900, 900, 800], Effort::Least),
            ([1132, 699, 645], Effort::Quick),
            ([800, 910, 800], Effort::Least),
            ([1339, 754, 649], Effort::Thorough),
            ([2327, 2048, 1089], Effort::Thorough),
            ([556, 543, 372], Effort::Thorough),
        ];
        for (bytes, expected) in cases {
            let (all, effort) = pack(&mut Choice::default(), 10_000, bytes);
            assert_eq!(effort, expected, "{bytes:?}");
            assert!((FIRST..FIRST + 10_000 / SAMPLED_SHARE + 2).contains(&all), "{all}");
        }
    }

    #[test]
    fn other_data_change_the_choice_within_some_thousand_pages() {
        let mut choice = Choice::default();
        assert_eq!(pack(&mut choice, 50_000, [2048; 3]).1, Effort::Least);
        assert_eq!(pack(&mut choice, 4096, [2327, 2048, 1089]).1, Effort::Thorough);
        assert_eq!(pack(&mut choice, 4096, [4096; 3]).1, Effort::Least);
    }
}
