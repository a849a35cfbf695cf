//! Blocks beside a page that no stream expects: as large as those of late were used soon.
//!
//! Pages that left together lie on slots beside each other. The block is sized as the kernel's [`Scaling`] does, with
//! one difference: a use counts only if it comes within the next faults. Where RAM holds a part of the data, that part of
//! whatever is read at random is used some time, and would keep blocks growing that bring nothing.

use crate::kernel::{Cluster, Scaling};
use crate::readahead::{Fault, Limits, ReadWindow, Readahead as _};

/// Within how many faults a use counts.
const SOON: u64 = 64;
/// Blocks that are remembered: of as many faults.
const BLOCKS: usize = SOON as usize;

/// A block that was read.
#[derive(Clone, Copy, Debug)]
struct Block {
    first: u32,
    count: u32,
    /// The fault that read it, counted from 1; 0 is none.
    fault: u64,
}

/// The blocks of late.
#[derive(Clone, Debug)]
pub struct Beside {
    cluster: Cluster,
    blocks: [Block; BLOCKS],
    faults: u64,
}

impl Default for Beside {
    fn default() -> Self {
        Self::new()
    }
}

impl Beside {
    /// As for a program that has not faulted yet.
    pub const fn new() -> Self {
        let blocks = [Block { first: 0, count: 0, fault: 0 }; BLOCKS];
        Self { cluster: Cluster::new(), blocks, faults: 0 }
    }

    /// The block to read for a fault that no stream expects: slots around its own, or the page alone.
    pub fn window(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow {
        self.faults += 1;
        let window = Scaling(&mut self.cluster).on_fault(fault, limits);
        if let ReadWindow::Slots { first, count } = window {
            self.blocks[self.faults as usize % BLOCKS] = Block { first, count, fault: self.faults };
        }
        window
    }

    /// The page of a slot, read ahead, is used for the first time.
    pub fn on_use(&mut self, slot: u32) {
        let Self { blocks, faults, .. } = self;
        let is_soon = |block: &Block| block.fault > 0 && *faults - block.fault < SOON;
        let has = |block: &Block| slot.wrapping_sub(block.first) < block.count;
        if blocks.iter().any(|block| has(block) && is_soon(block)) {
            self.cluster.count_hit();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::tests::{cluster, fault};

    /// Slots read for faults on slots, each of which is followed by the uses that `used` says.
    fn read(slots: impl Iterator<Item = u32>, used: impl Fn(u32, &ReadWindow, &mut Beside)) -> u32 {
        let mut beside = Beside::new();
        let sizes = slots.map(|slot| {
            let window = beside.window(&fault(slot, slot), &cluster(3));
            used(slot, &window, &mut beside);
            match window {
                ReadWindow::Slots { count, .. } => count,
                _ => 1,
            }
        });
        sizes.sum()
    }

    #[test]
    fn blocks_whose_pages_are_used_at_once_stay_large() {
        let use_all = |slot, window: &ReadWindow, beside: &mut Beside| {
            if let ReadWindow::Slots { first, count } = *window {
                (first..first + count)
                    .filter(|other| *other != slot)
                    .for_each(|s| beside.on_use(s));
            }
        };
        assert_eq!(read((1..=100).map(|index| index * 5000), use_all), 800);
    }

    #[test]
    fn uses_that_come_late_do_not_count() {
        // Each page that was read is used after a hundred faults.
        let use_late = |slot: u32, _: &ReadWindow, beside: &mut Beside| {
            let before = slot.saturating_sub(100 * 5000);
            (before & !7..before | 7).for_each(|slot| beside.on_use(slot));
        };
        assert_eq!(read((1..=1000).map(|index| index * 5000), use_late), 8 + 4 + 2 + 997);
    }
}
