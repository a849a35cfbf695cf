//! Swap devices in use: slots, their checksums, and which device is asked first.
//!
//! A slot is named engine-wide by one number: every device gets a stretch of a common number space, so a
//! page word holds 32 bits and devices may be of any size.
pub mod open;
pub mod spec;

use crate::error::Error;
use crate::page::Slot;
use crate::sys::PAGE_BYTES;
use crate::sys::fd;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Access, Mapping, ZeroedSlice};
use crate::sys::request::{self, Direction, Pieces};
use open::{DeviceKind, OpenDevice};
use spec::{SwapPath, SwapSpec};
use std::fs::File;
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use userswap_policy::slots::{SLOTS_MAX, SlotRun, Slots};

/// Write errors after which a device gets no new pages.
const ERRORS_MAX: u32 = 16;
/// Blocks of a file are allocated this far at a time: a full file system is noticed before a page is on
/// its way, and the file stays as small as what was swapped.
const ALLOCATE_BYTES: u64 = 128 << 20;

/// What a fork copies at a time.
const COPY_BYTES: usize = 1 << 20;

/// One device.
pub struct Device {
    file: File,
    /// As the user named it.
    pub name: String,
    /// What it is.
    pub kind: DeviceKind,
    slots: Lock<Slots>,
    checksums: ZeroedSlice<AtomicU64>,
    /// Number of slot 0 in the engine-wide number space.
    base: u32,
    max: u32,
    allocated: Lock<u64>,
    errors: AtomicU32,
    retired: AtomicBool,
}

/// Consecutive slots of one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SlotSpan {
    /// The first slot.
    pub first: Slot,
    /// Number of slots.
    pub count: u32,
}

/// What becomes of a slot that nobody needs any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SlotEnd {
    /// It can hold another page.
    Free,
    /// The device refused it: it is never used again.
    Bad,
}

/// All devices of an engine, the preferred one first.
pub struct Devices {
    list: Vec<Device>,
}

impl Devices {
    /// Takes opened devices into use, higher priority first, then in the order given.
    ///
    /// # Errors
    /// No memory for the books of a device.
    pub fn new(mut opened: Vec<OpenDevice>) -> io::Result<Self> {
        opened.sort_by_key(|device| std::cmp::Reverse(device.priority.unwrap_or(-1)));
        let mut base = 0u32;
        let mut list = Vec::new();
        for device in opened {
            let max = (device.bytes / PAGE_BYTES as u64)
                .min(u64::from(SLOTS_MAX.min(u32::MAX - base))) as u32;
            list.push(Device::new(device, base, max)?);
            base += max;
        }
        Ok(Self { list })
    }

    /// The devices, the preferred one first.
    pub fn list(&self) -> &[Device] {
        &self.list
    }

    /// Allocates up to `want` consecutive slots from the first device that has any.
    pub fn allocate(&self, want: u32) -> Option<SlotSpan> {
        self.list.iter().find_map(|device| device.allocate(want))
    }

    /// Frees slots; they must be in use and of one device.
    pub fn free(&self, span: SlotSpan) {
        let device = self.device_of(span.first);
        let first = span.first.0.get() - device.base;
        device.slots.lock().free(SlotRun { first, count: span.count });
    }

    /// Takes slots out of use for good after a write error.
    pub fn mark_bad(&self, span: SlotSpan) {
        let device = self.device_of(span.first);
        let mut slots = device.slots.lock();
        for slot in 0..span.count {
            slots.mark_bad(span.first.0.get() - device.base + slot);
        }
    }

    /// Counts a request that the device refused; after too many it gets no more pages.
    pub fn note_write_error(&self, slot: Slot) {
        let device = self.device_of(slot);
        if device.errors.fetch_add(1, Ordering::Relaxed) + 1 >= ERRORS_MAX {
            device.retired.store(true, Ordering::Relaxed);
        }
    }

    /// The checksum kept for a slot.
    pub fn checksum(&self, slot: Slot) -> u64 {
        let device = self.device_of(slot);
        // Relaxed: the page word that names the slot was published after the checksum was stored.
        device.checksums[(slot.0.get() - device.base) as usize].load(Ordering::Relaxed)
    }

    /// Keeps a checksum for a slot.
    pub fn set_checksum(&self, slot: Slot, checksum: u64) {
        let device = self.device_of(slot);
        device.checksums[(slot.0.get() - device.base) as usize].store(checksum, Ordering::Relaxed);
    }

    /// Whether two slots are on one device.
    pub fn same_device(&self, one: Slot, other: Slot) -> bool {
        self.device_of(one).holds(other)
    }

    /// The device of a slot by name, and the slot's number there.
    pub fn describe(&self, slot: Slot) -> (&str, u32) {
        let device = self.device_of(slot);
        (&device.name, slot.0.get() - device.base)
    }

    /// Whether slots should be given up by pages that are brought in: the devices are more than half full.
    pub fn is_crowded(&self) -> bool {
        let (used, pages) = self.usage();
        used * 2 > pages
    }

    /// Slots in use and usable slots of all devices.
    pub fn usage(&self) -> (u64, u64) {
        self.list.iter().fold((0, 0), |(used, pages), device| {
            let slots = device.slots.lock();
            (used + u64::from(slots.used()), pages + u64::from(slots.pages()))
        })
    }

    /// Where a slot is: descriptor and byte offset.
    pub fn place(&self, slot: Slot) -> (RawFd, u64) {
        let device = self.device_of(slot);
        let number = u64::from(slot.0.get() - device.base);
        (device.file.as_raw_fd(), number * PAGE_BYTES as u64)
    }

