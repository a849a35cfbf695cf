//! Whether scattered pages leave one by one, or by the block: all of a block that are there in a few calls.
//!
//! A block costs a few flushes of the other CPUs' TLBs, and a copy of each of its pages; what of it is still in use comes
//! back from its second chance. A page alone costs a flush. What either costs depends on the machine and on how many CPUs
//! the program keeps busy, so both are measured all the time.
use crate::named_choice;

/// Pages of a block: what one table of the kernel's maps.
pub const BLOCK_PAGES: u32 = 512;

/// Mapped pages at least that a block must have; with fewer its flushes are not shared by enough.
const MAPPED_MIN: u32 = 32;

/// Mapped pages that can be copied at a time: the pages of the largest pipe that everybody may have.
const MAPPED_MAX: u32 = 256;

/// One page of so many at least is to be of the node that wants room.
const OWN_SHARE: u32 = 4;

/// Of one page in so many at most it may be expected that it comes back from its second chance.
const BACK_SHARE: u32 = 8;

/// What may be taken at a time, from what shares its flushes best: a block, or where more of it is mapped than can be
/// copied, or a page of it is in transition, the half with the oldest page.
pub const EXTENTS: [u32; 2] = [BLOCK_PAGES, MAPPED_MAX];

/// Batches between two that go the way that costs more, to see whether it still does, for each time that it cost as much
/// as the other: however much that was, about a sixteenth is added.
const PROBED: u64 = 16;

/// What a page of a block costs in all, in what it costs to leave: what is in use is copied back, or read again.
const LATER: u64 = 2;

/// What a page costs that has to be read again at once, in nanoseconds of all processors: a fault that waits for a device.
const READ_NS: u64 = 30_000;

/// Pages that have left since a page that comes back soon, at most, and blocks that are remembered: they are as many pages at least.
pub const SOON_PAGES: u64 = 1 << 14;
const RECENT_BLOCKS: usize = 256;

/// Pages that leave while one has its second chance, at most: it has left for good after them.
const CHANCE_PAGES: u64 = 1 << 12;

/// Pages whose returns are remembered, and that say something.
const LEFT_KEPT: u64 = 1 << 14;
const LEFT_TELLING: u64 = 1 << 10;

/// Costs further apart than this count as no further: 256 batches are a quarter of a gigabyte at most.
const APART_MAX: u64 = 16;

/// Batches of each way whose costs are remembered.
const REMEMBERED: usize = 4;

/// Runs are long once so many of each four pages of a batch were neighbours that went along with a victim, by its call: such a
/// call costs about as much as copies of four pages, and a block takes what is in use along. Where runs are copied, too, a block
/// spares only calls: it waits for pages that lie apart.
const ALONG_OF_4: u32 = 3;
const ALONG_OF_4_COPIED: u32 = 1;

/// Batches that go page by page after a block was refused, doubled with each refusal in a row up to this power.
const REFUSED_MAX: u32 = 6;

/// Whether taking a block, or half of one, is worth it for a node of which so many pages are mapped, on nodes together and on
/// that one. What other nodes have in it leaves, too: a quarter at least is to be the node's own, as it is where the threads
/// of four nodes share memory. And of so many it is expected that they come back: where active pages do, it is the wrong block.
pub fn pays(mapped: u32, own: u32, back: u32) -> bool {
    (MAPPED_MIN..=MAPPED_MAX).contains(&mapped)
        && own >= MAPPED_MIN.max(mapped / OWN_SHARE)
        && back <= mapped / BACK_SHARE
}

named_choice! {
    /// Which way scattered pages leave.
    #[derive(Default)]
    pub enum ReclaimWay, "way out" {
        /// The one that costs less.
        #[default]
        Auto = "auto",
        /// Each run of pages by a call.
        Runs = "runs",
        /// By the block wherever there is one to be had.
        Blocks = "blocks",
    }
}

/// How runs leave.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Travel {
    /// By UFFDIO_MOVE.
    Moved,
    /// Protected, copied and dropped.
    Copied,
}

/// A way out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Way {
    /// Each run of pages by a call.
    Runs,
    /// A block at a time.
    Block,
}

/// Pages of which reads asked for one by one soon after they had left, by the way that they took: a table of the last blocks, by the
/// lowest bits of their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Returns {
    blocks: [Taken; RECENT_BLOCKS],
    soon: [u32; 2],
}

/// A block, and how many pages had left before it was taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Taken {
    block: u32,
    age: u64,
}

