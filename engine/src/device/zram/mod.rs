//! A device whose slots live compressed in RAM: what `zram:` names.
//!
//! A page is kept in a cell of a slab (`policy::cells`); one that repeats a single value as that value alone, and one that
//! hardly compresses as it is. A slot that is given out has room reserved as if its page were the worst of them, so that a
//! write always finds some (`allowance`). All of this is private memory: a forked child has an exact copy of it, and the
//! kernel shares what neither side changes. What reads or writes a slot runs on the calling thread, allocates nothing,
//! and is safe in a signal handler. Locks nest a sweep's, an entry's, a CPU's codec, cells. All of them are
//! innermost: they are taken with a device's lock held where slots are freed.
pub mod allowance;
pub mod codec;
mod compact;
mod entries;
mod levels;
pub mod options;
pub mod recompress;
mod supply;
mod words;

use crate::device::zram::allowance::Allowance;
use crate::device::zram::codec::{Codecs, Packed};
use crate::device::zram::compact::Leaving;
use crate::device::zram::entries::{Entries, Entry, Place};
use crate::device::zram::options::Compression;
use crate::device::zram::recompress::Recompress;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Mapping, ZeroedSlice};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::cells::{Cell, Cells, SLAB_BYTES, SLAB_PAGES, SLABS_BEGUN_MAX, Slab};
use userswap_policy::slots::SlotRun;

/// Empty slabs that keep their memory for the next pages: a mebibyte.
const EMPTY_MAX: u32 = 16;

/// Fewer pages say nothing about how well they compress.
const TELLING: u64 = 256;

/// Slabs that the place of a cell has room for: 64 GiB of compressed pages.
const SLABS_MAX: u32 = 1 << 20;

/// The device.
pub struct Zram {
    entries: Entries,
    cells: Lock<Cells<ZeroedSlice<Slab>>>,
    leaving: Leaving,
    recompress: Option<Recompress>,
    memory: Mapping,
    codecs: Arc<Codecs>,
    allowance: Arc<Allowance>,
    /// Of this device's slots: how many hold nothing yet, although they are given out.
    reserved: AtomicU32,
    /// Slabs in the table.
    slabs: u32,
    sums: Sums,
}

/// What is stored, as it changes.
#[derive(Default)]
struct Sums {
    pages: AtomicU64,
    same: AtomicU64,
    huge: AtomicU64,
    bytes: AtomicU64,
}

/// What is stored at a moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// Pages of content.
    pub pages: u64,
    /// Of these, kept as a single value.
    pub same_pages: u64,
    /// Of these, kept as they are.
    pub huge_pages: u64,
    /// Bytes that all of them were compressed to.
    pub compressed_bytes: u64,
    /// Bytes of the slabs, which is the memory that they take.
    pub slab_bytes: u64,
}

/// How a page is kept that is smaller than a page.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Form {
    /// As the one value that it repeats.
    Same,
    /// Packed into so many bytes.
    Packed(usize),
}

/// Bytes of a value that is repeated.
const SAME_BYTES: usize = 8;

impl Form {
    /// Bytes of what is kept.
    pub fn bytes(self) -> usize {
        match self {
            Self::Same => SAME_BYTES,
            Self::Packed(bytes) => bytes,
        }
    }

    /// Fills a page from what was kept; false if that does not make one.
    pub fn expand(self, kept: &[u8], page: &mut [u8], codecs: &Codecs) -> bool {
        match self {
            Self::Packed(_) => codecs.unpack(kept, page),
            Self::Same => {
                repeat(u64::from_ne_bytes(kept.try_into().expect("eight bytes make a word")), page);
                true
            }
        }
    }
}

impl Stored {
    /// Whether its pages compress, as far as that can be told: to four fifths of themselves, as `policy::compress` has it.
    pub fn is_small(&self) -> bool {
        self.pages < TELLING || self.compressed_bytes * 5 < self.pages * PAGE_BYTES as u64 * 4
    }
}

impl Zram {
    /// An empty one with `slots` slots.
    ///
    /// # Errors
    /// No address space.
    pub fn new(
        slots: u32,
        compression: Compression,
        allowance: Arc<Allowance>,
    ) -> io::Result<Self> {
        // Slabs that are not full take more of them than the pages need.
        let most = (2 * slots / SLAB_PAGES + 2 * SLABS_BEGUN_MAX).min(SLABS_MAX) as usize;
        let memory = Mapping::undumped(most * SLAB_BYTES)?;
        // One cell in use must not take two mebibytes. Kernels without huge pages refuse the advice.
        let _ = memory.advise(0, memory.bytes(), libc::MADV_NOHUGEPAGE);
        Ok(Self {
            entries: Entries::new(slots)?,
            cells: Lock::new(Cells::new(ZeroedSlice::new(most)?)),
            leaving: Leaving::new(most)?,
            recompress: Recompress::new(compression, slots)?,
            memory,
            codecs: Arc::new(Codecs::new(compression)?),
            allowance,
            reserved: AtomicU32::new(0),
            slabs: most as u32,
            sums: Sums::default(),
        })
    }

