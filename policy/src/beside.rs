//! Blocks beside a page that no stream expects: read while what comes with such a page is used soon.
//!
//! Pages that left together lie on slots beside each other. Whether blocks bring anything is known from samples: the
//! pages of a *watched* block stay unmapped, so that each use of them is seen. While enough of them are used, all other
//! blocks are mapped at once, which spares the faults of their uses, and nothing is seen of them.
//!
//! *Soon* is within the next faults. Where RAM holds a part of the data, that part of whatever is read at random is used
//! some time, and would speak for blocks that bring nothing.
//!
//! *What samples cost* is paid for: by faults, a page for each 128 of them, and by uses. So a program whose blocks bring
//! nothing reads less than a hundredth more pages for them, and one whose blocks do is watched at each 16th fault.

use crate::kernel::block_around;
use crate::readahead::{Fault, Limits, ReadWindow};

/// Within how many faults a use counts.
const SOON: u64 = 64;
/// Watched blocks that are remembered: of as many faults.
const BLOCKS: usize = SOON as usize;
/// Faults from one watched block to the next at least.
const WATCHED_EACH: u64 = 16;
/// Blocks pay if one page of so many is used: the others cost some 5 µs each, and a fault 80.
const PAGES_OF_A_USE: u32 = 16;
/// Pages whose uses are known before blocks may pay.
const PAGES_MIN: u32 = 32;
/// What is known counts for half once so many pages were read.
const PAGES_MAX: u32 = 128;

/// Credit is counted in these parts of a page: what a fault adds.
const PAGE: u32 = 128;
/// What a use adds.
const USE: u32 = 8 * PAGE;
/// Credit for a block, which is more than its pages cost mostly.
const BLOCK: u32 = 8 * PAGE;
/// The most that there can be, and what there is at the start.
const CREDIT: u32 = 40 * PAGE;

/// A watched block.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    count: u32,
    /// Pages read beside the one of the fault, and uses of them.
    pages: u32,
    uses: u32,
    /// The fault that read it, counted from 1; 0 is none.
    fault: u64,
}

/// The watched blocks of late, and what they say.
#[derive(Clone, Debug)]
pub struct Beside {
    blocks: [Block; BLOCKS],
    faults: u64,
    /// The fault of the last one.
    watched: u64,
    credit: u32,
    /// Of blocks that nothing more will be known of.
    pages: u32,
    uses: u32,
}

impl Default for Beside {
    fn default() -> Self {
        Self::new()
    }
}

impl Beside {
    /// As for a program that has not faulted yet.
    pub const fn new() -> Self {
        let blocks = [Block { first: 0, count: 0, pages: 0, uses: 0, fault: 0 }; BLOCKS];
        Self { blocks, faults: 0, watched: 0, credit: CREDIT, pages: 0, uses: 0 }
    }