impl Default for Returns {
    fn default() -> Self {
        Self { blocks: [Taken { block: u32::MAX, age: 0 }; RECENT_BLOCKS], soon: [0; 2] }
    }
}

impl Returns {
    /// What is mapped from one page to another leaves at once, after so many.
    pub fn on_block(&mut self, first: u32, last: u32, age: u64) {
        for block in [first / BLOCK_PAGES, last / BLOCK_PAGES] {
            self.blocks[block as usize % RECENT_BLOCKS] = Taken { block, age };
        }
    }

    /// A page has come back that had left not long ago, after so many: with its block, if its second chance can have begun then.
    pub fn on_return(&mut self, page: u32, age: u64) {
        let block = page / BLOCK_PAGES;
        let taken = self.blocks[block as usize % RECENT_BLOCKS];
        let left = (taken.age..=taken.age + CHANCE_PAGES).contains(&age);
        self.soon[usize::from(taken.block == block && left)] += 1;
    }

    /// How many since this was last asked: of those that left by runs, and of those of blocks.
    pub fn take(&mut self) -> [u32; 2] {
        core::mem::take(&mut self.soon)
    }
}

/// Pages that left by a way of late, and of them those that reads asked for soon.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Left {
    pages: u64,
    soon: u64,
}

impl Left {
    fn add(&mut self, pages: u32, soon: u32) {
        self.pages += u64::from(pages);
        self.soon += u64::from(soon);
        if self.pages > LEFT_KEPT {
            self.pages /= 2;
            self.soon /= 2;
        }
    }

    /// What reading them again costs for each page that leaves, in nanoseconds; nothing as long as few have left.
    fn cost(&self) -> u64 {
        if self.pages < LEFT_TELLING { 0 } else { self.soon * READ_NS / self.pages }
    }
}

/// What a page cost in the last batches of one way, in nanoseconds.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
struct Recent {
    costs: [u64; REMEMBERED],
    batches: usize,
}

impl Recent {
    fn add(&mut self, cost: u64) {
        self.costs[self.batches % REMEMBERED] = cost;
        self.batches += 1;
    }

    /// The second lowest, of two the lower: one batch that took long, or next to nothing, says little. None before there are two.
    fn cost(&self) -> Option<u64> {
        let known = self.batches.min(REMEMBERED);
        let mut costs = self.costs;
        costs[..known].sort_unstable();
        match known {
            0 | 1 => None,
            2 => Some(costs[0]),
            _ => Some(costs[1]),
        }
    }
}

/// What the ways cost of late.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Ways {
    runs: Recent,
    block: Recent,
    /// What left by runs, and by blocks.
    left: [Left; 2],
    /// Batches since the way that costs more was gone.
    unprobed: u64,
    /// Batches that no block is looked for.
    rest: u32,
    /// Pages left in long runs of late.
    in_runs: bool,
    refused: u32,
}

impl Ways {
    /// The way that the next batch should go.
    pub fn next(&mut self, chosen: ReclaimWay) -> Way {
        match chosen {
            ReclaimWay::Auto => self.cheaper(),
            ReclaimWay::Runs => Way::Runs,
            ReclaimWay::Blocks => Way::Block,
        }
    }

    fn cheaper(&mut self) -> Way {
        if self.in_runs {
            return Way::Runs;
        }
        if self.rest > 0 {
            self.rest -= 1;
            return Way::Runs;
        }
        let (Some(runs), Some(block)) = (self.runs.cost(), self.block.cost()) else {
            return if self.runs.cost().is_none() { Way::Runs } else { Way::Block };
        };
        let [read_runs, read_block] = self.left.map(|left| left.cost());
        let later = block * (LATER - 1);
        // Runs are of the oldest pages. That more of these come back cannot be the fault of runs.
        let block = block + read_block.saturating_sub(read_runs);
        let (way, other) =
            if block + later <= runs { (Way::Block, Way::Runs) } else { (Way::Runs, Way::Block) };
        self.unprobed += 1;
        let apart = runs.max(block) / runs.min(block).max(1);
        if self.unprobed < PROBED * apart.clamp(1, APART_MAX) {
            return way;
        }
        self.unprobed = 0;
        other
    }

    /// Of the pages of a batch that went page by page, so many were neighbours of others, and left by the same call.
    /// Whether they were moved or copied is `travel`.
    pub fn on_runs(&mut self, pages: u32, along: u32, travel: Travel) {
        let of_4 = match travel {
            Travel::Moved => ALONG_OF_4,
            Travel::Copied => ALONG_OF_4_COPIED,
        };
        self.in_runs = pages > 0 && along * 4 >= pages * of_4;
    }

