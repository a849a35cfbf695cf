//! An engine with the blocks of memory that arrays lie on, found by address.
//!
//! A block is a region. It stays in the table as long as its owner lives: a `Memory` that is the base of an array, or
//! numpy, which has it from `numpy.rs`. The engine lives as long as the last block, whoever has closed the pool.
use crate::view::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;
use userswap::internals::{PAGE_BYTES, PageRange};
use userswap::{Engine, Error, Region};

/// A region at its address.
pub struct Block {
    region: Region,
    /// Of its first byte.
    pub address: usize,
    /// Its length in bytes.
    pub bytes: usize,
}

/// An engine and its blocks.
pub struct Pool {
    /// The engine.
    pub engine: Engine,
    /// By address. Held by nobody who enters the engine's gate, so that fork may hold it first.
    pub blocks: Lock<BTreeMap<usize, Arc<Block>>>,
}

impl Pool {
    /// A pool without blocks.
    pub fn new(engine: Engine) -> Arc<Self> {
        Arc::new(Self { engine, blocks: Lock::new(BTreeMap::new()) })
    }

    /// Maps a block, all zero.
    ///
    /// # Errors
    /// No address space is left.
    pub fn map(&self, bytes: usize) -> Result<Arc<Block>, Error> {
        let mut region = self.engine.map(bytes)?;
        let address = region.as_mut_slice().as_mut_ptr().expose_provenance();
        let block = Arc::new(Block { region, address, bytes });
        self.blocks.lock().insert(address, block.clone());
        Ok(block)
    }

    /// Forgets the block at an address; its memory goes with the last use of it.
    pub fn unmap(&self, address: usize) -> Option<Arc<Block>> {
        // Out of the lock: dropping the block enters the gate.
        self.blocks.lock().remove(&address)
    }

    /// The block in which all bytes of an array lie.
    pub fn block_of(&self, layout: &Layout) -> Option<Arc<Block>> {
        let extent = layout.extent()?;
        let blocks = self.blocks.lock();
        let (_, block) = blocks.range(..=extent.start).next_back()?;
        (extent.end <= block.address + block.bytes).then(|| block.clone())
    }

    /// The block that begins at an address.
    pub fn block_at(&self, address: usize) -> Option<Arc<Block>> {
        self.blocks.lock().get(&address).cloned()
    }

    /// Makes bytes of a block zero: whole pages are dropped, parts of pages are written to.
    pub fn discard(&self, block: &Block, bytes: Range<usize>) {
        let whole = block.whole_pages(bytes.clone());
        if whole.is_empty() {
            return block.fill_zero(bytes);
        }
        block.fill_zero(bytes.start..whole.start);
        let core = self.engine.core();
        let count = (whole.end - whole.start).div_ceil(PAGE_BYTES) as u32;
        let _blocked = Blocked::new();
        core.drop_range(PageRange { first: core.arena.page_of(block.address + whole.start), count });
        drop(_blocked);
        block.fill_zero(whole.end..bytes.end);
    }
}

impl Block {
    /// The memory of the block, for what works on pages.
    pub fn region(&self) -> &Region {
        &self.region
    }

    /// The pages of which `bytes` cover every byte that is the block's, as bytes; empty at no particular place
    /// where there is none.
    pub fn whole_pages(&self, bytes: Range<usize>) -> Range<usize> {
        let start = bytes.start.next_multiple_of(PAGE_BYTES);
        let end = match bytes.end == self.bytes {
            // What follows in the last page is nobody's.
            true => bytes.end,
            false => bytes.end / PAGE_BYTES * PAGE_BYTES,
        };
        if start < end { start..end } else { 0..0 }
    }

    #[expect(unsafe_code, reason = "the bytes are Python's, which writes to them by arrays of its own")]
    fn fill_zero(&self, bytes: Range<usize>) {
        assert!(bytes.end <= self.bytes, "bytes {bytes:?} are of a block of {}", self.bytes);
        let to = std::ptr::with_exposed_provenance_mut::<u8>(self.address + bytes.start);
        // SAFETY: the bytes are the block's, which is mapped as long as it lives; that other threads of the program
        // may use them at the same time is what the program asks for, as with `array[...] = 0`.
        unsafe { std::ptr::write_bytes(to, 0, bytes.len()) };
    }
}
