//! How many pages a larger budget would have read: a miss-ratio curve from what left and came back.
//!
//! A record does not have the uses of pages while they are mapped, so the usual stack distances cannot be had from it. What it
//! has is exact in another way: which pages were out, and in which order they had left. More RAM is looked at as a victim cache
//! behind the recorded run: it keeps the pages that left last, while reclaim goes on as recorded. A page that comes back is in
//! one of X pages if fewer than X others left after it and are still out. So the curve is what a larger budget reads that is
//! used no better than this, an upper bound for reclaim that is not worse than LRU; of smaller budgets it says nothing.
//!
//! Where more pages are out than [`TRACKED_MAX`], it looks at a share of them that is chosen by a hash (SHARDS, Waldspurger et
//! al. 2015), and scales.
use std::collections::{BTreeMap, HashMap};

/// Pages that are out and looked at, at most: 4 GiB of them before pages are left out.
pub const TRACKED_MAX: usize = 1 << 20;

/// Bits of a need that are kept: 0.4 % is more than the estimate is good for.
const NEED_BITS: u32 = 8;

/// The curve as it grows.
#[derive(Debug)]
pub struct Curve {
    out: OutStack,
    /// A page is looked at if this many of the lowest bits of its hash are zero.
    skipped_bits: u32,
    tracked_max: usize,
    /// Pages read by how much budget would have kept them.
    needs: BTreeMap<u64, u64>,
}

/// The engine's RAM at the time of an event.
#[derive(Clone, Copy, Default, Debug)]
pub struct Ram {
    /// Its budget, in pages.
    pub budget: u64,
    /// Pages that have left, but are in frames still.
    pub cached: u64,
}

impl Default for Curve {
    fn default() -> Self {
        Self::with_limit(TRACKED_MAX)
    }
}

impl Curve {
    /// With another limit than [`TRACKED_MAX`].
    pub fn with_limit(tracked_max: usize) -> Self {
        let (out, needs) = (OutStack::default(), BTreeMap::new());
        Self { out, skipped_bits: 0, tracked_max, needs }
    }

    /// A page has left.
    pub fn left(&mut self, page: u32) {
        if !self.is_tracked(page) {
            return;
        }
        self.out.push(page);
        if self.out.len() > self.tracked_max {
            self.skipped_bits += 1;
            let bits = self.skipped_bits;
            self.out.retain(|page| is_among(page, bits));
        }
    }

    /// A page has come back with its content.
    pub fn back(&mut self, page: u32, ram: Ram) {
        if !self.is_tracked(page) {
            return;
        }
        let Some(above) = self.out.take(page) else { return };
        let above = above << self.skipped_bits;
        // The cached ones are the last that left, and within the budget already.
        if let Some(extra) = (above + 1).checked_sub(ram.cached).filter(|extra| *extra > 0) {
            let need = ram.budget.min(u32::MAX.into()) + extra;
            *self.needs.entry(rounded(need)).or_default() += 1 << self.skipped_bits;
        }
    }

    /// So many pages have no content any more: those of a large mapping, most of which never had any.
    pub fn dropped(&mut self, first: u32, count: u32) {
        let end = u64::from(first) + u64::from(count);
        if count as usize > self.out.len() {
            self.out.retain(|page| page < first || u64::from(page) >= end);
            return;
        }
        (first..=first + (count - 1)).for_each(|page| {
            self.out.take(page);
        });
    }

    /// Pages read with a budget of so many pages, not below the recorded one.
    pub fn reads(&self, budget: u64) -> u64 {
        let beyond = (std::ops::Bound::Excluded(budget), std::ops::Bound::Unbounded);
        self.needs.range(beyond).map(|(_, reads)| reads).sum()
    }

    /// The smallest budget with which no more pages are read than these; None if that is the recorded one.
    pub fn budget_for(&self, reads: u64) -> Option<u64> {
        let mut kept = 0;
        let all: u64 = self.needs.values().sum();
        self.needs.iter().find_map(|(need, pages)| {
            if all - kept <= reads {
                return None;
            }
            kept += pages;
            (all - kept <= reads).then_some(*need)
        })
    }

    /// The share of pages that it looked at.
    pub fn share(&self) -> f64 {
        1.0 / (1u64 << self.skipped_bits) as f64
    }

    /// The largest budget that any page needs.
    pub fn largest(&self) -> u64 {
        self.needs.last_key_value().map_or(0, |(need, _)| *need)
    }

    fn is_tracked(&self, page: u32) -> bool {
        is_among(page, self.skipped_bits)
    }
}

fn is_among(page: u32, skipped_bits: u32) -> bool {
    // The finalizer of splitmix64: neighbours are not chosen together.
    let mixed = (u64::from(page) ^ 0x9e37_79b9_7f4a_7c15).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    ((mixed ^ mixed >> 31) >> 16).trailing_zeros() >= skipped_bits
}

/// Up to a number with few bits, so that the curve stays small.
fn rounded(need: u64) -> u64 {
    let step = 1 << (u64::BITS - need.leading_zeros()).saturating_sub(NEED_BITS);
    need.next_multiple_of(step)
}

/// Pages that are out, in the order in which they left.
#[derive(Debug, Default)]
struct OutStack {
    positions: HashMap<u32, u32>,
    /// A binary indexed tree over positions: how many pages are at or below each.
    tree: Vec<u32>,
    next: u32,
}

impl OutStack {
    fn len(&self) -> usize {
        self.positions.len()
    }

    fn push(&mut self, page: u32) {
        self.take(page);
        if self.next as usize >= self.tree.len() {
            self.pack();
        }
        self.positions.insert(page, self.next);
        self.add(self.next, 1);
        self.next += 1;
    }

