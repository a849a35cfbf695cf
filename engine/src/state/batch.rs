//! Swapped pages that one request reads: in the order of their slots, which follow each other but for
//! small gaps.
//!
//! A gap is read as well, into memory that is never looked at: up to three slots more cost less than a second
//! request (4 KiB requests in parallel reach a quarter of the bandwidth of large ones).
use crate::base::index::{PageIndex, Slot};
use crate::base::limits::{GAP_MAX, RUN_MAX};
use userswap_policy::banks::bank_of;

/// Gaps in one request: each is a piece of it, and so is what lies between, and what frames do not join. A slot that several
/// entries share has one frame of theirs, and so parts two pieces: it counts as half a gap.
const GAPS_MAX: u32 = 23;

/// A page and the slot that holds its content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SwapEntry {
    pub page: PageIndex,
    pub slot: Slot,
    /// The slot that is read for it: the same, or, of a page that is packed, the one below, which may hold others too.
    pub at: Slot,
}

/// Whether slots between wanted ones are read over.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Gaps {
    /// A request is of consecutive slots.
    None,
    /// Small ones, see [`GAP_MAX`].
    Small,
}

/// Up to [`RUN_MAX`] entries in the order of slots.
#[derive(Clone, Copy, Debug)]
pub struct Batch {
    entries: [SwapEntry; RUN_MAX as usize],
    count: u32,
}

impl Batch {
    /// Takes all entries out.
    pub fn clear(&mut self) {
        self.count = 0;
    }

    pub fn new() -> Self {
        let none = Slot(std::num::NonZeroU32::MIN);
        let none = SwapEntry { page: 0, slot: none, at: none };
        Self { entries: [none; RUN_MAX as usize], count: 0 }
    }

    /// The entries, in the order of their slots once they were sorted.
    pub fn entries(&self) -> &[SwapEntry] {
        &self.entries[..self.count as usize]
    }

    /// Number of entries, at most [`RUN_MAX`].
    pub fn len(&self) -> u32 {
        self.count
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.count == RUN_MAX
    }

    /// One entry more, at the end.
    ///
    /// # Panics
    /// When the batch is full.
    pub fn push(&mut self, entry: SwapEntry) {
        self.entries[self.count as usize] = entry;
        self.count += 1;
    }

    /// Puts the entries in the order of the slots that are read.
    pub fn sort(&mut self) {
        self.entries[..self.count as usize].sort_unstable_by_key(|entry| (entry.at, entry.slot));
    }

    /// Another slot is read for an entry.
    pub fn set_at(&mut self, index: u32, at: Slot) {
        self.entries[index as usize].at = at;
    }

    /// Leaves only `count` entries from index `first` on.
    pub fn keep(&mut self, first: u32, count: u32) {
        assert!(first + count <= self.count, "a part of a batch lies within it");
        self.entries.copy_within(first as usize..(first + count) as usize, 0);
        self.count = count;
    }

    /// The first `most` entries, at most, that one request can read.
    pub fn stretch(&self, gaps: Gaps, most: u32) -> u32 {
        self.stretch_from(0, gaps, most)
    }

    fn stretch_from(&self, first: u32, gaps: Gaps, most: u32) -> u32 {
        let entries = &self.entries()[first as usize..];
        let (mut room, mut is_shared) = (2 * GAPS_MAX, false);
        let follows = |pair: &&[SwapEntry]| {
            joins(pair, gaps) && {
                let cost = match pair[1].at.0.get() - pair[0].at.0.get() {
                    0 => u32::from(!is_shared),
                    1 => 0,
                    _ => 2,
                };
                is_shared = pair[1].at == pair[0].at;
                let left = room.checked_sub(cost);
                room = left.unwrap_or(0);
                left.is_some()
            }
        };
        let pairs = entries.windows(2).take(most.max(1) as usize - 1);
        (1 + pairs.take_while(follows).count() as u32).min(entries.len() as u32)
    }

    /// Leaves only what one request can read together with `page`: what lies after it first, then what
    /// lies before; at most `most` entries.
    ///
    /// # Panics
    /// When the page is not in the batch.
    pub fn keep_around(&mut self, page: PageIndex, gaps: Gaps, most: u32) {
        let index = self.index_of(page).expect("the page that faulted belongs to its window");
        let mut count = self.stretch_from(index, gaps, most);
        let mut first = index;
        while first > 0 && count < most && self.stretch_from(first - 1, gaps, count + 1) > count {
            (first, count) = (first - 1, count + 1);
        }
        self.keep(first, count);
    }

    /// The index of a page's entry.
    pub fn index_of(&self, page: PageIndex) -> Option<u32> {
        self.entries().iter().position(|entry| entry.page == page).map(|index| index as u32)
    }
}