    /// Reads or writes consecutive slots at once, on the calling thread.
    ///
    /// # Errors
    /// What the device says.
    pub fn transfer(&self, direction: Direction, first: Slot, pieces: &Pieces) -> io::Result<()> {
        let (fd, offset) = self.place(first);
        request::transfer(fd, direction, offset, pieces)
    }

    fn device_of(&self, slot: Slot) -> &Device {
        self.list.iter().find(|device| device.holds(slot)).expect("every slot belongs to a device")
    }
}

impl Device {
    fn new(opened: OpenDevice, base: u32, max: u32) -> io::Result<Self> {
        let file = match opened.file {
            Some(file) => File::from(fd::raise(OwnedFd::from(file))),
            None => memory_device(opened.bytes)?,
        };
        let preallocated = match opened.kind {
            DeviceKind::Temporary | DeviceKind::File => PAGE_BYTES as u64,
            DeviceKind::Block | DeviceKind::Memory => u64::MAX,
        };
        Ok(Self {
            file,
            name: opened.path.display().to_string(),
            kind: opened.kind,
            slots: Lock::new(Slots::new(max)),
            checksums: ZeroedSlice::new(max as usize)?,
            base,
            max,
            allocated: Lock::new(preallocated),
            errors: AtomicU32::new(0),
            retired: AtomicBool::new(false),
        })
    }

    /// The descriptor, whose number stays the same for the life of the engine.
    pub fn descriptor(&self) -> RawFd {
        self.file.as_raw_fd()
    }

    /// A new unlinked file (or memory) with the same content in every used slot.
    ///
    /// # Errors
    /// No room for it, or reading or writing failed.
    pub fn copy_file(&self) -> Result<File, Error> {
        let bytes = u64::from(self.max) * PAGE_BYTES as u64;
        let copy = match self.kind {
            DeviceKind::Memory => memory_device(bytes).map_err(Error::Books)?,
            DeviceKind::Temporary => self.temporary(Path::new(&self.name).to_path_buf(), bytes)?,
            DeviceKind::File | DeviceKind::Block => {
                self.temporary(open::default_directory(), bytes)?
            }
        };
        if fd::reflink(self.file.as_raw_fd(), copy.as_raw_fd()).is_err() {
            self.copy_slots(&copy).map_err(Error::ForkCopy)?;
        }
        Ok(copy)
    }

    fn temporary(&self, directory: PathBuf, bytes: u64) -> Result<File, Error> {
        let spec =
            SwapSpec { path: SwapPath::Path(directory), size: None, priority: None, node: None };
        let opened = open::open(&spec, bytes)?;
        let file = opened.file.expect("a directory gives a file");
        file.set_len(bytes).map_err(Error::ForkCopy)?;
        Ok(file)
    }

    fn copy_slots(&self, copy: &File) -> io::Result<()> {
        let buffer = Mapping::new(COPY_BYTES, Access::ReadWrite)?;
        for run in self.slots.lock().used_runs() {
            let mut offset = u64::from(run.first) * PAGE_BYTES as u64;
            let end = u64::from(run.first + run.count) * PAGE_BYTES as u64;
            while offset < end {
                let pieces = Pieces::one(buffer.address(), COPY_BYTES.min((end - offset) as usize));
                request::transfer(self.file.as_raw_fd(), Direction::Read, offset, &pieces)?;
                request::transfer(copy.as_raw_fd(), Direction::Write, offset, &pieces)?;
                offset += pieces.bytes() as u64;
            }
        }
        Ok(())
    }

    /// Slots in use.
    pub fn used(&self) -> u32 {
        self.slots.lock().used()
    }

    /// Usable slots.
    pub fn pages(&self) -> u32 {
        self.slots.lock().pages()
    }

    /// Runs of slots in use, as engine-wide slots.
    pub fn used_spans(&self) -> Vec<SlotSpan> {
        let slots = self.slots.lock();
        slots.used_runs().map(|run| self.span(run)).collect()
    }

    fn holds(&self, slot: Slot) -> bool {
        (self.base..self.base + self.max).contains(&slot.0.get())
    }

    fn span(&self, run: SlotRun) -> SlotSpan {
        let first = NonZeroU32::new(self.base + run.first).expect("slot 0 is the header");
        SlotSpan { first: Slot(first), count: run.count }
    }

    fn allocate(&self, want: u32) -> Option<SlotSpan> {
        if self.retired.load(Ordering::Relaxed) {
            return None;
        }
        let run = self.slots.lock().allocate(want)?;
        if self.back_with_blocks(run) {
            return Some(self.span(run));
        }
        // The file system is full: what has blocks stays in use, the rest of the device is given up.
        let mut slots = self.slots.lock();
        slots.free(run);
        slots.limit((*self.allocated.lock() / PAGE_BYTES as u64) as u32);
        let run = slots.allocate(want)?;
        Some(self.span(run))
    }

    /// Makes sure the file has blocks for `run`; false when the file system is full.
    fn back_with_blocks(&self, run: SlotRun) -> bool {
        let end = u64::from(run.first + run.count) * PAGE_BYTES as u64;
        let mut allocated = self.allocated.lock();
        while *allocated < end {
            let bytes = ALLOCATE_BYTES.min(u64::from(self.max) * PAGE_BYTES as u64 - *allocated);
            match fd::allocate(self.file.as_raw_fd(), *allocated, bytes) {
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) => return false,
                // Where it cannot be done ahead, the write itself will tell.
                Ok(()) | Err(_) => *allocated += bytes,
            }
        }
        true
    }
}

fn memory_device(bytes: u64) -> io::Result<File> {
    let file = fd::memory_file()?;
    file.set_len(bytes)?;
    Ok(File::from(fd::raise(OwnedFd::from(file))))
}
