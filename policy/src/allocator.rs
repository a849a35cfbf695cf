//! What every allocator of a device's slots can do, one slot at a time.
//!
//! [`Slots`] is ours; [`Rotational`](crate::kernel::scan::Rotational) and
//! [`SolidState`](crate::kernel::scan::SolidState) are the kernel's. Who chooses between them, or compares
//! them, needs no more than this.

use crate::slots::{ClusterCursor, SlotRun, Slots};

/// Gives out the slots of a device.
pub trait Allocator {
    /// Takes a free slot into use, for the CPU that owns the cursor; `None` if the device is full.
    fn allocate_one(&mut self, cursor: &mut ClusterCursor) -> Option<u32>;

    /// Gives a slot back.
    ///
    /// # Panics
    /// When it is not in use.
    fn free_one(&mut self, slot: u32);

    /// Takes a slot in use out of service for ever.
    ///
    /// # Panics
    /// When it is not in use.
    fn mark_bad(&mut self, slot: u32);

    /// Is the slot in use? False for the header, bad slots and slots that do not exist.
    fn is_used(&self, slot: u32) -> bool;

    /// Number of slots that hold or could hold a page.
    fn pages(&self) -> u32;

    /// Number of slots in use.
    fn used(&self) -> u32;

    /// Is every usable slot in use?
    fn is_full(&self) -> bool {
        self.used() == self.pages()
    }
}

impl Allocator for Slots {
    fn allocate_one(&mut self, cursor: &mut ClusterCursor) -> Option<u32> {
        self.allocate_at(cursor, 1).map(|run| run.first)
    }

    fn free_one(&mut self, slot: u32) {
        self.free(SlotRun { first: slot, count: 1 });
    }

    fn mark_bad(&mut self, slot: u32) {
        Slots::mark_bad(self, slot);
    }

    fn is_used(&self, slot: u32) -> bool {
        Slots::is_used(self, slot)
    }

    fn pages(&self) -> u32 {
        Slots::pages(self)
    }

    fn used(&self) -> u32 {
        Slots::used(self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::kernel::scan::{Rotational, SolidState};
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    const CPUS: usize = 3;

    /// An allocator and what it should know, slot by slot.
    struct Checked<A> {
        allocator: A,
        cursors: [ClusterCursor; CPUS],
        free: BTreeSet<u32>,
        used: BTreeSet<u32>,
    }

    impl<A: Allocator> Checked<A> {
        fn new(allocator: A, max: u32, bad: &[u32]) -> Self {
            let free = (1..max).filter(|slot| !bad.contains(slot)).collect();
            Self { allocator, cursors: Default::default(), free, used: BTreeSet::new() }
        }

        fn allocate(&mut self, cpu: usize) -> bool {
            let slot = self.allocator.allocate_one(&mut self.cursors[cpu]);
            match slot {
                Some(slot) => {
                    assert!(self.free.remove(&slot), "slot {slot} is not free");
                    self.used.insert(slot);
                }
                None => assert!(self.free.is_empty(), "{:?} are free", self.free),
            }
            slot.is_some()
        }

        fn apply(&mut self, operation: u32, number: usize) {
            let victim = self.used.iter().nth(number % self.used.len().max(1)).copied();
            match (operation, victim) {
                (0..=4, _) => (0..=number % 40).for_each(|_| _ = self.allocate(number % CPUS)),
                (5..=8, Some(first)) => {
                    let run = first..first.saturating_add(number as u32 % 300);
                    let freed: Vec<_> = self.used.range(run).copied().collect();
                    for slot in freed {
                        self.allocator.free_one(slot);
                        self.used.remove(&slot);
                        self.free.insert(slot);
                    }
                }
                (9, Some(slot)) => {
                    self.allocator.mark_bad(slot);
                    self.used.remove(&slot);
                }
                _ => {}
            }
        }

        fn check(&self, max: u32) {
            assert_eq!(self.allocator.used() as usize, self.used.len());
            assert_eq!(self.allocator.pages() as usize, self.used.len() + self.free.len());
            assert_eq!(self.allocator.is_full(), self.free.is_empty());
            for slot in 0..max + 2 {
                assert_eq!(self.allocator.is_used(slot), self.used.contains(&slot));
            }
        }

        fn run(mut self, max: u32, operations: &[(u32, usize)]) {
            for (operation, number) in operations {
                self.apply(*operation, *number);
                self.check(max);
            }
            let mut cpu = 0;
            while self.allocate(cpu) {
                cpu = (cpu + 1) % CPUS;
            }
            self.check(max);
        }
    }

    proptest! {
        #[test]
        fn allocators_give_out_every_free_slot_and_no_other(
            max in 2u32..1500,
            start in any::<u32>(),
            bad in prop::collection::btree_set(1u32..1500, 0..6),
            operations in prop::collection::vec((0u32..10, any::<usize>()), 1..60),
        ) {
            let bad: Vec<_> = bad.into_iter().filter(|slot| *slot < max).collect();
            Checked::new(Slots::new(max), max, &[]).run(max, &operations);
            Checked::new(Rotational::new(max, &bad), max, &bad).run(max, &operations);
            let solid_state = SolidState::new(max, 1 + start % (max - 1), &bad);
            Checked::new(solid_state, max, &bad).run(max, &operations);
        }
    }
}
