//! Which pages of a range have something mapped: PAGEMAP_SCAN (6.7), /proc/thread-self/pagemap before.
//!
//! A thread's own directory in /proc: that of the process is its main thread's, empty once that has ended.
use super::kept_file::KeptFile;
use super::{PAGE_BYTES, numa, process};
use std::io;
use std::ops::Range;
use std::os::fd::RawFd;

const SCAN: u64 = (3 << 30) | (96 << 16) | ((b'f' as u64) << 8) | 16;
const IS_PRESENT: u64 = 1 << 3;
const IS_SWAPPED: u64 = 1 << 4;
const IS_ZERO_PAGE: u64 = 1 << 5;
const REGIONS: usize = 256;
/// Entries of /proc/thread-self/pagemap read at a time.
const ENTRIES: usize = 4096;

#[repr(C)]
#[derive(Default)]
struct ScanArg {
    size: u64,
    flags: u64,
    start: u64,
    end: u64,
    walk_end: u64,
    regions: u64,
    regions_max: u64,
    max_pages: u64,
    inverted: u64,
    all_of: u64,
    any_of: u64,
    return_mask: u64,
}

#[repr(C)]
#[derive(Clone, Copy, Default)]
struct Region {
    start: u64,
    end: u64,
    categories: u64,
}

/// The page map, if it could be opened.
#[derive(Debug)]
pub struct Pagemap(KeptFile);

impl Pagemap {
    /// Opens it; without it all that is asked of it is an error.
    pub fn open() -> Self {
        Self(KeptFile::open("/proc/thread-self/pagemap").unwrap_or_else(|_| KeptFile::none()))
    }

    /// After fork, in the child: what was opened is the parent's, and is replaced or never used again.
    pub fn renew(&self) {
        // What is asked of it is an error then.
        let _ = self.0.renew();
    }

    /// Whether something is mapped at `address`, or the kernel has it in its own swap.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn is_present(&self, address: usize) -> io::Result<bool> {
        let mut entry = [0u8; 8];
        read_at(self.descriptor()?, address, &mut entry)?;
        Ok(entry[7] & 0xC0 != 0)
    }

    /// For many looks in a row: finds out only once whether the file is still its own.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn entries(&self) -> io::Result<Entries> {
        self.descriptor().map(Entries)
    }

    /// Whether the kernel's page of zeros is mapped at `address`, where something is mapped.
    ///
    /// # Errors
    /// It could not be opened; before Linux 6.7 move_pages is not permitted, or the kernel has it not.
    pub fn is_zero_page(&self, address: usize) -> io::Result<bool> {
        let mut region = [Region::default()];
        let bounds = address..address + PAGE_BYTES;
        match scan(self.descriptor()?, bounds, IS_ZERO_PAGE, &mut region) {
            Ok((found, _)) => Ok(found > 0),
            Err(_) => numa::is_zero_page(address),
        }
    }

    /// Calls `each` with the bounds of every stretch in `start..end` that has pages, present or in the kernel's
    /// own swap.
    ///
    /// # Errors
    /// It could not be opened.
    pub fn for_each_present(
        &self,
        start: usize,
        end: usize,
        mut each: impl FnMut(usize, usize),
    ) -> io::Result<()> {
        let fd = self.descriptor()?;
        let mut from = start;
        while from < end {
            let mut regions = [Region::default(); REGIONS];
            let Ok((found, walked)) = scan(fd, from..end, IS_PRESENT | IS_SWAPPED, &mut regions)
            else {
                return read_entries(fd, from, end, each);
            };
            for region in &regions[..found] {
                each(region.start as usize, region.end as usize);
            }
            from = walked;
        }
        Ok(())
    }

    fn descriptor(&self) -> io::Result<RawFd> {
        self.0.descriptor().map_err(io::Error::from_raw_os_error)
    }
}

/// Finds the stretches of a range that are of one of `categories`; returns how many, and how far it has come.
fn scan(
    fd: RawFd,
    bounds: Range<usize>,
    categories: u64,
    regions: &mut [Region],
) -> io::Result<(usize, usize)> {
    let mut argument = ScanArg {
        size: size_of::<ScanArg>() as u64,
        start: bounds.start as u64,
        end: bounds.end as u64,
        regions: regions.as_mut_ptr() as u64,
        regions_max: regions.len() as u64,
        any_of: categories,
        return_mask: categories,
        ..ScanArg::default()
    };
    // SAFETY: the argument is laid out as the kernel's pm_scan_arg, and `regions` has that many elements.
    let found = unsafe { libc::ioctl(fd, SCAN, std::ptr::from_mut(&mut argument)) };
    let found = usize::try_from(found).map_err(|_| io::Error::last_os_error())?;
    Ok((found, argument.walk_end as usize))
}

