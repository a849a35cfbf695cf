//! How hard to try to make pages small, where the quicker of two ways is nearly as good with some data.
//!
//! One page of many is packed both ways. The quicker way is taken while it makes those pages hardly larger.

/// One page of so many is packed both ways, and at first each of so many.
const SAMPLED_SHARE: u32 = 64;
const FIRST: u32 = 16;
/// Sizes count half once so many bytes have been seen: of some 16 to 64 pages.
const REMEMBERED_BYTES: u32 = 64 << 10;
/// The quicker way makes pages larger by so much at most: nine bytes instead of eight.
const LARGER: (u64, u64) = (9, 8);

/// A way to pack a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Effort {
    /// In half the time.
    Quick,
    /// Smaller.
    Thorough,
}

/// What pages have become either way, and which of both is taken.
#[derive(Clone, Debug)]
pub struct Choice {
    quick_bytes: u32,
    thorough_bytes: u32,
    /// Pages until the next is packed both ways.
    left: u32,
    /// Of the first pages, those that are.
    first: u32,
}

impl Default for Choice {
    fn default() -> Self {
        Self { quick_bytes: 0, thorough_bytes: 0, left: 0, first: FIRST }
    }
}

impl Choice {
    /// Asked once for each page: whether it is to be packed both ways.
    pub fn wants_both(&mut self) -> bool {
        if self.first > 0 {
            self.first -= 1;
            return true;
        }
        let is_due = self.left == 0;
        self.left = if is_due { SAMPLED_SHARE - 1 } else { self.left - 1 };
        is_due
    }

    /// So large became a page that was.
    pub fn compare(&mut self, quick_bytes: u32, thorough_bytes: u32) {
        self.quick_bytes += quick_bytes;
        self.thorough_bytes += thorough_bytes;
        if self.quick_bytes.max(self.thorough_bytes) >= REMEMBERED_BYTES {
            self.quick_bytes /= 2;
            self.thorough_bytes /= 2;
        }
    }

    /// How all others are packed.
    pub fn effort(&self) -> Effort {
        let [quick, thorough] = [self.quick_bytes, self.thorough_bytes].map(u64::from);
        match quick * LARGER.1 <= thorough * LARGER.0 {
            true => Effort::Quick,
            false => Effort::Thorough,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of pages of such sizes: how many were packed both ways, and how the last.
    fn pack(choice: &mut Choice, pages: u32, quick: u32, thorough: u32) -> (u32, Effort) {
        let mut both = 0;
        for _ in 0..pages {
            if choice.wants_both() {
                choice.compare(quick, thorough);
                both += 1;
            }
        }
        (both, choice.effort())
    }

    #[test]
    fn the_quicker_way_is_taken_while_it_is_nearly_as_good() {
        // Pages of docs/tiers.md by zstd at -1 and at 1: halves, code, noise; a heap, JSON.
        for (quick, thorough) in [(2048, 2048), (687, 638), (4096, 4096), (900, 800)] {
            let (both, effort) = pack(&mut Choice::default(), 10_000, quick, thorough);
            assert_eq!(effort, Effort::Quick, "{quick} and {thorough}");
            assert!((FIRST..FIRST + 10_000 / SAMPLED_SHARE + 2).contains(&both), "{both}");
        }
        for (quick, thorough) in [(754, 649), (2048, 1089), (910, 800)] {
            let (_, effort) = pack(&mut Choice::default(), 10_000, quick, thorough);
            assert_eq!(effort, Effort::Thorough, "{quick} and {thorough}");
        }
    }

    #[test]
    fn other_data_change_the_choice_within_some_thousand_pages() {
        let mut choice = Choice::default();
        assert_eq!(pack(&mut choice, 50_000, 2048, 2048).1, Effort::Quick);
        assert_eq!(pack(&mut choice, 4096, 2048, 1089).1, Effort::Thorough);
        assert_eq!(pack(&mut choice, 4096, 4096, 4096).1, Effort::Quick);
    }
}