    /// Takes a page out; says how many left after it and are still out.
    fn take(&mut self, page: u32) -> Option<u64> {
        let position = self.positions.remove(&page)?;
        self.add(position, -1);
        // Without itself now.
        Some(self.positions.len() as u64 - u64::from(self.at_or_below(position)))
    }

    fn retain(&mut self, keep: impl Fn(u32) -> bool) {
        self.positions.retain(|page, _| keep(*page));
        self.pack();
    }

    /// Numbers all pages anew, with room for as many again.
    fn pack(&mut self) {
        let mut pages: Vec<(u32, u32)> =
            self.positions.iter().map(|(page, position)| (*position, *page)).collect();
        pages.sort_unstable();
        self.next = pages.len() as u32;
        self.tree = vec![0; (2 * pages.len()).max(1024)];
        for (position, (_, page)) in (0..).zip(pages) {
            self.positions.insert(page, position);
            self.add(position, 1);
        }
    }

    fn add(&mut self, position: u32, change: i32) {
        let mut at = position as usize + 1;
        while at <= self.tree.len() {
            let count = &mut self.tree[at - 1];
            *count = count.wrapping_add_signed(change);
            at += at & at.wrapping_neg();
        }
    }

    fn at_or_below(&self, position: u32) -> u32 {
        let (mut at, mut count) = (position as usize + 1, 0);
        while at > 0 {
            count += self.tree[at - 1];
            at &= at - 1;
        }
        count
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A loop over pages in FIFO order with RAM for some of them: each use is a read, as LRU has it.
    fn a_loop(curve: &mut Curve, pages: u32, ram: Ram, rounds: u32) {
        let resident = ram.budget as u32;
        for use_ in 0..pages * rounds {
            let page = use_ % pages;
            if use_ >= pages {
                curve.back(page, ram);
            }
            // The oldest has made room for it.
            if use_ >= resident {
                curve.left((use_ - resident) % pages);
            }
        }
    }

    #[test]
    fn of_a_loop_all_is_read_until_all_of_it_fits() {
        let mut curve = Curve::default();
        let ram = Ram { budget: 30, cached: 0 };
        a_loop(&mut curve, 100, ram, 5);
        // Of the 70 that are out the one that comes back left first.
        assert_eq!([curve.reads(30), curve.reads(99), curve.reads(100)], [400, 400, 0]);
        assert_eq!((curve.budget_for(399), curve.budget_for(400)), (Some(100), None));
    }

    #[test]
    fn a_hot_set_beside_a_loop_needs_less_than_the_loop() {
        let mut curve = Curve::default();
        let ram = Ram { budget: 10, cached: 0 };
        let mut reads = [0, 0];
        for round in 0..50u32 {
            // Five hot pages, in turns with ten of a loop over 100, none of which stays.
            for page in (0..5).chain((0..10).map(|step| 100 + (round * 10 + step) % 100)) {
                if round >= 10 || page < 5 && round > 0 {
                    reads[usize::from(page >= 100)] += 1;
                }
                curve.back(page, ram);
                curve.left(page);
            }
        }
        // A hot page has 14 others after it, one of the loop all 104.
        assert_eq!((curve.reads(10), curve.reads(24)), (reads[0] + reads[1], reads[0] + reads[1]));
        assert_eq!((curve.reads(25), curve.reads(114), curve.reads(115)), (reads[1], reads[1], 0));
        assert_eq!((curve.largest(), curve.budget_for(reads[1])), (115, Some(25)));
    }

    #[test]
    fn what_is_on_its_second_chance_is_in_the_budget() {
        let mut curve = Curve::default();
        (0..10).for_each(|page| curve.left(page));
        let ram = Ram { budget: 100, cached: 4 };
        // Four came after each of these: it is in a frame, or the first that is not.
        curve.back(6, ram);
        assert_eq!(curve.reads(0), 0);
        curve.back(4, ram);
        assert_eq!((curve.reads(100), curve.reads(101)), (1, 0));
    }

    #[test]
    fn what_is_dropped_is_not_read_and_makes_room() {
        let mut curve = Curve::default();
        (0..10).for_each(|page| curve.left(page));
        curve.dropped(5, 5);
        curve.dropped(100, 50);
        assert_eq!(curve.out.len(), 5);
        let ram = Ram { budget: 0, cached: 0 };
        curve.back(9, ram);
        curve.back(0, ram);
        assert_eq!((curve.reads(4), curve.reads(5), curve.largest()), (1, 0, 5));
    }

    #[test]
    fn a_share_of_the_pages_gives_nearly_the_same_curve() {
        let (mut all, mut some) = (Curve::default(), Curve::with_limit(5_000));
        let ram = Ram { budget: 10_000, cached: 0 };
        [&mut all, &mut some].into_iter().for_each(|curve| a_loop(curve, 60_000, ram, 4));
        assert_eq!((all.share(), all.reads(10_000)), (1.0, 180_000));
        assert!(some.share() < 0.2 && some.out.len() <= 5_000);
        let near = |one: u64, other: u64| one.abs_diff(other) * 20 < other;
        assert!(near(some.reads(10_000), 180_000), "{}", some.reads(10_000));
        assert!(near(some.reads(50_000), 180_000) && some.reads(63_000) == 0);
    }

    #[test]
    fn a_need_is_rounded_by_less_than_a_hundredth() {
        for need in [1, 255, 256, 257, 1 << 20, (1 << 20) + 1, 123_456_789] {
            let round = rounded(need);
            assert!(round >= need && round - need <= need / 100, "{need}: {round}");
        }
    }
}
