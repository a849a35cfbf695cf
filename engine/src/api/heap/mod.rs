//! A heap: memory of an engine in blocks of any size, as from malloc.
//!
//! Small blocks share slabs (`policy::slab`), each of which is a region; large ones are regions of their own. Which blocks are
//! in use is written down beside the memory, never in it: giving a block back neither touches nor swaps it in, no lock is held
//! over a fault, and a child without the memory can still go on. A thread allocates from the slabs of one shard, and gives blocks
//! back to whichever they are of.
mod forking;
mod owners;
mod slabs;

use crate::api::engine::Engine;
use crate::api::region::Region;
use crate::api::running::Running;
use crate::base::error::Error;
use crate::base::shard::{self, SHARDS};
use crate::sys::lock::Lock;
use crate::sys::signal::Blocked;
use crate::sys::{PAGE_BYTES, pages};
pub(crate) use forking::Heaps;
use owners::{Owner, Owners};
use slabs::Slabs;
use std::alloc::Layout;
use std::collections::BTreeMap;
use std::ops::Range;
use std::ptr::NonNull;
use std::sync::Arc;
use userswap_policy::slab::{CLASSES, Class, SLAB_BYTES_MIN};

/// Blocks from this size give their pages back at once when they are freed, those below with the last block of their slab;
/// such blocks are therefore zero when they are allocated. Fewer pages cost more to discard than to keep.
const DISCARD_BYTES_MIN: usize = 16 << 10;

/// Memory of an engine in blocks of any size; what it allocates counts toward the engine's budget.
///
/// Blocks are handed out as addresses: the heap never reads what is in them (but to copy it in [`Heap::reallocate`]), and the
/// caller sees to it that nobody uses a block after it was freed. A clone is the same heap. All methods may be called by any
/// thread, whichever allocated the block, but none by a signal handler. All blocks are forgotten with the last clone.
///
/// ```no_run
/// use std::alloc::Layout;
///
/// let heap = userswap::Builder::new(64 << 20).build()?.heap();
/// let block = heap.allocate(Layout::new::<[u64; 1000]>())?;
/// heap.free(block)?;
/// # Ok::<(), userswap::Error>(())
/// ```
#[derive(Clone)]
pub struct Heap {
    shared: Arc<Shared>,
}

/// What clones of a heap share. Its locks are not those of the fault path, which no signal handler may meet: they are taken
/// without blocking signals, and nothing but the C library's malloc is called while one is held.
pub(crate) struct Shared {
    running: Arc<Running>,
    /// By shard and class.
    slabs: Box<[Lock<Slabs>]>,
    owners: Owners,
    /// By address.
    large: Lock<BTreeMap<usize, Region>>,
}

impl Engine {
    /// A heap of its own, without any block.
    pub fn heap(&self) -> Heap {
        let running = self.running.clone();
        let shared = Arc::new(Shared {
            slabs: (0..SHARDS * CLASSES).map(|_| Lock::new(Slabs::default())).collect(),
            owners: Owners::new(&running.core.arena),
            large: Lock::new(BTreeMap::new()),
            running,
        });
        shared.running.heaps.insert(&shared);
        Heap { shared }
    }
}

impl Heap {
    /// A block of at least so many bytes, at a multiple of the alignment and of 16; its content is arbitrary.
    ///
    /// # Errors
    /// [`Error::ArenaFull`].
    pub fn allocate(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        self.shared.running.core.check_here()?;
        match Class::of(layout) {
            Some(class) => self.shared.take(class),
            None => self.shared.allocate_large(layout),
        }
    }

    /// As [`Heap::allocate`], but all zero: from 16 KiB on without touching a page.
    ///
    /// # Errors
    /// As for [`Heap::allocate`].
    pub fn allocate_zeroed(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        let block = self.allocate(layout)?;
        if Class::of(layout).is_some_and(|class| class.block_bytes() < DISCARD_BYTES_MIN) {
            pages::clear(block.addr().get(), layout.size());
        }
        Ok(block)
    }

    /// Takes a block back; its pages are forgotten without any write, the sooner the larger it is.
    ///
    /// # Errors
    /// [`Error::NotABlock`], with nothing changed: no block of this heap that is in use begins there.
    pub fn free(&self, block: NonNull<u8>) -> Result<(), Error> {
        if !self.shared.running.core.own_process.is_here() {
            return Ok(());
        }
        let address = block.addr().get();
        match self.shared.owners.of(address) {
            Some(owner) => self.shared.put(owner, address),
            None => {
                let region = self.shared.large.lock().remove(&address);
                region.map(drop).ok_or(Error::NotABlock(address))
            }
        }
    }

    /// Makes a block larger or smaller, in another place if need be: what fits of its content is kept. Large blocks move
    /// without being copied, and what is swapped out stays there.
    ///
    /// # Errors
    /// As for [`Heap::free`] and [`Heap::allocate`]; the block is unchanged then.
    pub fn reallocate(&self, block: NonNull<u8>, layout: Layout) -> Result<NonNull<u8>, Error> {
        self.shared.running.core.check_here()?;
        let held = self.usable_bytes(block)?;
        let address = block.addr().get();
        let wastes = layout.size() < held / 2 && held > size_of::<[u64; 8]>();
        if layout.size() <= held && !wastes && address.is_multiple_of(layout.align()) {
            return Ok(block);
        }
        let new = self.allocate(layout)?;
        let (to, bytes) = (new.addr().get(), layout.size().min(held));
        if self.shared.owners.of(address).is_none() && Class::of(layout).is_none() {
            self.shared.move_pages(address, to, bytes);
        } else {
            pages::copy_block(to, address, bytes);
        }
        self.free(block)?;
        Ok(new)
    }

