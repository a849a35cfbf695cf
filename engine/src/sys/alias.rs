//! A block of pages at another address of ours, where no thread of the program reaches it: there the kernel itself drops
//! what no device holds, many pages for one flush.
//!
//! Only UFFDIO_MOVE tells of a page alone whether a device holds it, and flushes every other CPU's TLB for it. The
//! kernel's reclaim tells as well: of pages given up by MADV_FREE it drops those that were not written to since, and that
//! nobody but the page tables refers to; MADV_PAGEOUT makes it do so at once. (try_to_unmap_one in mm/rmap.c; what
//! delivers into a page marks it dirty before it lets go of it.) What is to be dropped is copied in between, and held
//! meanwhile, by a pipe, so that the kernel does not drop it sooner by itself.
use super::mapping::{self, Access, Mapping};
use super::own_fd::Own;
use super::thread_status::Conditions;
use super::{PAGE_BYTES, pages};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// Bytes of a block: what one table of the kernel's maps.
pub const BLOCK_BYTES: usize = 2 << 20;

/// Pages of a block that can be held: the pages of the largest pipe that everybody may have.
pub const HELD_MAX: usize = 256;

/// The other address, and the pipe.
pub struct Alias {
    space: Mapping,
    reader: Own<OwnedFd>,
    writer: Own<OwnedFd>,
    inode: u64,
    conditions: Conditions,
    parts: [libc::iovec; HELD_MAX],
    held: usize,
}

// SAFETY: the addresses are numbers here, looked at by the kernel only.
unsafe impl Send for Alias {}