/// Whether one request can read the first two entries.
fn joins(entries: &[SwapEntry], gaps: Gaps) -> bool {
    let (one, next) = (entries[0].at.0.get(), entries[1].at.0.get());
    let widest = match gaps {
        Gaps::None => 0,
        Gaps::Small => GAP_MAX,
    };
    // Where a bank ends the next device may begin, with its header: nothing is read over it.
    next - one <= widest + 1 && bank_of(one) == bank_of(next)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::frame_set::RUNS_MAX;
    use crate::sys::request::PIECES_MAX;
    use proptest::prelude::*;
    use userswap_policy::banks::BANK_SLOTS;

    /// Page n on the n-th of these slots.
    fn batch(slots: &[u32]) -> Batch {
        let mut batch = Batch::new();
        for (page, slot) in slots.iter().enumerate() {
            let slot = Slot(std::num::NonZeroU32::new(*slot).unwrap());
            batch.push(SwapEntry { page: page as u32, slot, at: slot });
        }
        batch.sort();
        batch
    }

    fn slots(batch: &Batch) -> Vec<u32> {
        batch.entries().iter().map(|entry| entry.slot.0.get()).collect()
    }

    #[test]
    fn a_request_ends_at_a_gap_that_is_too_wide_and_at_a_devices_end() {
        let first_of_next = BANK_SLOTS + 1;
        for (numbers, gaps, expected) in [
            (&[5, 6, 7, 9][..], Gaps::None, 3),
            (&[5, 6, 7, 9], Gaps::Small, 4),
            (&[5, 9, 13, 18], Gaps::Small, 3),
            (&[BANK_SLOTS - 1, first_of_next], Gaps::Small, 1),
            (&[], Gaps::Small, 0),
        ] {
            assert_eq!(batch(numbers).stretch(gaps, 64), expected, "{numbers:?}");
        }
        assert_eq!(batch(&[1, 2, 3, 4]).stretch(Gaps::None, 2), 2);
    }

    #[test]
    fn a_request_has_no_more_gaps_than_pieces_for_them() {
        let strided: Vec<u32> = (0..64).map(|index| 1 + index * 3).collect();
        assert_eq!(batch(&strided).stretch(Gaps::Small, 64), GAPS_MAX + 1);
    }

    #[test]
    fn a_request_has_no_more_shared_slots_than_pieces_for_them() {
        // Two pages on each third slot: three halves for each but the first, which has no gap before it.
        let pairs: Vec<u32> = (0..64).map(|index| 1 + index / 2 * 3).collect();
        assert_eq!(batch(&pairs).stretch(Gaps::Small, 64), 2 * (1 + (2 * GAPS_MAX - 1) / 3));
        // All pages of a few slots.
        let many: Vec<u32> = (0..64).map(|index| 1 + index / 16).collect();
        assert_eq!(batch(&many).stretch(Gaps::None, 64), 64);
    }

    /// Pieces of a request for these, with frames that do not follow each other at these entries.
    fn pieces_of(batch: &Batch, cuts: &[usize]) -> usize {
        let (mut pieces, mut next, mut last) = (0, 0, None);
        for (index, slot) in slots(batch).into_iter().enumerate() {
            if slot < next {
                continue;
            }
            let is_gap = next != 0 && slot > next;
            let follows = slot == next && last == index.checked_sub(1) && !cuts.contains(&index);
            pieces += usize::from(is_gap) + usize::from(!follows);
            (next, last) = (slot + 1, Some(index));
        }
        pieces
    }

    #[test]
    fn gaps_and_shared_slots_together_have_pieces() {
        let steps = std::iter::repeat_n(2, 23).chain([1, 0].into_iter().cycle().take(40));
        let mut slot = 1;
        let all: Vec<u32> = steps.map(|step| (slot, slot += step).0).collect();
        let mut batch = batch(&all);
        assert_eq!(pieces_of(&batch, &[]), PIECES_MAX + 2);
        batch.keep(0, batch.stretch(Gaps::Small, RUN_MAX));
        assert!(pieces_of(&batch, &[1; RUNS_MAX - 1]) <= PIECES_MAX && batch.len() > 24);
    }

    #[test]
    fn what_lies_after_the_page_goes_before_what_lies_before_it() {
        let mut around = batch(&[10, 11, 12, 13, 14, 20]);
        around.keep_around(2, Gaps::None, 64);
        assert_eq!(slots(&around), [10, 11, 12, 13, 14]);
        around.keep_around(2, Gaps::None, 4);
        assert_eq!(slots(&around), [11, 12, 13, 14]);
        around.keep_around(4, Gaps::None, 1);
        assert_eq!(slots(&around), [14]);
    }

    proptest! {
        #[test]
        fn a_part_around_a_page_is_one_request_with_the_page_in_it(
            steps in prop::collection::vec(0u32..7, 1..64), index in 0usize..64, most in 1u32..70,
            small: bool,
        ) {
            let gaps = if small { Gaps::Small } else { Gaps::None };
            let mut slot = 1;
            let all: Vec<u32> = steps.iter().map(|step| { slot += step; slot }).collect();
            let page = (index % all.len()) as u32;
            let mut around = batch(&all);
            around.keep_around(page, gaps, most);
            prop_assert!(around.index_of(page).is_some());
            prop_assert!((1..=most).contains(&around.len()));
            prop_assert_eq!(around.stretch(gaps, most), around.len());
        }

        #[test]
        fn whatever_the_slots_and_the_frames_a_request_has_pieces_for_them(
            steps in prop::collection::vec(prop::sample::select(vec![0u32, 0, 1, 2, 4]), 1..64),
            cuts in prop::collection::vec(0usize..64, RUNS_MAX - 1),
        ) {
            let mut slot = 1;
            let all: Vec<u32> = steps.iter().map(|step| { slot += step; slot }).collect();
            let mut batch = batch(&all);
            batch.keep(0, batch.stretch(Gaps::Small, RUN_MAX));
            let pieces = pieces_of(&batch, &cuts);
            prop_assert!(pieces <= PIECES_MAX, "{pieces} pieces");
        }
    }
}
