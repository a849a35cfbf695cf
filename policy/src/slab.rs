//! Slabs of a heap: which size class serves a request, and which blocks of a slab are in use.
//!
//! Nothing is kept in the blocks themselves, so that giving one back does not touch it: what is swapped out stays there
//! until it is forgotten.
use crate::bits;
use core::alloc::Layout;

/// Bytes of the smallest block, and the alignment of all.
pub const BLOCK_BYTES_MIN: usize = 16;
/// Bytes of the largest block that shares a slab with others.
pub const BLOCK_BYTES_MAX: usize = 256 << 10;
/// Bytes of the smallest slab; every slab begins at a multiple of it.
pub const SLAB_BYTES_MIN: usize = 64 << 10;
/// Blocks of a slab at least: with fewer, slabs would hardly be worth sharing.
const BLOCKS_MIN: usize = 8;
/// Size classes in steps of 16 bytes, up to the first power of two that is cut into four.
const FINE_CLASSES: usize = 8;
/// Classes between two powers of two: a block is at most a quarter larger than what was asked for.
const STEPS: usize = 4;
const FINE_BYTES_MAX: usize = FINE_CLASSES * BLOCK_BYTES_MIN;
/// How many size classes there are.
pub const CLASSES: usize =
    FINE_CLASSES + STEPS * (BLOCK_BYTES_MAX.ilog2() - FINE_BYTES_MAX.ilog2()) as usize;

/// A size of blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Class(u8);

impl Class {
    /// The class with the smallest blocks that will do; None if a block of that kind shares its slab with no other.
    pub fn of(layout: Layout) -> Option<Self> {
        let bytes = layout.size().max(layout.align()).max(BLOCK_BYTES_MIN);
        if bytes > BLOCK_BYTES_MAX || layout.align() > SLAB_BYTES_MIN {
            return None;
        }
        let first = if bytes <= FINE_BYTES_MAX {
            bytes.div_ceil(BLOCK_BYTES_MIN) - 1
        } else {
            let below = (bytes - 1).ilog2();
            let step = (1 << below) / STEPS;
            let steps = (bytes - (1 << below)).div_ceil(step) - 1;
            FINE_CLASSES + (below - FINE_BYTES_MAX.ilog2()) as usize * STEPS + steps
        };
        let aligned = |class: &Self| class.block_bytes().is_multiple_of(layout.align());
        (first..CLASSES).map(|class| Self(class as u8)).find(aligned)
    }

    /// By its number, below [`CLASSES`].
    ///
    /// # Panics
    /// There are fewer.
    pub fn from_index(index: usize) -> Self {
        assert!(index < CLASSES, "there is a class {index}");
        Self(index as u8)
    }

    /// Its number, below [`CLASSES`], in the order of size.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }

    /// Bytes of a block.
    pub fn block_bytes(self) -> usize {
        let class = self.index();
        if class < FINE_CLASSES {
            return (class + 1) * BLOCK_BYTES_MIN;
        }
        let (power, step) = ((class - FINE_CLASSES) / STEPS, (class - FINE_CLASSES) % STEPS);
        (FINE_BYTES_MAX << power) / STEPS * (STEPS + 1 + step)
    }

    /// Bytes of a slab: a multiple of [`SLAB_BYTES_MIN`].
    pub fn slab_bytes(self) -> usize {
        (self.block_bytes() * BLOCKS_MIN).next_multiple_of(SLAB_BYTES_MIN)
    }

    /// A slab with all of its blocks free.
    pub fn slab(self) -> Slab {
        Slab::new(self.block_bytes(), self.slab_bytes())
    }
}

/// Which blocks of a slab are in use.
#[derive(Debug)]
pub struct Slab {
    block_bytes: usize,
    free: bits::Set,
    blocks: u32,
    used: u32,
    /// No block from here on was ever in use.
    fresh: u32,
}

/// A block that was free.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Taken {
    /// Its first byte, counted from the slab's.
    pub byte: usize,
    /// It was never in use.
    pub is_fresh: bool,
}

impl Slab {
    /// All blocks are free; there is at least one.
    pub fn new(block_bytes: usize, slab_bytes: usize) -> Self {
        let blocks = (slab_bytes / block_bytes) as u32;
        Self { block_bytes, free: bits::Set::full(blocks), blocks, used: 0, fresh: 0 }
    }

