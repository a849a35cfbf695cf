//! Anonymous mappings: address space that costs nothing until it is touched.
use super::{PAGE_BYTES, process};
use std::fs::File;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU16, AtomicU32, AtomicU64};

/// What a new mapping may be used for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    /// Address space only; touching it is an error.
    Reserved,
    /// Readable and writable.
    ReadWrite,
    /// The same, and code may run there.
    Executable,
}

/// A mapping that is removed when dropped.
#[derive(Debug)]
pub struct Mapping {
    address: usize,
    bytes: usize,
}

impl Mapping {
    /// Reserves `bytes` of address space without committing memory.
    ///
    /// After mlockall with MCL_FUTURE the kernel locks and fills every new mapping: one without access is not filled,
    /// and is unlocked before it gets its access. Memory that is locked can neither be dropped nor exchanged with
    /// memory that is not.
    ///
    /// # Errors
    /// What mmap and mprotect say: not enough address space, or strict overcommit.
    pub fn new(bytes: usize, access: Access) -> io::Result<Self> {
        Self::make(bytes, access, libc::MAP_PRIVATE)
    }

    /// The engine's own memory, readable and writable, that is in no core dump: what was the program's passes through it, or
    /// it would only make the dump larger.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub fn undumped(bytes: usize) -> io::Result<Self> {
        let mapping = Self::new(bytes, Access::ReadWrite)?;
        mapping.advise(0, bytes, libc::MADV_DONTDUMP)?;
        Ok(mapping)
    }

    /// Memory that children made by fork share instead of getting a copy.
    ///
    /// # Errors
    /// As [`Mapping::new`].
    pub fn shared(bytes: usize, access: Access) -> io::Result<Self> {
        Self::make(bytes, access, libc::MAP_SHARED)
    }

    /// The first bytes of a file, readable and writable, which all that map it share.
    ///
    /// # Errors
    /// What mmap says.
    pub fn of_file(file: &File, bytes: usize) -> io::Result<Self> {
        Self::of_part(file.as_raw_fd(), 0, bytes)
    }

    /// The same of a part of a file that is open, from a whole page on.
    ///
    /// # Errors
    /// What mmap says.
    pub fn of_part(fd: RawFd, offset: u64, bytes: usize) -> io::Result<Self> {
        let (access, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        let anywhere = 0usize;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists. The raw
        // system call passes by an interposed mmap.
        let address =
            unsafe { libc::syscall(libc::SYS_mmap, anywhere, bytes, access, flags, fd, offset) };
        match address {
            -1 => Err(io::Error::last_os_error()),
            address => Ok(Self { address: address as usize, bytes }),
        }
    }

    fn make(bytes: usize, access: Access, sharing: i32) -> io::Result<Self> {
        let flags = sharing | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
        // SAFETY: a new mapping at an address of the kernel's choice touches nothing that exists. The raw
        // system call passes by an interposed mmap.
        let address =
            unsafe { libc::syscall(libc::SYS_mmap, 0, bytes, libc::PROT_NONE, flags, -1, 0) };
        if address == -1 {
            return Err(io::Error::last_os_error());
        }
        let mapping = Self { address: address as usize, bytes };
        unlock(mapping.address, bytes);
        match access {
            Access::Reserved => {}
            Access::ReadWrite => mapping.open(libc::PROT_READ | libc::PROT_WRITE)?,
            Access::Executable => {
                mapping.open(libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC)?;
            }
        }
        Ok(mapping)
    }

    /// Reserves exactly this address space, and only if nothing is there.
    ///
    /// # Errors
    /// What mmap says: EEXIST where something is mapped.
    pub fn reserve_at(address: usize, bytes: usize) -> io::Result<Self> {
        let flags = libc::MAP_PRIVATE
            | libc::MAP_ANONYMOUS
            | libc::MAP_NORESERVE
            | libc::MAP_FIXED_NOREPLACE;
        let none = libc::PROT_NONE;
        // SAFETY: it replaces nothing. The raw system call passes by an interposed mmap.
        let made = unsafe { libc::syscall(libc::SYS_mmap, address, bytes, none, flags, -1, 0) };
        if made == -1 {
            return Err(io::Error::last_os_error());
        }
        unlock(address, bytes);
        Ok(Self { address, bytes })
    }

    fn open(&self, protection: i32) -> io::Result<()> {
        // SAFETY: the mapping is ours alone. The raw system call passes by an interposed mprotect.
        match unsafe { libc::syscall(libc::SYS_mprotect, self.address, self.bytes, protection) } {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    /// The address of its first byte; page aligned.
    pub fn address(&self) -> usize {
        self.address
    }

    /// Length in bytes, as it was asked for.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    /// madvise for a part of the mapping, `offset` in bytes from its start.
    ///
    /// # Errors
    /// What madvise says.
    pub fn advise(&self, offset: usize, bytes: usize, advice: i32) -> io::Result<()> {
        assert!(offset + bytes <= self.bytes, "advice reaches beyond the mapping");
        advise(self.address + offset, bytes, advice)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: this mapping is ours alone, and nothing borrows from it any more.
        unsafe { libc::syscall(libc::SYS_munmap, self.address, self.bytes) };
    }
}

/// madvise by raw system call, past an interposed one.
///
/// # Errors
/// What the kernel says.
pub fn advise(address: usize, bytes: usize, advice: i32) -> io::Result<()> {
    // SAFETY: the engine calls this for ranges it owns; DONTNEED is used only on pages it holds.
    match unsafe { libc::syscall(libc::SYS_madvise, address, bytes, advice) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// mprotect by raw system call, past an interposed one.
///
/// # Errors
/// What the kernel says.
pub fn protect(address: usize, bytes: usize, protection: i32) -> io::Result<()> {
    // SAFETY: the engine calls this for ranges it owns.
    match unsafe { libc::syscall(libc::SYS_mprotect, address, bytes, protection) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// The protection of what is mapped at an address, by a process's map; None where nothing is.
///
/// # Errors
/// The map cannot be read.
pub fn protection_at(map: RawFd, address: usize) -> io::Result<Option<i32>> {
    let lines = process::read_all(map)?;
    Ok(String::from_utf8_lossy(&lines).lines().find_map(|line| protection_in(line, address)))
}

/// What a line of the map says of an address, if it is about it.
fn protection_in(line: &str, address: usize) -> Option<i32> {
    let (range, rest) = line.split_once(' ')?;
    let (start, end) = range.split_once('-')?;
    let number = |text| usize::from_str_radix(text, 16).ok();
    if !(number(start)?..number(end)?).contains(&address) {
        return None;
    }
    let bit = |letter, bit| if rest[..3].contains(letter) { bit } else { 0 };
    Some(bit('r', libc::PROT_READ) | bit('w', libc::PROT_WRITE) | bit('x', libc::PROT_EXEC))
}

/// Drops the memory of a range: what is touched there again is missing.
///
/// # Errors
/// The error number of madvise.
pub fn drop_memory(address: usize, bytes: usize) -> Result<(), i32> {
    advise(address, bytes, libc::MADV_DONTNEED)
        .map_err(|error| error.raw_os_error().unwrap_or(libc::EINVAL))
}

/// Undoes the kernel's lock on a range, which nobody may have locked.
pub fn unlock(address: usize, bytes: usize) {
    // SAFETY: changes only where the pages may be. Holes in the range are no concern.
    unsafe { libc::syscall(libc::SYS_munlock, address, bytes) };
}

/// Types for which all-zero bytes are a valid value.
///
/// # Safety
/// Zeroed memory must be a valid value of the type.
pub unsafe trait Zeroable {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU64 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU32 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU16 {}
// SAFETY: an integer.
unsafe impl Zeroable for AtomicU8 {}
// SAFETY: integers; all-zero is documented as never used.
unsafe impl Zeroable for userswap_policy::cells::Slab {}
// SAFETY: two integers; all-zero is documented as "on no list".
unsafe impl<const BITS: u32> Zeroable for userswap_policy::lru::ring::Link<BITS> {}

/// A huge array whose elements start as zero and take memory only where they are touched.
#[derive(Debug)]
pub struct ZeroedSlice<T> {
    mapping: Mapping,
    length: usize,
    element: PhantomData<T>,
}

impl<T: Zeroable> ZeroedSlice<T> {
    /// `length` zeroed elements.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(length: usize) -> io::Result<Self> {
        let bytes = (length * size_of::<T>()).next_multiple_of(PAGE_BYTES).max(PAGE_BYTES);
        let mapping = Mapping::undumped(bytes)?;
        Ok(Self { mapping, length, element: PhantomData })
    }
}

impl<T> AsRef<[T]> for ZeroedSlice<T> {
    fn as_ref(&self) -> &[T] {
        // SAFETY: the mapping holds `length` elements, page aligned, valid when zero (Zeroable), and lives
        // as long as `self`.
        unsafe { std::slice::from_raw_parts(self.mapping.address as *const T, self.length) }
    }
}

impl<T> AsMut<[T]> for ZeroedSlice<T> {
    fn as_mut(&mut self) -> &mut [T] {
        // SAFETY: as above, and `self` is borrowed exclusively.
        unsafe { std::slice::from_raw_parts_mut(self.mapping.address as *mut T, self.length) }
    }
}

impl<T> std::ops::Deref for ZeroedSlice<T> {
    type Target = [T];
    fn deref(&self) -> &[T] {
        self.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_protection_is_found_by_address() {
        let memory = Mapping::new(3 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let middle = memory.address() + PAGE_BYTES;
        let maps = File::open("/proc/thread-self/maps").unwrap();
        let protection_at = |address| protection_at(maps.as_raw_fd(), address);
        for protection in [libc::PROT_NONE, libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
            protect(middle, PAGE_BYTES, protection).unwrap();
            assert_eq!(protection_at(middle + 7).unwrap(), Some(protection));
            let open = libc::PROT_READ | libc::PROT_WRITE;
            assert_eq!(protection_at(middle - 1).unwrap(), Some(open));
        }
        assert_eq!(protection_at(7).unwrap(), None);
    }
}