    /// A batch has gone a way: so many pages, and the processor time that it took.
    pub fn on_batch(&mut self, way: Way, pages: u32, ns: u64) {
        let Some(cost) = ns.checked_div(pages.into()) else { return };
        self.left[usize::from(way == Way::Block)].add(pages, 0);
        match way {
            Way::Runs => self.runs.add(cost),
            Way::Block => self.block.add(cost),
        }
    }

    /// So many pages have come back soon, that had left by runs and in blocks.
    pub fn on_returns(&mut self, [runs, block]: [u32; 2]) {
        self.left[0].add(0, runs);
        self.left[1].add(0, block);
    }

    /// All that left with a block was taken by devices.
    pub fn on_taken(&mut self) {
        self.refused = 0;
    }

    /// There was no block to be had, or no device for its pages.
    pub fn on_refused(&mut self) {
        self.rest = 1 << self.refused;
        self.refused = (self.refused + 1).min(REFUSED_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_pays_with_enough_pages_that_can_be_copied() {
        assert!(pays(32, 32, 0) && pays(256, 256, 0));
        assert!(!pays(31, 31, 0) && !pays(257, 257, 0));
    }

    #[test]
    fn a_block_pays_for_a_node_that_has_enough_of_it() {
        assert!(pays(256, 64, 0) && pays(64, 32, 0));
        assert!(!pays(256, 63, 0) && !pays(64, 31, 0));
    }

    #[test]
    fn a_block_stays_of_which_much_is_in_use() {
        assert!(pays(256, 256, 32) && !pays(256, 256, 33));
    }

    #[test]
    fn the_cheaper_way_is_gone_and_the_other_probed() {
        let mut ways = Ways::default();
        for _ in 0..2 {
            assert_eq!(ways.cheaper(), Way::Runs, "little is known yet");
            ways.on_batch(Way::Runs, 256, 256 * 15_000);
        }
        for cost in [90_000, 3_000] {
            assert_eq!(ways.cheaper(), Way::Block, "its cost is to be found out");
            ways.on_batch(Way::Block, 100, 100 * cost);
        }
        // 5 times as much.
        let count = |ways: &mut Ways, way| (0..800).filter(|_| ways.cheaper() == way).count();
        assert_eq!(count(&mut ways, Way::Runs), 10);
        // One that took long by chance changes nothing, nor does one that took no time.
        ways.on_batch(Way::Block, 100, 100 * 3_000);
        ways.on_batch(Way::Block, 100, 100 * 3_000);
        ways.on_batch(Way::Runs, 256, 256 * 1_000);
        ways.on_batch(Way::Runs, 256, 256 * 15_000);
        ways.on_batch(Way::Runs, 0, 7);
        assert_eq!(count(&mut ways, Way::Runs), 10);
        for _ in 0..4 {
            ways.on_batch(Way::Runs, 256, 256 * 2_900);
        }
        assert_eq!(count(&mut ways, Way::Block), 50, "nearly the same");
        for (runs, blocks) in [(5_900, 50), (6_000, 800 - 25)] {
            (0..4).for_each(|_| ways.on_batch(Way::Runs, 256, 256 * runs));
            assert_eq!(count(&mut ways, Way::Block), blocks, "{runs}");
        }
        for _ in 0..4 {
            ways.on_batch(Way::Runs, 256, 256 / 4);
        }
        // However much more.
        assert_eq!((0..256 * 4).filter(|_| ways.cheaper() == Way::Block).count(), 4);
    }

    #[test]
    fn blocks_are_left_alone_whose_pages_are_read_again_at_once() {
        let mut ways = Ways::default();
        for _ in 0..8 {
            ways.on_batch(Way::Runs, 256, 256 * 15_000);
            ways.on_batch(Way::Block, 256, 256 * 3_000);
        }
        let blocks = |ways: &mut Ways| (0..160).filter(|_| ways.cheaper() == Way::Block).count();
        assert!(blocks(&mut ways) > 140);
        ways.on_returns([0, 1024]);
        assert!(blocks(&mut ways) < 15, "half of what left, 30 µs each");
        ways.on_returns([1024, 0]);
        assert!(blocks(&mut ways) > 140, "the same of what left by runs");
        // Forgotten by and by.
        ways.on_returns([0, 2048]);
        assert!(blocks(&mut ways) < 15);
        (0..256).for_each(|_| ways.on_batch(Way::Block, 256, 256 * 3_000));
        assert!(blocks(&mut ways) > 140);
        let mut ways = Ways::default();
        ways.on_batch(Way::Block, LEFT_TELLING as u32 - 1, 1);
        ways.on_returns([0, 500]);
        assert_eq!(ways.left[1].cost(), 0, "too few to tell");
    }

    #[test]
    fn what_comes_back_is_told_apart_by_the_way_that_it_left() {
        let mut returns = Returns::default();
        returns.on_return(7, 0);
        returns.on_block(BLOCK_PAGES, 2 * BLOCK_PAGES - 1, 1000);
        for page in [BLOCK_PAGES - 1, BLOCK_PAGES, 2 * BLOCK_PAGES - 1, 2 * BLOCK_PAGES] {
            returns.on_return(page, 1000 + CHANCE_PAGES);
        }
        assert_eq!(returns.take(), [3, 2]);
        assert_eq!(returns.take(), [0, 0]);
        // It was there before, or again.
        returns.on_return(BLOCK_PAGES, 999);
        returns.on_return(BLOCK_PAGES, 1001 + CHANCE_PAGES);
        assert_eq!(returns.take(), [2, 0]);
        // Another one takes its place.
        let other = (1 + RECENT_BLOCKS as u32) * BLOCK_PAGES;
        returns.on_block(other, other, 1000);
        returns.on_return(BLOCK_PAGES, 1000);
        assert_eq!(returns.take(), [1, 0]);
        // Of two, where addresses and numbers are not aligned alike.
        returns.on_block(BLOCK_PAGES - 1, 2 * BLOCK_PAGES - 2, 0);
        returns.on_return(BLOCK_PAGES - 1, 0);
        returns.on_return(BLOCK_PAGES, 0);
        assert_eq!(returns.take(), [0, 2]);
    }

    #[test]
    fn no_block_is_taken_while_runs_are_long() {
        let mut ways = Ways::default();
        for _ in 0..2 {
            ways.on_batch(Way::Runs, 256, 256 * 15_000);
            ways.on_batch(Way::Block, 256, 256 * 3_000);
        }
        let taken = |ways: &mut Ways| (0..100).filter(|_| ways.cheaper() == Way::Block).count();
        for (along, are_taken) in [(0, true), (191, true), (192, false), (256, false), (191, true)]
        {
            ways.on_runs(256, along, Travel::Moved);
            assert_eq!(taken(&mut ways) > 90, are_taken, "{along}");
            assert!(are_taken || taken(&mut ways) == 0, "{along}");
        }
        for (along, are_taken) in [(63, true), (64, false), (0, true)] {
            ways.on_runs(256, along, Travel::Copied);
            assert_eq!(taken(&mut ways) > 90, are_taken, "{along}, copied");
        }
        ways.on_runs(256, 256, Travel::Moved);
        assert_eq!(ways.next(ReclaimWay::Blocks), Way::Block, "it is chosen");
        ways.on_runs(0, 0, Travel::Moved);
        assert_eq!(ways.cheaper(), Way::Block, "nothing was there to leave");
    }

    #[test]
    fn a_way_that_is_chosen_is_gone() {
        let mut ways = Ways::default();
        ways.on_refused();
        assert_eq!(ways.next(ReclaimWay::Blocks), Way::Block);
        assert_eq!(ways.next(ReclaimWay::Runs), Way::Runs);
        assert_eq!(ways.next(ReclaimWay::Auto), Way::Runs, "one was refused");
    }

    #[test]
    fn after_refusals_no_block_is_looked_for_ever_longer() {
        let mut ways = Ways::default();
        ways.on_batch(Way::Runs, 1, 9);
        ways.on_batch(Way::Runs, 1, 9);
        for times in 0..12 {
            let mut rest = 0;
            while ways.cheaper() == Way::Runs {
                rest += 1;
            }
            assert!(times == 0 || rest >= 1 << (times - 1).min(REFUSED_MAX), "{times}: {rest}");
            ways.on_refused();
        }
        ways.rest = 0;
        ways.on_batch(Way::Block, 1, 1);
        ways.on_refused();
        assert_eq!(ways.rest, 1 << REFUSED_MAX, "no device took it");
        ways.on_taken();
        ways.on_refused();
        assert_eq!(ways.rest, 1, "a block that has left ends the streak");
    }
}