    /// Takes the first free block; None in a full slab.
    pub fn take(&mut self) -> Option<Taken> {
        let block = self.free.next_cyclic(0)?;
        self.free.remove(block);
        self.used += 1;
        let is_fresh = block >= self.fresh;
        self.fresh = self.fresh.max(block + 1);
        Some(Taken { byte: block as usize * self.block_bytes, is_fresh })
    }

    /// Whether a block that is in use begins at this byte.
    pub fn is_used(&self, byte: usize) -> bool {
        let block = byte / self.block_bytes;
        byte.is_multiple_of(self.block_bytes)
            && block < self.blocks as usize
            && !self.free.contains(block as u32)
    }

    /// Takes a block back.
    ///
    /// # Panics
    /// No block that is in use begins there.
    pub fn put(&mut self, byte: usize) {
        assert!(self.is_used(byte), "a block in use begins at {byte}");
        self.free.insert((byte / self.block_bytes) as u32);
        self.used -= 1;
    }

    /// Whether no block is in use.
    pub fn is_empty(&self) -> bool {
        self.used == 0
    }

    /// Whether no block is free.
    pub fn is_full(&self) -> bool {
        self.used == self.blocks
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    #[test]
    fn classes_grow_and_the_last_is_of_the_largest_block() {
        let sizes: Vec<_> =
            (0..CLASSES).map(|class| Class::from_index(class).block_bytes()).collect();
        assert!(sizes.is_sorted_by(|one, next| one < next), "{sizes:?}");
        assert_eq!(sizes[..10], [16, 32, 48, 64, 80, 96, 112, 128, 160, 192]);
        assert_eq!(sizes.last(), Some(&BLOCK_BYTES_MAX));
    }

    #[test]
    fn what_no_slab_can_hold_or_align_has_no_class() {
        let class = |bytes, align| Class::of(Layout::from_size_align(bytes, align).unwrap());
        assert_eq!(class(BLOCK_BYTES_MAX + 1, 1), None);
        assert_eq!(class(1, SLAB_BYTES_MIN * 2), None);
        assert_eq!(class(1, SLAB_BYTES_MIN).map(Class::block_bytes), Some(SLAB_BYTES_MIN));
        assert_eq!(class(0, 1).map(Class::block_bytes), Some(BLOCK_BYTES_MIN));
    }

    proptest! {
        #[test]
        fn a_class_is_the_smallest_that_holds_and_aligns(bytes in 0..=BLOCK_BYTES_MAX, power in 0u32..=16) {
            let layout = Layout::from_size_align(bytes, 1 << power).unwrap();
            let class = Class::of(layout).unwrap();
            let fits = |class: &Class| {
                class.block_bytes() >= bytes && class.block_bytes().is_multiple_of(1 << power)
            };
            let smallest = (0..CLASSES).map(Class::from_index).find(fits);
            prop_assert_eq!(Some(class), smallest);
            if power <= 4 && bytes > FINE_BYTES_MAX {
                prop_assert!(class.block_bytes() <= bytes + bytes / STEPS);
            }
        }

        #[test]
        fn blocks_in_use_are_those_of_a_naive_model(
            class in 0..CLASSES,
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 1..300),
        ) {
            let class = Class::from_index(class);
            let (mut slab, mut model) = (class.slab(), BTreeSet::new());
            let blocks = class.slab_bytes() / class.block_bytes();
            let mut ever = BTreeSet::new();
            for (takes, choice) in steps {
                if takes {
                    let free = (0..blocks).map(|block| block * class.block_bytes());
                    let first = free.clone().find(|byte| !model.contains(byte));
                    let taken = first.map(|byte| Taken { byte, is_fresh: ever.insert(byte) });
                    prop_assert_eq!(slab.take(), taken);
                    model.extend(first);
                } else if !model.is_empty() {
                    let byte = *choice.get(&model.iter().copied().collect::<Vec<_>>());
                    prop_assert!(!slab.is_used(byte + 8));
                    slab.put(byte);
                    model.remove(&byte);
                    prop_assert!(!slab.is_used(byte));
                }
                prop_assert_eq!(slab.is_empty(), model.is_empty());
                prop_assert_eq!(slab.is_full(), model.len() == blocks);
                prop_assert!(model.iter().all(|byte| slab.is_used(*byte)));
            }
        }
    }
}
