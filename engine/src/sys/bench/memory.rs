//! The load's memory: one mapping, or one block of malloc, seen as 8-byte words.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::ptr::NonNull;
use std::sync::atomic::AtomicU64;

/// What backs a block of memory.
#[derive(Debug)]
pub enum Backing<'a> {
    /// A private mapping of this file, which is `/dev/zero` by default.
    Private(&'a File),
    /// A shared mapping of this file from this byte on.
    Shared(&'a File, u64),
    /// A private anonymous mapping.
    Anonymous,
    /// The C library's malloc.
    Malloc,
}

/// What may be done with a mapping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protection {
    /// Reading only.
    Read,
    /// Reading and writing.
    ReadWrite,
}

/// When a mapping gets its pages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Populate {
    /// Each when it is first touched.
    OnTouch,
    /// All when it is made (MAP_POPULATE).
    AtOnce,
}

#[derive(Debug, Clone, Copy)]
enum Origin {
    Mmap,
    Malloc,
}

/// A block of memory that this process owns, unmapped when dropped.
#[derive(Debug)]
pub struct Memory {
    start: NonNull<u8>,
    bytes: usize,
    origin: Origin,
}

// SAFETY: the block belongs to the value alone and is reached only as atomics.
unsafe impl Send for Memory {}
// SAFETY: as above; atomics may be shared between threads.
unsafe impl Sync for Memory {}

impl Memory {
    /// Gets `bytes` bytes of memory; fails as mmap or malloc does.
    pub fn new(
        backing: &Backing<'_>,
        bytes: usize,
        protection: Protection,
        populate: Populate,
    ) -> io::Result<Self> {
        let (flags, file, offset) = match backing {
            Backing::Malloc => return Self::malloc(bytes),
            Backing::Private(file) => (libc::MAP_PRIVATE, file.as_raw_fd(), 0),
            Backing::Shared(file, offset) => (libc::MAP_SHARED, file.as_raw_fd(), *offset),
            Backing::Anonymous => (libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1, 0),
        };
        let flags = match populate {
            Populate::OnTouch => flags,
            Populate::AtOnce => flags | libc::MAP_POPULATE,
        };
        let protection = match protection {
            Protection::Read => libc::PROT_READ,
            Protection::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        };
        let offset = libc::off_t::try_from(offset).map_err(io::Error::other)?;
        // SAFETY: the kernel chooses the address, so no existing mapping is replaced.
        let start =
            unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, file, offset) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let start = NonNull::new(start.cast()).expect("the kernel never chooses address 0");
        Ok(Self { start, bytes, origin: Origin::Mmap })
    }

    fn malloc(bytes: usize) -> io::Result<Self> {
        // calloc, because reading the uninitialised words of malloc is undefined.
        // SAFETY: calloc has no preconditions.
        let start = unsafe { libc::calloc(bytes, 1) };
        let start = NonNull::new(start.cast()).ok_or_else(io::Error::last_os_error)?;
        Ok(Self { start, bytes, origin: Origin::Malloc })
    }

    /// The block as words. Atomics, because threads may share the block; a relaxed access is one
    /// plain machine instruction that the compiler neither drops nor merges with its neighbours.
    pub fn words(&self) -> &[AtomicU64] {
        let words = self.bytes / size_of::<AtomicU64>();
        // SAFETY: both origins align to 16 bytes at least, the block is initialised (zeros or a
        // file), lives as long as `self`, and is reached in no other way.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr().cast(), words) }
    }

    /// Has the kernel page the block out.
    pub fn page_out(&self) -> io::Result<()> {
        // SAFETY: the range is the block's own, and the advice changes no byte of it.
        let advised =
            unsafe { libc::madvise(self.start.as_ptr().cast(), self.bytes, libc::MADV_PAGEOUT) };
        super::check(advised).map(drop)
    }

    /// Locks the block in RAM.
    pub fn lock(&self) -> io::Result<()> {
        // SAFETY: the range is the block's own.
        super::check(unsafe { libc::mlock(self.start.as_ptr().cast(), self.bytes) }).map(drop)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        let start = self.start.as_ptr().cast();
        match self.origin {
            // SAFETY: the range is the block's own, and no reference outlives `self`.
            Origin::Mmap => drop(unsafe { libc::munmap(start, self.bytes) }),
            // SAFETY: the pointer came from calloc and is freed once.
            Origin::Malloc => unsafe { libc::free(start) },
        }
    }
}
