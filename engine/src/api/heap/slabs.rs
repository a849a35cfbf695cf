//! The slabs of one shard and size class, by the addresses of their blocks.
use super::owners::Owner;
use crate::api::region::Region;
use userswap_policy::slab::Class;
use userswap_policy::slabs;

/// See the top of the file.
#[derive(Default)]
pub struct Slabs(slabs::Slabs<Region>);

impl Slabs {
    /// A block of the first slab with room: its address.
    pub fn take(&mut self) -> Option<usize> {
        let (region, taken) = self.0.take()?;
        Some(region.address() + taken.byte)
    }

    /// Adds a slab; returns its number.
    pub fn add(&mut self, class: Class, region: Region) -> usize {
        self.0.add(region, class.slab())
    }

    /// Whether a block of this slab that is in use begins at an address.
    pub fn is_used(&self, owner: Owner, address: usize) -> bool {
        self.byte_of(owner, address).is_some_and(|byte| self.0.is_used(owner.index, byte))
    }

    /// Takes a block back that is in use. Returns the slab's memory if it has become empty and another one has room.
    pub fn put(&mut self, owner: Owner, address: usize) -> Option<Region> {
        let byte = self.byte_of(owner, address).expect("the slab of a block in use exists");
        self.0.put(owner.index, byte)
    }

    fn byte_of(&self, owner: Owner, address: usize) -> Option<usize> {
        address.checked_sub(self.0.memory(owner.index)?.address())
    }
}
