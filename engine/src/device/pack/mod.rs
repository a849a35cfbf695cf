//! What lies compressed on a disk: pages that moved on from compressed memory, several in one slot of another device
//! (`policy::pack`).
//!
//! It is a device without room of its own: its slots name pages in slots of the device *below*, where one of those holds
//! several of these, and is free once all have gone. Page words, checksums and swapoff know no difference, and what is
//! below may be a file, a store, encrypted or slow. Nothing is ever given a slot here by reclaim: only what moves on is
//! written (`demotion::pack`). A fault reads the slot below to the frame of its page, as it would for a page that is alone
//! there, and unpacks it once it has come; who reads many at once does so by [`Pack::read`]. All tables are private memory:
//! a forked child has an exact copy of them, and reads the slots below as it reads all others that its parent has lent.
//!
//! Locks nest this device's, that of the device below. A buffer's is held while it is read to.
mod entries;

use crate::base::index::Slot;
use crate::device::cipher::Cipher;
use crate::device::record::Device;
use crate::device::request::{Backing, Request};
use crate::device::zram::codec::Codecs;
use crate::sys::lock::{Guard, Lock};
use crate::sys::mapping::{Mapping, ZeroedSlice};
use crate::sys::request::{self as kernel, Direction, Pieces};
use crate::sys::{PAGE_BYTES, clock, numa, pages};
use entries::Entries;
pub use entries::Kept;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicU16, AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use userswap_policy::slots::SlotRun;

/// Slots below that are read together at most: 64 KiB.
const READ_SLOTS: usize = 16;
/// Buffers for each CPU.
const BUFFERS_OF_CPU: usize = 8;

/// A page has not come back from a slot below: nothing is to be put there again.
const BAD: u16 = 1 << 15;

/// Whether a slot below that is needed no more can be used again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Health {
    /// All pages that were read came back.
    Good,
    /// One did not.
    Bad,
}

/// The device.
pub struct Pack {
    below: Arc<Device>,
    entries: Entries,
    /// For each slot below, how many pages are on it, and whether it is [`BAD`].
    uses: ZeroedSlice<AtomicU16>,
    /// Slots below that are in use.
    held: AtomicU32,
    codecs: Arc<Codecs>,
    cipher: Arc<OnceLock<Cipher>>,
    /// Whether each of the parts of `memory` is in use.
    buffers: Box<[Lock<()>]>,
    memory: Mapping,
}

/// Memory for what is packed, which one thread has.
struct Buffer<'a> {
    address: usize,
    _guard: Guard<'a, ()>,
}

impl Pack {
    /// An empty one with `slots` slots, on a device of `slots_below`.
    ///
    /// # Errors
    /// No address space.
    pub fn new(
        slots: u32,
        (below, slots_below): (Arc<Device>, u32),
        codecs: Arc<Codecs>,
        cipher: Arc<OnceLock<Cipher>>,
    ) -> io::Result<Self> {
        let count = clock::cpus() as usize * BUFFERS_OF_CPU;
        Ok(Self {
            below,
            entries: Entries::new(slots)?,
            uses: ZeroedSlice::new(slots_below as usize)?,
            held: AtomicU32::new(0),
            codecs,
            cipher,
            buffers: (0..count).map(|_| Lock::new(())).collect(),
            memory: Mapping::undumped(count * READ_SLOTS * PAGE_BYTES)?,
        })
    }

    /// The device on which it is.
    pub fn below(&self) -> &Device {
        &self.below
    }

    /// What unpacks its pages.
    pub fn codecs(&self) -> &Arc<Codecs> {
        &self.codecs
    }

    /// Slots below that it has.
    pub fn held(&self) -> u32 {
        self.held.load(Ordering::Relaxed)
    }

    /// The slot below that a page is on; of one that is not the caller's it may be another by now.
    pub fn slot_below(&self, number: u32) -> Option<Slot> {
        self.entries.get(number).map(|kept| self.below.slot(kept.slot))
    }

    /// A slot holds that from now on.
    pub fn put(&self, number: u32, kept: Kept) {
        // Relaxed: who frees it has the slot from a word that is published later.
        let before = self.uses[kept.slot as usize].fetch_add(1, Ordering::Relaxed);
        self.held.fetch_add(u32::from(before == 0), Ordering::Relaxed);
        let before = self.entries.replace(number, Some(kept));
        assert_eq!(before, None, "a slot that is given out is empty");
    }

    /// Forgets what slots hold; `free` is told of each slot below that is needed no more.
    pub fn free(&self, run: SlotRun, mut free: impl FnMut(u32, Health)) {
        for number in run.first..run.first + run.count {
            let Some(kept) = self.entries.replace(number, None) else { continue };
            let uses = &self.uses[kept.slot as usize];
            // Release, and acquire by the last: what others read there comes before it is free.
            let before = uses.fetch_sub(1, Ordering::AcqRel);
            if before & !BAD == 1 {
                uses.store(0, Ordering::Relaxed);
                self.held.fetch_sub(1, Ordering::Relaxed);
                free(kept.slot, if before & BAD == 0 { Health::Good } else { Health::Bad });
            }
        }
    }

