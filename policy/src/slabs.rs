//! The slabs of one size: those with room, lowest first, so that the others can run empty.
use crate::slab::{Slab, Taken};
use alloc::collections::BTreeSet;
use alloc::vec::Vec;

/// Slabs, and the memory of each.
pub struct Slabs<M> {
    /// By number; None is a number to be given out again.
    entries: Vec<Option<(M, Slab)>>,
    vacant: BTreeSet<usize>,
    with_room: BTreeSet<usize>,
}

impl<M> Default for Slabs<M> {
    fn default() -> Self {
        Self { entries: Vec::new(), vacant: BTreeSet::new(), with_room: BTreeSet::new() }
    }
}

impl<M> Slabs<M> {
    /// A block of the first slab with room, and the slab's memory; None where all are full.
    pub fn take(&mut self) -> Option<(&M, Taken)> {
        let index = *self.with_room.first()?;
        let (memory, slab) = self.entries[index].as_mut().expect("a slab with room exists");
        let taken = slab.take().expect("a slab with room has a free block");
        if slab.is_full() {
            self.with_room.remove(&index);
        }
        Some((memory, taken))
    }

    /// Adds a slab with room; returns its number.
    pub fn add(&mut self, memory: M, slab: Slab) -> usize {
        let index = self.vacant.pop_first().unwrap_or(self.entries.len());
        self.entries.resize_with(self.entries.len().max(index + 1), || None);
        self.entries[index] = Some((memory, slab));
        self.with_room.insert(index);
        index
    }

    /// The memory of a slab; None if there is none of this number.
    pub fn memory(&self, index: usize) -> Option<&M> {
        self.entries.get(index)?.as_ref().map(|(memory, _)| memory)
    }

    /// Whether a block that is in use begins at this byte of a slab.
    pub fn is_used(&self, index: usize, byte: usize) -> bool {
        self.entries.get(index).and_then(Option::as_ref).is_some_and(|(_, slab)| slab.is_used(byte))
    }

    /// Takes a block back. Returns the slab's memory if it has become empty and another one has room.
    ///
    /// # Panics
    /// No block that is in use begins there.
    pub fn put(&mut self, index: usize, byte: usize) -> Option<M> {
        let (_, slab) = self.entries[index].as_mut().expect("the slab of a block in use exists");
        if slab.is_full() {
            self.with_room.insert(index);
        }
        slab.put(byte);
        if !slab.is_empty() || self.with_room.len() == 1 {
            return None;
        }
        self.with_room.remove(&index);
        self.vacant.insert(index);
        self.entries[index].take().map(|(memory, _)| memory)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::vec::Vec as Blocks;

    proptest! {
        #[test]
        fn every_block_is_given_out_once_and_the_first_slabs_are_filled_first(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..400),
        ) {
            let mut slabs = Slabs::default();
            let mut used: Blocks<(usize, usize)> = Blocks::new();
            let mut made = 0;
            for (takes, choice) in steps {
                if takes {
                    let taken = slabs.take().map(|(memory, taken)| (*memory, taken.byte));
                    let taken = taken.unwrap_or_else(|| {
                        let index = slabs.add(made, Slab::new(16, 64));
                        assert_eq!(slabs.memory(index), Some(&made));
                        made += 1;
                        let (memory, taken) = slabs.take().expect("a new slab has room");
                        (*memory, taken.byte)
                    });
                    prop_assert!(!used.contains(&taken), "{taken:?} of {used:?}");
                    used.push(taken);
                } else if !used.is_empty() {
                    let (memory, byte) = used.swap_remove(choice.index(used.len()));
                    let index = (0..made).find(|index| slabs.memory(*index) == Some(&memory));
                    let index = index.expect("the slab of a block in use exists");
                    prop_assert!(slabs.is_used(index, byte));
                    let emptied = slabs.put(index, byte);
                    prop_assert!(!slabs.is_used(index, byte));
                    let is_alone = used.iter().all(|(other, _)| *other != memory);
                    prop_assert!(emptied.is_none() || is_alone && emptied == Some(memory));
                }
            }
        }
    }
}
