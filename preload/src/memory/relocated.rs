//! Relocated data of libraries is mapped from a file, once there is an engine: the kernel can drop it then.
//!
//! What the dynamic linker has filled in (tables of functions, C++ classes) and then protected against writing (PT_GNU_RELRO)
//! is private memory without a file, 5 to 13 MiB of it with LLVM, a browser or ClickHouse, in each of their processes.
//! It is written once to an unlinked file beside the swap, past the page cache, and mapped from there, at its place: what of it is used
//! comes back as the program's code does. Android's loader does the same for the libraries of its browser
//! (ANDROID_DLEXT_WRITE_RELRO).
//!
//! The linker's list of objects is locked meanwhile, so that none is unmapped, and the engine's gate is open, so that no
//! fork is under way.
use super::own_stack;
use crate::abi::raw::{self, Errno, MapRequest};
use crate::abi::symbols::{Object, each_object};
use crate::abi::{allocator, system_call};
use crate::calls::{descriptors, filters};
use crate::state::process::{self, GlibcHeap, Process};
use std::fs::File;
use std::ops::Range;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::internals::mapping::Mapping;
use userswap::internals::signal::Blocked;
use userswap::internals::{Core, PAGE_BYTES, pages, process as calls};

/// Less is not worth a mapping.
const LEAST_BYTES: usize = 128 << 10;
/// Room for the text of /proc/self/maps: of a process with more mappings nothing is moved.
const TEXT_BYTES: usize = 8 << 20;

/// Objects that had been loaded at the last look.
static SEEN: AtomicU64 = AtomicU64::new(0);

/// A thread may have loaded something, and holds no lock of ours.
#[cold]
pub fn look_again() {
    // A program's allocator may be what asks, in its own locks, and making a file allocates.
    if let Some(process) = process::current().filter(|_| !allocator::is_foreign()) {
        let errno = raw::errno();
        give_to_file(process);
        raw::set_errno(errno);
    }
}

/// Moves what there is of such data; no lock of ours may be held.
pub fn give_to_file(process: &Process) {
    let Some(engine) = process.engine().filter(|_| !filters::is_filtered()) else { return };
    let Some(loads) = each_object(|object| Some(object.loads())) else { return };
    // Relaxed: looking once more or less is no matter.
    if SEEN.swap(loads, Ordering::Relaxed) == loads {
        return;
    }
    let _blocked = Blocked::new();
    own_stack::on_large_stack(|| {
        let _route = GlibcHeap::new();
        let _raised = descriptors::Raised::new();
        if let Some(mut mover) = Mover::new(engine.core()) {
            each_object(|object| mover.on_object(object));
        }
    });
}

/// The data of an object, of which there is enough, and an address of its code.
fn parts(object: &Object) -> impl Iterator<Item = (Range<usize>, usize)> {
    let code = object.text().map_or(0, |text| text.start);
    object.relocated().filter(|data| data.len() >= LEAST_BYTES).map(move |data| (data, code))
}

/// Writes data to a file.
struct Mover<'a> {
    core: &'a Core,
    maps: Maps,
    file: File,
    /// In bytes.
    written: usize,
    room: usize,
}

impl<'a> Mover<'a> {
    /// None when there is nothing to move, or nowhere.
    fn new(core: &'a Core) -> Option<Self> {
        let mut maps = Maps::open()?;
        maps.read()?;
        let mut room = 0;
        each_object::<()>(|object| {
            let unmoved = parts(object).filter(|(data, code)| maps.is_of_object(data, *code));
            room += unmoved.map(|(data, _)| data.len()).sum::<usize>();
            None
        });
        let file = (room > 0).then(|| core.file_for_data(room / PAGE_BYTES))??;
        Some(Self { core, maps, file, written: 0, room })
    }

    /// Something once no more can be moved.
    fn on_object(&mut self, object: &Object) -> Option<()> {
        parts(object).find_map(|(data, code)| self.take(&data, code).err())
    }

