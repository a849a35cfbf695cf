//! Which slab an address lies in: a table over the arena, of which only the parts that heaps have reached take memory.
use crate::state::arena::Arena;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::slab::{Class, SLAB_BYTES_MIN};

/// Entries that come into being together: for 256 MiB of the arena.
const LEAF: usize = 4096;
/// Bits of an entry below the slab's number: the class, and above it the shard.
const CLASS_BITS: u32 = 8;
const SHARD_BITS: u32 = 8;

/// A slab of a heap.
#[derive(Clone, Copy)]
pub struct Owner {
    pub shard: usize,
    pub class: Class,
    /// Among the slabs of its shard and class.
    pub index: usize,
}

/// See the top of the file.
pub struct Owners {
    first: usize,
    leaves: Box<[OnceLock<Box<[AtomicU64]>>]>,
}

impl Owners {
    pub fn new(arena: &Arena) -> Self {
        let first = arena.address() / SLAB_BYTES_MIN;
        let entries = (arena.address() + arena.bytes()).div_ceil(SLAB_BYTES_MIN) - first;
        Self { first, leaves: (0..entries.div_ceil(LEAF)).map(|_| OnceLock::new()).collect() }
    }

    /// The slab in which an address lies; None where there is none, and outside the arena.
    pub fn of(&self, address: usize) -> Option<Owner> {
        let entry = (address / SLAB_BYTES_MIN).checked_sub(self.first)?;
        let leaf = self.leaves.get(entry / LEAF)?.get()?;
        // Relaxed: whoever holds the address of a block has it from the thread that set this.
        let entry = leaf[entry % LEAF].load(Ordering::Relaxed);
        let index = (entry >> (CLASS_BITS + SHARD_BITS)).checked_sub(1)?;
        let class = Class::from_index(entry as usize & ((1 << CLASS_BITS) - 1));
        let shard = (entry >> CLASS_BITS) as usize & ((1 << SHARD_BITS) - 1);
        Some(Owner { shard, class, index: index as usize })
    }

    /// Notes whose the memory at `address` is, for `bytes`; under the lock of its slabs.
    pub fn set(&self, address: usize, bytes: usize, owner: Option<Owner>) {
        let value = owner.map_or(0, |owner| {
            let number = (owner.index as u64 + 1) << SHARD_BITS | owner.shard as u64;
            number << CLASS_BITS | owner.class.index() as u64
        });
        let first = address / SLAB_BYTES_MIN - self.first;
        for entry in first..first + bytes / SLAB_BYTES_MIN {
            let leaf = self.leaves[entry / LEAF]
                .get_or_init(|| (0..LEAF).map(|_| AtomicU64::new(0)).collect());
            leaf[entry % LEAF].store(value, Ordering::Relaxed);
        }
    }
}