    /// What to read for a fault that no stream expects: the page alone, or a `Block` around its slot.
    pub fn window(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow {
        self.faults += 1;
        self.credit = (self.credit + 1).min(CREDIT);
        self.judge_oldest();
        let most = 1 << limits.run_max.max(1).ilog2();
        let ReadWindow::Slots { first, count } =
            block_around(fault, most.min(1 << limits.page_cluster))
        else {
            return ReadWindow::One;
        };
        // Where the block is read in any case, it costs nothing to watch it.
        let pays = self.pays();
        let is_due = !self.is_known() || self.faults - self.watched >= WATCHED_EACH;
        if is_due && (pays || self.credit >= BLOCK) {
            self.watched = self.faults;
            let block = Block { first, count, pages: 0, uses: 0, fault: self.faults };
            self.blocks[self.faults as usize % BLOCKS] = block;
            return ReadWindow::Block { first, count, is_watched: true };
        }
        if pays { ReadWindow::Block { first, count, is_watched: false } } else { ReadWindow::One }
    }

    /// So many pages of the watched block around a slot are read beside the one on it.
    pub fn on_read(&mut self, slot: u32, pages: u32) {
        if let Some(block) = self.block_with(slot) {
            block.pages += pages;
            self.credit = self.credit.saturating_sub(pages * PAGE);
        }
    }

    /// The page of a slot, read ahead and not mapped, is used for the first time.
    pub fn on_use(&mut self, slot: u32) {
        if let Some(block) = self.block_with(slot) {
            block.uses += 1;
            self.credit = (self.credit + USE).min(CREDIT);
        }
    }

    /// The last watched block with a slot.
    fn block_with(&mut self, slot: u32) -> Option<&mut Block> {
        let has =
            |block: &&mut Block| block.fault > 0 && slot.wrapping_sub(block.first) < block.count;
        self.blocks.iter_mut().filter(has).max_by_key(|block| block.fault)
    }

    /// Nothing more will be known of the block that is as old as a use may be late.
    fn judge_oldest(&mut self) {
        let oldest = &mut self.blocks[self.faults as usize % BLOCKS];
        if core::mem::take(&mut oldest.fault) == 0 {
            return;
        }
        self.pages += oldest.pages;
        self.uses += oldest.uses;
        if self.pages >= PAGES_MAX {
            (self.pages, self.uses) = (self.pages / 2, self.uses / 2);
        }
    }

    fn is_known(&self) -> bool {
        self.pages >= PAGES_MIN
    }

    fn pays(&self) -> bool {
        self.is_known() && self.uses * PAGES_OF_A_USE >= self.pages
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::tests::{cluster, fault};

    /// How many faults had which answer.
    #[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
    struct Answers {
        alone: u32,
        watched: u32,
        mapped: u32,
    }

    /// Faults on slots far from each other, each of whose blocks has 7 other pages, of which the first `used(number of the
    /// fault)` are used `late` faults later.
    fn faults(
        beside: &mut Beside,
        numbers: core::ops::Range<u32>,
        late: u32,
        used: impl Fn(u32) -> u32,
    ) -> Answers {
        let mut answers = Answers::default();
        let slot = |number: u32| number * 5000;
        for number in numbers {
            match beside.window(&fault(slot(number), slot(number)), &cluster(3)) {
                ReadWindow::Block { first, count, is_watched } => {
                    assert_eq!((first, count), (slot(number), 8));
                    if is_watched {
                        beside.on_read(slot(number), 7);
                        answers.watched += 1;
                    } else {
                        answers.mapped += 1;
                    }
                }
                ReadWindow::One => answers.alone += 1,
                other => panic!("{other:?}"),
            }
            if let Some(before) = number.checked_sub(late) {
                (1..=used(before)).for_each(|page| beside.on_use(slot(before) + page));
            }
        }
        answers
    }

    #[test]
    fn blocks_whose_pages_are_used_are_mapped_and_some_are_watched() {
        let mut beside = Beside::new();
        let first = faults(&mut beside, 1..201, 0, |_| 7);
        assert!(first.mapped > 100, "{first:?}");
        let then = faults(&mut beside, 201..1801, 0, |_| 7);
        assert_eq!(then, Answers { alone: 0, watched: 100, mapped: 1500 });
    }

    #[test]
    fn blocks_whose_pages_are_not_used_cost_a_page_in_128_faults() {
        let mut beside = Beside::new();
        faults(&mut beside, 1..201, 0, |_| 0);
        let then = faults(&mut beside, 201..6601, 0, |_| 0);
        // 7 of each are read, and 50 pages are paid for.
        assert!((7..=8).contains(&then.watched) && then.mapped == 0, "{then:?}");
    }

    #[test]
    fn uses_that_come_late_do_not_count() {
        let soon = |late| faults(&mut Beside::new(), 1..2001, late, |_| 7).mapped;
        assert!(soon(SOON as u32 - 1) > 1500);
        assert_eq!(soon(SOON as u32), 0);
        assert_eq!(soon(99), 0);
    }

    #[test]
    fn one_page_in_sixteen_is_worth_it() {
        // Of 7 pages of each second or fifth block one is used.
        let mapped = |each| {
            faults(&mut Beside::new(), 1..9001, 0, |number| u32::from(number % each == 0)).mapped
        };
        assert!(mapped(1) > 8000, "{}", mapped(1));
        assert!(mapped(5) < 900, "{}", mapped(5));
    }

    #[test]
    fn a_program_that_changes_is_noticed() {
        let mut beside = Beside::new();
        faults(&mut beside, 1..2001, 0, |_| 0);
        let used = faults(&mut beside, 2001..4001, 0, |_| 5);
        assert!(used.mapped > 1000, "{used:?}");
        let unused = faults(&mut beside, 4001..6001, 0, |_| 0);
        assert!(unused.mapped < 1500 && unused.alone > 500, "{unused:?}");
    }

    #[test]
    fn blocks_are_no_larger_than_a_window_and_without_a_cluster_there_are_none() {
        let fault = fault(100, 100);
        let limits = |run_max, page_cluster| Limits { run_max, ..cluster(page_cluster) };
        for (limits, expected) in [
            (limits(64, 10), ReadWindow::Block { first: 64, count: 64, is_watched: true }),
            (limits(5, 3), ReadWindow::Block { first: 100, count: 4, is_watched: true }),
            (limits(1, 3), ReadWindow::One),
            (limits(64, 0), ReadWindow::One),
        ] {
            assert_eq!(Beside::new().window(&fault, &limits), expected);
        }
    }
}
