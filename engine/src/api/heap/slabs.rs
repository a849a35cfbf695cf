//! The slabs of one shard and size class: those with room, lowest first, so that the others can run empty.
use super::owners::Owner;
use crate::api::region::Region;
use std::collections::BTreeSet;
use userswap_policy::slab::{Class, Slab};

/// See the top of the file.
#[derive(Default)]
pub struct Slabs {
    /// By number; None is a number to be given out again.
    entries: Vec<Option<Entry>>,
    vacant: BTreeSet<usize>,
    with_room: BTreeSet<usize>,
}

struct Entry {
    region: Region,
    slab: Slab,
}

impl Slabs {
    /// A block of the first slab with room: its address.
    pub fn take(&mut self) -> Option<usize> {
        let index = *self.with_room.first()?;
        let entry = self.entries[index].as_mut().expect("a slab with room exists");
        let byte = entry.slab.take().expect("a slab with room has a free block");
        if entry.slab.is_full() {
            self.with_room.remove(&index);
        }
        Some(entry.region.address() + byte)
    }

    /// Adds a slab; returns its number.
    pub fn add(&mut self, class: Class, region: Region) -> usize {
        let index = self.vacant.pop_first().unwrap_or(self.entries.len());
        self.entries.resize_with(self.entries.len().max(index + 1), || None);
        self.entries[index] = Some(Entry { region, slab: Slab::new(class) });
        self.with_room.insert(index);
        index
    }

    /// Whether a block of this slab that is in use begins at an address.
    pub fn is_used(&self, owner: Owner, address: usize) -> bool {
        self.entries.get(owner.index).and_then(Option::as_ref).is_some_and(|entry| {
            let byte = address.checked_sub(entry.region.address());
            byte.is_some_and(|byte| entry.slab.is_used(byte))
        })
    }

    /// Takes a block back that is in use. Returns the slab's memory if it has become empty and another one has room.
    pub fn put(&mut self, owner: Owner, address: usize) -> Option<Region> {
        let entry = self.entries[owner.index].as_mut().expect("the slab of a block in use exists");
        if entry.slab.is_full() {
            self.with_room.insert(owner.index);
        }
        entry.slab.put(address - entry.region.address());
        if !entry.slab.is_empty() || self.with_room.len() == 1 {
            return None;
        }
        self.with_room.remove(&owner.index);
        self.vacant.insert(owner.index);
        self.entries[owner.index].take().map(|entry| entry.region)
    }
}