/// What the page map says of a range.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Look {
    /// One of its pages is a guard of the kernel's (MADV_GUARD_INSTALL; seen since Linux 6.15).
    pub has_guard: bool,
    /// Pages that are there.
    pub present: usize,
    /// Those among them that are mapped elsewhere, too, or are the page of zeros.
    pub shared: usize,
}

/// The page map, for the moment.
#[derive(Clone, Copy, Debug)]
pub struct Entries(RawFd);

impl Entries {
    /// What there is to say of `pages` pages from `address` on.
    ///
    /// # Errors
    /// The error number.
    pub fn look(self, address: usize, pages: usize) -> io::Result<Look> {
        let mut look = Look::default();
        let mut entries = [0u8; 8 * 64];
        for first in (0..pages).step_by(64) {
            let part = &mut entries[..8 * (pages - first).min(64)];
            read_at(self.0, address + first * PAGE_BYTES, part)?;
            for entry in part.chunks_exact(8) {
                // Bits 58, 63 and 56.
                look.has_guard |= entry[7] & 4 != 0;
                look.present += usize::from(entry[7] & 0x80 != 0);
                look.shared += usize::from(entry[7] & 0x81 == 0x80);
            }
        }
        Ok(look)
    }

    /// Whether a page is mapped at `address` and protected against writing by userfaultfd. False without an answer.
    pub fn is_protected(self, address: usize) -> bool {
        let mut entry = [0u8; 8];
        // Bits 63 and 57.
        read_at(self.0, address, &mut entry).is_ok() && entry[7] & 0x82 == 0x82
    }
}

fn read_at(fd: RawFd, address: usize, entries: &mut [u8]) -> io::Result<()> {
    let (to, bytes) = (entries.as_mut_ptr() as usize, entries.len());
    process::read_at(fd, address / PAGE_BYTES * 8, to, bytes).map_err(io::Error::from_raw_os_error)
}

fn read_entries(
    fd: RawFd,
    start: usize,
    end: usize,
    mut each: impl FnMut(usize, usize),
) -> io::Result<()> {
    let mut bytes = vec![0u8; ENTRIES * 8];
    let mut from = start;
    while from < end {
        let count = ENTRIES.min((end - from) / PAGE_BYTES);
        read_at(fd, from, &mut bytes[..count * 8])?;
        for (index, entry) in bytes[..count * 8].chunks_exact(8).enumerate() {
            // Bit 63 present, bit 62 swapped: both are in the last byte.
            if entry[7] & 0xC0 != 0 {
                let page = from + index * PAGE_BYTES;
                each(page, page + PAGE_BYTES);
            }
        }
        from += count * PAGE_BYTES;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::mapping::{Access, Mapping};
    use super::super::pages;
    use super::*;

    #[test]
    fn both_ways_find_exactly_the_touched_pages() {
        let memory = Mapping::new(64 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let (start, end) = (memory.address(), memory.address() + memory.bytes());
        for page in [3, 4, 5, 40] {
            pages::view_mut(start + page * PAGE_BYTES, 1)[0] = 1;
        }
        let mut scanned = Vec::new();
        let mut listed = Vec::new();
        let collect = |found: &mut Vec<usize>, from: usize, to: usize| {
            found.extend(
                (from..to).step_by(PAGE_BYTES).map(|address| (address - start) / PAGE_BYTES),
            );
        };
        let map = Pagemap::open();
        map.for_each_present(start, end, |from, to| collect(&mut scanned, from, to)).unwrap();
        let fd = map.descriptor().unwrap();
        read_entries(fd, start, end, |from, to| collect(&mut listed, from, to)).unwrap();
        assert_eq!((scanned, listed), (vec![3, 4, 5, 40], vec![3, 4, 5, 40]));
    }

    #[test]
    fn both_ways_tell_the_page_of_zeros_from_a_page_with_zeros() {
        let memory = Mapping::new(3 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let page = |index: usize| memory.address() + index * PAGE_BYTES;
        pages::view_mut(page(0), 1)[0] = 0;
        assert_eq!(pages::view(page(1), 1), [0]);
        let map = Pagemap::open();
        for is_zero_page in [Pagemap::is_zero_page, |_: &Pagemap, at| numa::is_zero_page(at)] {
            let answers = [0, 1].map(|index| is_zero_page(&map, page(index)).unwrap());
            assert_eq!(answers, [false, true]);
        }
        let entries = map.entries().unwrap();
        assert_eq!(
            entries.look(page(0), 3).unwrap(),
            Look { has_guard: false, present: 2, shared: 1 }
        );
    }
}