impl Alias {
    /// Address space for a block, and a pipe.
    ///
    /// # Errors
    /// No address space or descriptors to be had, EPERM when the user's pipes are too large together, EOPNOTSUPP where the
    /// kernel drops what is held or keeps what is not.
    pub fn new() -> io::Result<Self> {
        let (reader, writer) = new_pipe()?;
        let inode = inode_of(writer.as_raw_fd())?;
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let space = Mapping::new(2 * BLOCK_BYTES, Access::Reserved)?;
        let conditions = Conditions::new()?;
        let parts = [none; HELD_MAX];
        let mut alias = Self { space, reader, writer, inode, conditions, parts, held: 0 };
        if alias.works()? { Ok(alias) } else { Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)) }
    }

    /// Its descriptors, of which a forked child has no use.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let ends = [self.reader.as_raw_fd(), self.writer.as_raw_fd()];
        ends.into_iter().chain(self.conditions.descriptor())
    }

    /// Whether the calls that it takes are permitted still, and the kernel counts no page of the process as pinned or
    /// locked: a registered buffer's device lets go of a page without marking it.
    pub fn may_take(&self) -> bool {
        self.conditions.hold()
    }

    /// Where the block is that lies at `address` otherwise: in the same place of a block of page tables.
    pub fn address_for(&self, address: usize) -> usize {
        self.space.address().next_multiple_of(BLOCK_BYTES) + address % BLOCK_BYTES
    }

    /// Takes the pages of a range within a block away to here; the range stays mapped, without pages.
    ///
    /// # Errors
    /// What mremap says: EFAULT where the range is not one mapping.
    pub fn take(&self, address: usize, bytes: usize) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        move_mapping(address, bytes, flags, self.address_for(address))
    }

    /// Puts one page back where it was, whatever holds it: its place gets the page's mapping, which is not registered.
    ///
    /// # Errors
    /// What mremap says.
    pub fn put_back(&self, address: usize) -> io::Result<()> {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        move_mapping(self.address_for(address), PAGE_BYTES, flags, address)
    }

    /// Holds pages that are here, of which it is given the addresses: the kernel does not drop them by itself until
    /// [`Self::copy_held`]. False when that cannot be; then none is held.
    ///
    /// # Panics
    /// More than [`HELD_MAX`] pages, or some are held.
    pub fn hold(&mut self, addresses: impl Iterator<Item = usize>) -> bool {
        assert_eq!(self.held, 0, "what was held has been copied");
        // The program may have closed the pipe, and have something else under its number.
        if inode_of(self.writer.as_raw_fd()).ok() != Some(self.inode) {
            return false;
        }
        let count = self.fill(addresses);
        let fd = self.writer.as_raw_fd();
        // SAFETY: the kernel refers to pages that nobody else writes to. The raw system call passes by an interposed one.
        let held = unsafe { libc::syscall(libc::SYS_vmsplice, fd, self.parts.as_ptr(), count, 0) };
        let bytes = usize::try_from(held).unwrap_or(0);
        self.held = bytes.div_ceil(PAGE_BYTES);
        let all = bytes == count * PAGE_BYTES;
        if !all {
            self.let_go(bytes);
        }
        all
    }

    /// Gives the pages of a range that is here up, as far as nobody writes to them from now on.
    ///
    /// # Errors
    /// What madvise says.
    pub fn give_up(&self, address: usize, bytes: usize) -> io::Result<()> {
        mapping::advise(self.address_for(address), bytes, libc::MADV_FREE)
    }

    /// Copies the pages that are held to held frames, in their order, and lets go of them; false when the pipe is not
    /// ours any more.
    pub fn copy_held(&mut self, frames: impl Iterator<Item = usize>) -> bool {
        let count = self.fill(frames);
        assert_eq!(count, std::mem::take(&mut self.held), "a frame for each page that is held");
        let (mut from, fd) = (0, self.reader.as_raw_fd());
        while from < count {
            let parts = &self.parts[from..count];
            // SAFETY: the caller holds these frames. The raw system call passes by an interposed readv.
            let read = unsafe { libc::syscall(libc::SYS_readv, fd, parts.as_ptr(), parts.len()) };
            match usize::try_from(read) {
                // A pipe gives whole pages as long as whole ones are asked for.
                Ok(bytes) if bytes > 0 && bytes.is_multiple_of(PAGE_BYTES) => {
                    from += bytes / PAGE_BYTES
                }
                _ => return false,
            }
        }
        true
    }

    /// Has the kernel drop what was given up and is held by nobody.
    ///
    /// # Errors
    /// What madvise says.
    pub fn drop_given_up(&self, address: usize, bytes: usize) -> io::Result<()> {
        mapping::advise(self.address_for(address), bytes, libc::MADV_PAGEOUT)
    }

    /// Nothing is here any more but address space.
    ///
    /// # Errors
    /// What mmap says.
    pub fn clear(&self) -> io::Result<()> {
        self.space.reserve_again()
    }

    fn fill(&mut self, addresses: impl Iterator<Item = usize>) -> usize {
        let mut count = 0;
        for address in addresses {
            let base = address as *mut libc::c_void;
            self.parts[count] = libc::iovec { iov_base: base, iov_len: PAGE_BYTES };
            count += 1;
        }
        count
    }

    /// Takes `bytes` bytes out of the pipe that nobody needs.
    fn let_go(&mut self, mut bytes: usize) {
        let mut unused = [0u8; PAGE_BYTES];
        while bytes > 0 {
            let most = bytes.min(PAGE_BYTES);
            // SAFETY: the array has that many bytes.
            let read = unsafe {
                libc::syscall(libc::SYS_read, self.reader.as_raw_fd(), unused.as_mut_ptr(), most)
            };
            if read <= 0 {
                break;
            }
            bytes -= read as usize;
        }
        self.held = 0;
    }

    /// Whether this kernel keeps what is held, and drops what is not.
    fn works(&mut self) -> io::Result<bool> {
        let memory = Mapping::new(2 * BLOCK_BYTES, Access::ReadWrite)?;
        let first = memory.address().next_multiple_of(BLOCK_BYTES);
        let addresses = [first, first + 2 * PAGE_BYTES];
        addresses.iter().for_each(|address| pages::view_mut(*address, PAGE_BYTES).fill(7));
        let frames = Mapping::new(PAGE_BYTES, Access::ReadWrite)?;
        let bytes = 3 * PAGE_BYTES;
        self.take(first, bytes)?;
        let here = addresses.map(|address| self.address_for(address));
        let held = self.hold([here[0]].into_iter());
        self.give_up(first, bytes)?;
        self.drop_given_up(first, bytes)?;
        let copied = held && self.copy_held([frames.address()].into_iter());
        let pagemap = super::pagemap::Pagemap::open();
        let is_there = |address| pagemap.is_present(address);
        let kept = (is_there(here[0])?, is_there(here[1])?);
        let is_same = pages::view(frames.address(), PAGE_BYTES).iter().all(|byte| *byte == 7);
        self.clear()?;
        Ok(copied && is_same && kept == (true, false))
    }
}

fn move_mapping(from: usize, bytes: usize, flags: i32, to: usize) -> io::Result<()> {
    // SAFETY: the caller owns both ranges: the pages of one, and the place of the other. The raw system call passes by an
    // interposed mremap.
    let moved = unsafe { libc::syscall(libc::SYS_mremap, from, bytes, bytes, flags, to) };
    if moved == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn new_pipe() -> io::Result<(Own<OwnedFd>, Own<OwnedFd>)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptors are new and ours.
    let [reader, writer] = ends.map(|fd| Own::raised(unsafe { OwnedFd::from_raw_fd(fd) }));
    let bytes = (HELD_MAX * PAGE_BYTES) as i32;
    // SAFETY: changes our own pipe.
    if unsafe { libc::fcntl(writer.as_raw_fd(), libc::F_SETPIPE_SZ, bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((reader, writer))
}

fn inode_of(fd: RawFd) -> io::Result<u64> {
    // SAFETY: a borrowed number; what is there is only looked at.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    Ok(file.metadata()?.ino())
}