    /// Makes sure that whatever comes to the slots of a run will find memory; false when there is none for all.
    pub fn reserve(&self, run: SlotRun) -> bool {
        if !self.allowance.reserve(run.count) {
            return false;
        }
        self.reserved.fetch_add(run.count, Ordering::Relaxed);
        if !self.has_slabs(0) {
            self.release(run.count);
            return false;
        }
        self.leaving.slots_ever.fetch_max(run.first + run.count, Ordering::Relaxed);
        for number in run.first..run.first + run.count {
            let before = self.entries.hold(number).replace(Entry::Reserved);
            assert_eq!(before, Entry::Absent, "a slot that is given out is empty");
        }
        true
    }

    /// Whether so many pages could be reserved.
    pub fn has_room(&self, pages: u32) -> bool {
        self.allowance.has_room(pages) && self.has_slabs(pages)
    }

    /// Whether the table has slabs for all that is reserved, and for so many more pages.
    fn has_slabs(&self, pages: u32) -> bool {
        let reserved = self.reserved.load(Ordering::Relaxed) + pages;
        let busy = self.cells.lock().counts().busy;
        busy + reserved.div_ceil(SLAB_PAGES) + SLABS_BEGUN_MAX <= self.slabs
    }

    fn release(&self, pages: u32) {
        self.reserved.fetch_sub(pages, Ordering::Relaxed);
        self.allowance.release(pages);
    }

    /// Forgets what slots hold.
    pub fn free(&self, run: SlotRun) {
        for number in run.first..run.first + run.count {
            let entry = self.entries.hold(number).replace(Entry::Absent);
            self.forget(entry);
        }
    }

    /// Transfers whole pages at once; what is less than one, of a request that is cut short on purpose, stays out.
    ///
    /// # Errors
    /// ENOSPC when there is no slab left, EIO where what is stored is damaged.
    pub fn transfer(&self, direction: Direction, offset: u64, pieces: &Pieces) -> io::Result<()> {
        let mut number = (offset / PAGE_BYTES as u64) as u32;
        for piece in pieces.iter() {
            for page in 0..piece.bytes / PAGE_BYTES {
                let address = piece.address + page * PAGE_BYTES;
                match direction {
                    Direction::Read => self.read(number, pages::view_mut(address, PAGE_BYTES))?,
                    Direction::Write => self.write(number, pages::view(address, PAGE_BYTES))?,
                }
                number += 1;
            }
        }
        Ok(())
    }

    fn write(&self, number: u32, page: &[u8]) -> io::Result<()> {
        let entry = match repeated(page) {
            Some(value) => Entry::Same(value),
            None => Entry::Cell(self.pack(page)?),
        };
        self.remember(entry);
        let before = self.entries.hold(number).replace(entry);
        self.forget(before);
        self.recompress.iter().for_each(|recompress| recompress.on_written(number));
        Ok(())
    }

    /// Compresses a page into a cell.
    fn pack(&self, page: &[u8]) -> io::Result<Place> {
        let mut codec = self.codecs.here();
        let (bytes, is_huge) = match codec.pack(page) {
            Packed::Smaller(bytes) => (bytes, false),
            Packed::Not => (page, true),
        };
        let place = self.store(bytes).ok_or(io::Error::from_raw_os_error(libc::ENOSPC))?;
        assert_eq!(
            is_huge,
            place.bytes as usize == PAGE_BYTES,
            "only what does not compress is a page"
        );
        Ok(place)
    }

    /// Puts bytes into a cell, if there is one.
    fn store(&self, bytes: &[u8]) -> Option<Place> {
        let place = self.take(bytes.len())?;
        // Nobody reads the cell before its place is in an entry.
        pages::view_mut(self.memory.address() + place.start, bytes.len()).copy_from_slice(bytes);
        Some(place)
    }

    /// What is in a cell; its slot's entry is held, or nobody else knows it.
    fn view(&self, place: Place) -> &[u8] {
        pages::view(self.memory.address() + place.start, place.bytes as usize)
    }

    fn take(&self, bytes: usize) -> Option<Place> {
        let mut cells = self.cells.lock();
        let before = cells.counts();
        let cell = cells.take(bytes);
        self.allowance.on_change(before, cells.counts());
        let start = cells.span(cell?).start;
        Some(Place { cell: cell?.number(), start, bytes: bytes as u32 })
    }