    /// Forgets the pages that lie within these bytes of a block as a whole: nothing is written, they read as zeros afterwards.
    ///
    /// # Errors
    /// As for [`Heap::free`]; [`Error::OutOfRange`]: bytes outside the block.
    pub fn discard(&self, block: NonNull<u8>, bytes: Range<usize>) -> Result<(), Error> {
        self.shared.running.core.check_here()?;
        let held = self.usable_bytes(block)?;
        if bytes.start > bytes.end || bytes.end > held {
            return Err(Error::OutOfRange(bytes.start, bytes.end, held));
        }
        let address = block.addr().get();
        let first = (address + bytes.start).next_multiple_of(PAGE_BYTES);
        let end = (address + bytes.end) / PAGE_BYTES * PAGE_BYTES;
        if first < end {
            self.shared.discard(first, end - first);
        }
        Ok(())
    }

    /// Bytes that a block has room for: as many as were asked for, or more.
    ///
    /// # Errors
    /// As for [`Heap::free`].
    pub fn usable_bytes(&self, block: NonNull<u8>) -> Result<usize, Error> {
        let address = block.addr().get();
        let bytes = match self.shared.owners.of(address) {
            Some(owner) => {
                let is_used =
                    self.shared.slabs(owner.shard, owner.class).lock().is_used(owner, address);
                is_used.then(|| owner.class.block_bytes())
            }
            None => self.shared.large.lock().get(&address).map(Region::len),
        };
        bytes.ok_or(Error::NotABlock(address))
    }

    /// Whether the block at an address shares its pages with others, and leaves them as they are when it is freed.
    #[doc(hidden)]
    pub fn shares_pages(&self, address: usize) -> bool {
        let owner = self.shared.owners.of(address);
        owner.is_some_and(|owner| owner.class.block_bytes() < DISCARD_BYTES_MIN)
    }
}

impl Shared {
    fn slabs(&self, shard: usize, class: Class) -> &Lock<Slabs> {
        &self.slabs[shard * CLASSES + class.index()]
    }

    fn take(&self, class: Class) -> Result<NonNull<u8>, Error> {
        let shard = shard::mine();
        loop {
            if let Some(address) = self.slabs(shard, class).lock().take() {
                return Ok(block_at(address));
            }
            // Outside the lock; two threads may both find no room, and add a slab each.
            let region = Region::allocate(&self.running, class.slab_bytes(), SLAB_BYTES_MIN)?;
            let address = region.address();
            let mut slabs = self.slabs(shard, class).lock();
            let index = slabs.add(class, region);
            self.owners.set(address, class.slab_bytes(), Some(Owner { shard, class, index }));
        }
    }

    fn put(&self, owner: Owner, address: usize) -> Result<(), Error> {
        let bytes = owner.class.block_bytes();
        let slabs = self.slabs(owner.shard, owner.class);
        if bytes >= DISCARD_BYTES_MIN {
            // Before anybody else can be given the block, and outside the lock.
            if !slabs.lock().is_used(owner, address) {
                return Err(Error::NotABlock(address));
            }
            self.discard(address, bytes);
        }
        let mut slabs = slabs.lock();
        if !slabs.is_used(owner, address) {
            return Err(Error::NotABlock(address));
        }
        let emptied = slabs.put(owner, address);
        if let Some(region) = &emptied {
            self.owners.set(region.address(), region.len(), None);
        }
        drop(slabs);
        drop(emptied);
        Ok(())
    }

    fn allocate_large(&self, layout: Layout) -> Result<NonNull<u8>, Error> {
        let bytes = layout.size().max(1).next_multiple_of(PAGE_BYTES);
        let region = Region::allocate(&self.running, bytes, layout.align())?;
        let address = region.address();
        self.large.lock().insert(address, region);
        Ok(block_at(address))
    }

    /// Before fork: no other thread has one of its locks until [`Self::release`].
    fn hold(&self) {
        self.slabs.iter().for_each(Lock::hold);
        self.large.hold();
    }

    fn release(&self) {
        self.slabs.iter().for_each(Lock::release);
        self.large.release();
    }

    fn discard(&self, address: usize, bytes: usize) {
        let _blocked = Blocked::new();
        let core = &self.running.core;
        core.drop_range(core.range_at(address, bytes));
    }

    /// Between blocks that are regions, of which the other one is new.
    fn move_pages(&self, from: usize, to: usize, bytes: usize) {
        let _blocked = Blocked::new();
        let core = &self.running.core;
        core.move_range(core.range_at(from, bytes), core.arena.page_of(to));
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        self.running.heaps.forget_dropped();
    }
}

fn block_at(address: usize) -> NonNull<u8> {
    NonNull::new(address as *mut u8).expect("no block begins at zero")
}