    fn take(&mut self, data: &Range<usize>, code: usize) -> Result<(), ()> {
        if data.len() > self.room - self.written {
            return Ok(());
        }
        // Nothing that is managed is touched inside: no fault would be served for one who waits there while a fork begins.
        let _inside = self.core.gate.try_enter().ok_or(())?;
        self.maps.read().ok_or(())?;
        if !self.maps.is_of_object(data, code) {
            return Ok(());
        }
        write_all(self.file.as_raw_fd(), data, self.written)?;
        if map_from(self.file.as_raw_fd(), data, self.written).is_err() {
            return self.is_unmoved(data, code);
        }
        self.written += data.len();
        self.core.note_data_in_file(data.len() / PAGE_BYTES);
        Ok(())
    }

    /// What could not be mapped is as it was, or lost.
    fn is_unmoved(&mut self, data: &Range<usize>, code: usize) -> Result<(), ()> {
        if self.maps.read().is_none() || !self.maps.is_of_object(data, code) {
            raw::stop("there was no memory for mapping a library's data again\n");
        }
        Err(())
    }
}

fn write_all(file: RawFd, data: &Range<usize>, offset: usize) -> Result<(), ()> {
    let mut done = 0;
    while done < data.len() {
        let passed = [file as usize, data.start + done, data.len() - done, offset + done, 0, 0];
        // A part of a page would be no multiple of the device's blocks.
        match system_call::make(libc::SYS_pwrite64, passed).cast_signed() {
            written if written > 0 && written as usize % PAGE_BYTES == 0 => {
                done += written as usize
            }
            _ => return Err(()),
        }
    }
    Ok(())
}

/// Maps what was written in the place of what it was written from: for other threads at once.
fn map_from(file: RawFd, data: &Range<usize>, offset: usize) -> Result<usize, Errno> {
    let (protection, flags) = (libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_FIXED);
    let (address, bytes, offset) = (data.start, data.len(), offset as i64);
    raw::map(MapRequest { address, bytes, protection, flags, fd: file, offset })
}

/// What is mapped where, as the kernel says it. Reading it allocates nothing.
struct Maps {
    file: File,
    text: Mapping,
    bytes: usize,
}

impl Maps {
    fn open() -> Option<Self> {
        let file = File::open("/proc/thread-self/maps").ok()?;
        Some(Self { file, text: Mapping::undumped(TEXT_BYTES).ok()?, bytes: 0 })
    }

    /// What is mapped now; None if that is more than there is room for.
    fn read(&mut self) -> Option<()> {
        let room = pages::view_mut(self.text.address(), self.text.bytes());
        self.bytes = calls::read_all_to(self.file.as_raw_fd(), room)?;
        Some(())
    }

    /// Whether all of some data is private memory for reading only, of the file that is mapped at an address.
    fn is_of_object(&self, data: &Range<usize>, code: usize) -> bool {
        let text = str::from_utf8(pages::view(self.text.address(), self.bytes)).unwrap_or_default();
        let all = || text.lines().filter_map(Entry::of);
        let at = |address: usize| all().find(|entry| entry.addresses.contains(&address));
        at(data.start).zip(at(code)).is_some_and(|(data_of, code_of)| {
            data.end <= data_of.addresses.end
                && data_of.protection == "r--p"
                && data_of.file == code_of.file
                && data_of.file.1 != "0"
        })
    }
}

/// A line of it.
struct Entry<'a> {
    addresses: Range<usize>,
    protection: &'a str,
    /// Device and number of the file.
    file: (&'a str, &'a str),
}

impl<'a> Entry<'a> {
    fn of(line: &'a str) -> Option<Self> {
        let mut words = line.split(' ');
        let (start, end) = words.next()?.split_once('-')?;
        let hex = |text| usize::from_str_radix(text, 16).ok();
        let protection = words.next()?;
        let file = (words.nth(1)?, words.next()?);
        Some(Self { addresses: hex(start)?..hex(end)?, protection, file })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_maps_is_read() {
        let line = "7f10-7f20 r--p 00001000 fe:00 131                 /usr/lib/a b.so";
        let entry = Entry::of(line).unwrap();
        assert_eq!((entry.addresses, entry.protection), (0x7f10..0x7f20, "r--p"));
        assert_eq!(entry.file, ("fe:00", "131"));
    }
}