    /// Fills a page; one that holds nothing, between others that are wanted, is left as it is.
    fn read(&self, number: u32, page: &mut [u8]) -> io::Result<()> {
        // Held meanwhile: a slot between wanted ones may be freed, and its cell filled anew.
        let held = self.entries.hold(number);
        match held.entry() {
            Entry::Absent | Entry::Reserved => Ok(()),
            Entry::Same(value) => {
                repeat(value, page);
                Ok(())
            }
            Entry::Cell(place) => {
                let bytes = self.view(place);
                if bytes.len() == PAGE_BYTES {
                    page.copy_from_slice(bytes);
                    return Ok(());
                }
                match self.codecs.unpack(bytes, page) {
                    true => Ok(()),
                    false => Err(io::Error::from_raw_os_error(libc::EIO)),
                }
            }
        }
    }

    /// Bytes of what a slot holds, as it is kept; None where that is nothing, or a page that did not compress.
    pub fn bytes_of(&self, number: u32) -> Option<usize> {
        match self.entries.hold(number).entry() {
            Entry::Absent | Entry::Reserved => None,
            Entry::Same(_) => Some(SAME_BYTES),
            Entry::Cell(Place { bytes, .. }) => {
                Some(bytes as usize).filter(|bytes| *bytes < PAGE_BYTES)
            }
        }
    }

    /// Copies what a slot holds as it is kept; None where that is none of [`Self::bytes_of`], or has no room.
    pub fn copy_packed(&self, number: u32, to: &mut [u8]) -> Option<Form> {
        let held = self.entries.hold(number);
        match held.entry() {
            Entry::Absent | Entry::Reserved => None,
            Entry::Same(value) => {
                to.get_mut(..SAME_BYTES)?.copy_from_slice(&value.to_ne_bytes());
                Some(Form::Same)
            }
            Entry::Cell(place) => {
                let bytes = Some(place.bytes as usize).filter(|bytes| *bytes < PAGE_BYTES)?;
                to.get_mut(..bytes)?.copy_from_slice(self.view(place));
                Some(Form::Packed(bytes))
            }
        }
    }

    /// What packs and unpacks its pages.
    pub fn codecs(&self) -> &Arc<Codecs> {
        &self.codecs
    }

    fn remember(&self, entry: Entry) {
        self.sum(entry, |sum, value| _ = sum.fetch_add(value, Ordering::Relaxed));
    }

    fn forget(&self, entry: Entry) {
        match entry {
            Entry::Absent => return,
            Entry::Reserved => return self.release(1),
            Entry::Same(_) => {}
            Entry::Cell(place) => self.put(place),
        }
        self.sum(entry, |sum, value| _ = sum.fetch_sub(value, Ordering::Relaxed));
    }

    fn put(&self, place: Place) {
        let mut cells = self.cells.lock();
        let before = cells.counts();
        cells.put(Cell::from_number(place.cell));
        self.allowance.on_change(before, cells.counts());
    }

    fn sum(&self, entry: Entry, change: impl Fn(&AtomicU64, u64)) {
        change(&self.sums.pages, 1);
        match entry {
            Entry::Cell(place) => {
                change(&self.sums.bytes, place.bytes.into());
                change(&self.sums.huge, u64::from(place.bytes as usize == PAGE_BYTES));
            }
            Entry::Same(_) | Entry::Absent | Entry::Reserved => change(&self.sums.same, 1),
        }
    }

    /// Gives the memory of empty slabs back to the kernel, but for a few.
    pub fn trim(&self) {
        loop {
            let mut cells = self.cells.lock();
            if cells.counts().empty <= EMPTY_MAX {
                return;
            }
            let before = cells.counts();
            let slab = cells.take_empty().expect("there are some");
            self.allowance.on_change(before, cells.counts());
            drop(cells);
            // An error leaves the memory where it is, until the slab is used again.
            let _ = self.memory.advise(slab as usize * SLAB_BYTES, SLAB_BYTES, libc::MADV_DONTNEED);
            self.cells.lock().on_gone(slab);
        }
    }

    /// What is stored; read without a lock on all.
    pub fn stored(&self) -> Stored {
        let counts = self.cells.lock().counts();
        let read = |sum: &AtomicU64| sum.load(Ordering::Relaxed);
        Stored {
            pages: read(&self.sums.pages),
            same_pages: read(&self.sums.same),
            huge_pages: read(&self.sums.huge),
            compressed_bytes: read(&self.sums.bytes),
            slab_bytes: u64::from(counts.busy + counts.empty) * SLAB_BYTES as u64,
        }
    }
}

impl Drop for Zram {
    fn drop(&mut self) {
        self.allowance.on_change(self.cells.lock().counts(), Default::default());
    }
}

/// Fills a page with a value.
fn repeat(value: u64, page: &mut [u8]) {
    page.chunks_exact_mut(SAME_BYTES).for_each(|word| word.copy_from_slice(&value.to_ne_bytes()));
}

/// The value that fills a page, if one does.
fn repeated(page: &[u8]) -> Option<u64> {
    let (first, rest) = page.split_at(8);
    // It is as if every word equalled the one before it.
    (*rest == page[..rest.len()])
        .then(|| u64::from_ne_bytes(first.try_into().expect("eight bytes make a word")))
}

#[cfg(test)]
mod tests;