    /// A page of the caller's did not come back from its slot below.
    pub fn spoil(&self, number: u32) {
        if let Some(kept) = self.entries.get(number) {
            self.uses[kept.slot as usize].fetch_or(BAD, Ordering::Relaxed);
        }
    }

    /// From the first slot below that some pages are on, as many as they are on altogether.
    pub fn slots_of(&self, first: u32, pages: u32) -> Range<u32> {
        let mut slots: Range<u32> = 0..0;
        let mut last = None;
        for kept in (first..first + pages).filter_map(|number| self.entries.get(number)) {
            if slots.is_empty() {
                slots = kept.slot..kept.slot;
            }
            slots.end += u32::from(last != Some(kept.slot));
            last = Some(kept.slot);
        }
        slots
    }

    /// Fills pages, by number and address, from the slot below that they are on, which has been read to `from`: that may be
    /// one of them. What did not come as it was written leaves its memory as it is, the page's checksum tells.
    pub fn unpack(&self, from: usize, pages: impl Iterator<Item = (u32, usize)>) {
        let buffer = self.buffer();
        pages::copy(buffer.address, from, 1);
        let mut opened = None;
        for (number, address) in pages {
            let Some(kept) = self.entries.get(number) else { continue };
            if opened.is_none() {
                self.open(kept.slot, buffer.address);
                opened = Some(kept.slot);
            }
            if opened == Some(kept.slot) {
                self.expand(kept, buffer.address, address);
            }
        }
    }

    /// Reads whole pages at once; what does not come as it was written leaves its memory as it is.
    ///
    /// # Errors
    /// What the device below says.
    pub fn read(&self, offset: u64, pieces: &Pieces, is_repeated: bool) -> io::Result<()> {
        let first = (offset / PAGE_BYTES as u64) as u32;
        let addresses = pieces.iter().flat_map(|piece| {
            (0..piece.bytes / PAGE_BYTES).map(move |page| piece.address + page * PAGE_BYTES)
        });
        let end = first + (pieces.bytes() / PAGE_BYTES) as u32;
        let (buffer, mut read) = (self.buffer(), 0..0);
        for (number, address) in (first..end).zip(addresses) {
            let Some(kept) = self.entries.get(number) else { continue };
            if !read.contains(&kept.slot) {
                read = self.slots_from(kept.slot, number + 1..end);
                self.read_below(read.clone(), buffer.address, is_repeated)?;
            }
            let at = (kept.slot - read.start) as usize * PAGE_BYTES;
            self.expand(kept, buffer.address + at, address);
        }
        Ok(())
    }

    /// A slot below, and those after it, one after the other, that hold these.
    fn slots_from(&self, first: u32, numbers: Range<u32>) -> Range<u32> {
        let mut slots = first..first + 1;
        for kept in numbers.map_while(|number| self.entries.get(number)) {
            match kept.slot {
                slot if slots.contains(&slot) => {}
                slot if slot == slots.end && slots.len() < READ_SLOTS => slots.end += 1,
                _ => break,
            }
        }
        slots
    }

    /// Reads slots below, and opens what is encrypted.
    fn read_below(&self, slots: Range<u32>, to: usize, is_repeated: bool) -> io::Result<()> {
        let below = &*self.below;
        let bytes = slots.len() * PAGE_BYTES;
        let offset = u64::from(slots.start) * PAGE_BYTES as u64;
        let plan = kernel::Request::new(below.descriptor(), Direction::Read, offset);
        let request = Request::new(plan, Backing::of(below)).repeated(is_repeated);
        below.traffic.begin(Direction::Read);
        let outcome = request.transfer(&Pieces::one(to, bytes));
        below.traffic.end(Direction::Read, bytes, &outcome);
        outcome?;
        slots.enumerate().for_each(|(index, slot)| self.open(slot, to + index * PAGE_BYTES));
        Ok(())
    }

    /// Makes what was read from a slot below readable, if it is encrypted.
    fn open(&self, slot: u32, address: usize) {
        if self.below.is_encrypted() {
            let cipher = self.cipher.get().expect("an encrypted device came with a key");
            // What does not open holds nothing then.
            let _ = self.below.open_page(cipher, slot, pages::view_mut(address, PAGE_BYTES));
        }
    }

    fn expand(&self, kept: Kept, from: usize, to: usize) {
        let packed = &pages::view(from, PAGE_BYTES)[kept.bytes()];
        // A page that this does not make is seen by its checksum.
        let _ = kept.form.expand(packed, pages::view_mut(to, PAGE_BYTES), &self.codecs);
    }

    fn buffer(&self) -> Buffer<'_> {
        let count = self.buffers.len();
        let from = numa::cpu() as usize * BUFFERS_OF_CPU;
        let free = (from..from + count).find_map(|index| {
            self.buffers[index % count].try_lock().map(|guard| (index % count, guard))
        });
        let (index, guard) =
            free.unwrap_or_else(|| (from % count, self.buffers[from % count].lock()));
        let address = self.memory.address() + index * READ_SLOTS * PAGE_BYTES;
        Buffer { address, _guard: guard }
    }
}
