//! A block of pages at another address, where no thread of the program reaches it: there the kernel itself drops what no
//! device holds, many pages for one flush.
//!
//! Only UFFDIO_MOVE tells of a page alone whether a device holds it, and flushes every other CPU's TLB for it. The
//! kernel's reclaim tells as well: of pages given up by MADV_FREE it drops those that were not written to since, and that
//! nobody but the page tables refers to; MADV_PAGEOUT makes it do so at once. (try_to_unmap_one in mm/rmap.c; what
//! delivers into a page marks it dirty before it lets go of it, but for what `thread_status` looks for.) What is to be
//! dropped is copied in between, and held meanwhile, by a pipe, so that the kernel does not drop it sooner by itself.
//!
//! The address is the kernel's choice each time, and the whole range stays mapped until it is given up: nothing that another
//! thread maps can come to lie in it.
use super::kept_file::KeptFile;
use super::mapping::{self, Access, Mapping};
use super::own_fd::Own;
use super::pagemap::Pagemap;
use super::thread_status::Conditions;
use super::{PAGE_BYTES, pages};
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::MetadataExt;

/// Pages of a block that can be held: the pages of the largest pipe that everybody may have.
pub const HELD_MAX: usize = 256;

/// Tries to see it work: the kernel keeps a page that is just in a list of another CPU.
const TRIES: u32 = 3;

/// The pipe, and where the block is at the moment.
pub struct Alias {
    /// Of the block: its own address, where it is, and its length in bytes; 0 when there is none.
    from: usize,
    at: usize,
    bytes: usize,
    reader: Own<OwnedFd>,
    writer: Own<OwnedFd>,
    inode: u64,
    conditions: Conditions,
    /// What is mapped where: opened beforehand, as a program may use up its descriptors.
    maps: KeptFile,
    parts: [libc::iovec; HELD_MAX],
    held: usize,
    /// What is held is read to there when it is let go of.
    unused: Mapping,
}

// SAFETY: the addresses are numbers here, looked at by the kernel only.
unsafe impl Send for Alias {}

impl Alias {
    /// A pipe, and what is to be known of the calling thread; used by that alone.
    ///
    /// So many filters of its system calls are known to do no harm.
    ///
    /// # Errors
    /// No descriptors to be had, EPERM when the user's pipes are too large together, EOPNOTSUPP where system calls are
    /// filtered by others, memory is strictly accounted (which a mapping that moves leaves wrong), or the kernel drops what is held or
    /// keeps what is not.
    pub fn new(filters: u32) -> io::Result<Self> {
        let mut alias = Self::unasked(filters)?;
        // Asked first: the try itself makes the calls that might be filtered.
        let is_permitted = alias.may_take() && !is_strict();
        for _ in 0..TRIES {
            if is_permitted && alias.works()? && alias.puts_back()? {
                return Ok(alias);
            }
        }
        Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP))
    }

    fn unasked(filters: u32) -> io::Result<Self> {
        let conditions = Conditions::new(filters)?;
        let maps = KeptFile::open("/proc/thread-self/maps")?;
        let (reader, writer) = new_pipe()?;
        let inode = inode_of(writer.as_raw_fd())?;
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let (parts, held) = ([none; HELD_MAX], 0);
        let (from, at, bytes) = (0, 0, 0);
        let unused = Mapping::undumped(PAGE_BYTES)?;
        Ok(Self { from, at, bytes, reader, writer, inode, conditions, maps, parts, held, unused })
    }

    /// Its descriptors, of which a forked child has no use.
    pub fn descriptors(&self) -> impl Iterator<Item = RawFd> {
        let ends = [self.reader.as_raw_fd(), self.writer.as_raw_fd()];
        ends.into_iter().chain(self.conditions.descriptors()).chain(self.maps.descriptor())
    }

    /// Whether the calls that it takes are permitted still, and no device is known that would let go of a page without
    /// marking it.
    pub fn may_take(&self) -> bool {
        self.conditions.hold()
    }

    /// Where something is that lies at `address` otherwise.
    pub fn place_of(&self, address: usize) -> usize {
        self.at + (address - self.from)
    }

    /// Takes the pages of a range away; the range itself stays mapped, without pages.
    ///
    /// # Errors
    /// What mremap says: EFAULT where the range is not one mapping.
    ///
    /// # Panics
    /// One has been taken and not given up.
    pub fn take(&mut self, address: usize, bytes: usize) -> io::Result<()> {
        assert_eq!(self.bytes, 0, "one block at a time");
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_DONTUNMAP;
        // SAFETY: the caller owns the pages of the range. The raw system call passes by an interposed mremap.
        let at = unsafe { libc::syscall(libc::SYS_mremap, address, bytes, bytes, flags, 0usize) };
        if at == -1 {
            return Err(io::Error::last_os_error());
        }
        (self.from, self.at, self.bytes) = (address, at as usize, bytes);
        Ok(())
    }

    /// Puts one page back where it was, whatever holds it: its place gets the page's mapping, which is not registered.
    ///
    /// # Errors
    /// What mremap says.
    pub fn put_back(&self, address: usize) -> io::Result<()> {
        let (place, bytes) = (self.place_of(address), PAGE_BYTES);
        // The range stays mapped here, too: no hole is to be found by another thread's mmap.
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
        // SAFETY: the caller owns the page, and its place. The raw system call passes by an interposed mremap.
        let moved = unsafe { libc::syscall(libc::SYS_mremap, place, bytes, bytes, flags, address) };
        if moved == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    /// Gives a page the protection that its place has by now, for [`Self::put_back`]; false where nothing is mapped.
    ///
    /// # Errors
    /// What mprotect says, or what is mapped is not to be known.
    pub fn protect_as_its_place(&self, address: usize) -> io::Result<bool> {
        let Some(protection) = self.protection_at(address)? else { return Ok(false) };
        mapping::protect(self.place_of(address), PAGE_BYTES, protection).map(|()| true)
    }

    /// Lets a page be read where it is, whatever protection it was given for its place.
    pub fn open(&self, address: usize) {
        // Without room for one more mapping it has the protection with which it was taken.
        let _ = mapping::protect(self.place_of(address), PAGE_BYTES, libc::PROT_READ);
    }

    fn protection_at(&self, address: usize) -> io::Result<Option<i32>> {
        let maps = self.maps.descriptor().map_err(io::Error::from_raw_os_error)?;
        mapping::protection_at(maps, address)
    }

    /// Holds pages, of which it is given the places: the kernel does not drop them by itself until [`Self::copy_held`] or
    /// [`Self::let_go`]. False when that cannot be; then none is held.
    ///
    /// # Panics
    /// More than [`HELD_MAX`] pages, or some are held.
    pub fn hold(&mut self, places: impl Iterator<Item = usize>) -> bool {
        assert_eq!(self.held, 0, "what was held has been copied");
        // The program may have closed an end, and have something else under its number.
        let is_ours = |fd: &Own<OwnedFd>| inode_of(fd.as_raw_fd()).ok() == Some(self.inode);
        if !is_ours(&self.writer) || !is_ours(&self.reader) {
            return false;
        }
        let count = self.fill(places);
        let (fd, parts, flags) =
            (self.writer.as_raw_fd(), self.parts.as_ptr(), libc::SPLICE_F_NONBLOCK);
        // SAFETY: the kernel refers to pages that nobody else writes to. The raw system call passes by an interposed one.
        let held = unsafe { libc::syscall(libc::SYS_vmsplice, fd, parts, count, flags) };
        let bytes = usize::try_from(held).unwrap_or(0);
        self.held = bytes.div_ceil(PAGE_BYTES);
        let all = bytes == count * PAGE_BYTES;
        if !all {
            self.let_go();
        }
        all
    }

    /// Gives the pages of the block up, as far as nobody writes to them from now on.
    ///
    /// # Errors
    /// What madvise says.
    pub fn give_up(&self) -> io::Result<()> {
        mapping::advise(self.at, self.bytes, libc::MADV_FREE)
    }

    /// Copies the pages that are held to held frames, in their order, and lets go of them; false when the pipe is not
    /// ours any more.
    pub fn copy_held(&mut self, frames: impl Iterator<Item = usize>) -> bool {
        let count = self.fill(frames);
        assert_eq!(count, std::mem::take(&mut self.held), "a frame for each page that is held");
        let (mut from, fd) = (0, self.reader.as_raw_fd());
        if inode_of(fd).ok() != Some(self.inode) {
            return false;
        }
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
    pub fn drop_given_up(&self) -> io::Result<()> {
        mapping::advise(self.at, self.bytes, libc::MADV_PAGEOUT)
    }

    /// Whether a page that was given up, and has not been dropped a moment ago, is there; from then on it stays.
    ///
    /// Holding it answers that: of one that was dropped meanwhile the kernel holds its page of zeros. None when it cannot
    /// be held.
    pub fn keeps(&mut self, address: usize, pagemap: &Pagemap) -> Option<bool> {
        let place = self.place_of(address);
        if !self.hold(std::iter::once(place)) {
            return None;
        }
        let is_there = pagemap.is_zero_page(place).ok().map(|is_zero| !is_zero);
        // A write, which changes nothing, ends that it was given up.
        let stays = is_there == Some(true) && (pages::unshare(place) || unshare_closed(place));
        self.let_go();
        is_there.filter(|is_there| *is_there == stays)
    }

    /// Lets go of what is held.
    pub fn let_go(&mut self) {
        for _ in 0..std::mem::take(&mut self.held) {
            let (fd, to) = (self.reader.as_raw_fd(), self.unused.address());
            // SAFETY: the mapping has that many bytes. The raw system call passes by an interposed read.
            if unsafe { libc::syscall(libc::SYS_read, fd, to, PAGE_BYTES) } <= 0 {
                break;
            }
        }
    }

    /// The block is of no use any more, nor where it is.
    ///
    /// # Errors
    /// What munmap says.
    pub fn clear(&mut self) -> io::Result<()> {
        let (at, bytes) = (self.at, std::mem::take(&mut self.bytes));
        // SAFETY: the kernel gave us this range, and nothing was mapped there since. The raw system call passes by an
        // interposed munmap.
        let gone = unsafe { libc::syscall(libc::SYS_munmap, at, bytes) };
        if gone == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
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

    /// Whether this kernel keeps what is held, and drops what is not.
    fn works(&mut self) -> io::Result<bool> {
        let bytes = 3 * PAGE_BYTES;
        let (memory, frame) =
            (Mapping::new(bytes, Access::ReadWrite)?, Mapping::new(PAGE_BYTES, Access::ReadWrite)?);
        let first = memory.address();
        let there = [first, first + 2 * PAGE_BYTES];
        there.iter().for_each(|address| pages::view_mut(*address, PAGE_BYTES).fill(7));
        self.take(first, bytes)?;
        let places = there.map(|address| self.place_of(address));
        let pagemap = Pagemap::open();
        // The first is held throughout, as a device would: by a second pipe.
        let (other, device) = new_pipe()?;
        let part = libc::iovec { iov_base: places[0] as *mut _, iov_len: PAGE_BYTES };
        // SAFETY: as in `hold`.
        let lent = unsafe { libc::syscall(libc::SYS_vmsplice, device.as_raw_fd(), &part, 1, 0) };
        let held = self.hold(places.into_iter().skip(1));
        self.give_up()?;
        let copied = held && self.copy_held(std::iter::once(frame.address()));
        self.drop_given_up()?;
        let is_there = |place| pagemap.is_present(place);
        let seen = (is_there(places[0])?, is_there(places[1])?);
        let keeps = (self.keeps(there[0], &pagemap), self.keeps(there[1], &pagemap));
        drop(other);
        self.clear()?;
        let is_same = pages::view(frame.address(), PAGE_BYTES).iter().all(|byte| *byte == 7);
        let lent = lent == PAGE_BYTES as i64;
        Ok(lent && copied && is_same && seen == (true, false) && keeps == (Some(true), Some(false)))
    }

    /// Whether a page goes back with its mapping.
    fn puts_back(&mut self) -> io::Result<bool> {
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite)?;
        let address = memory.address();
        pages::view_mut(address, PAGE_BYTES).fill(7);
        self.take(address, PAGE_BYTES)?;
        let is_put = self.protect_as_its_place(address)?;
        self.put_back(address)?;
        self.clear()?;
        Ok(is_put && pages::view(address, PAGE_BYTES).iter().all(|byte| *byte == 7))
    }
}

impl Drop for Alias {
    fn drop(&mut self) {
        // After a try that ended half-way.
        if self.bytes > 0 {
            drop(self.clear());
        }
    }
}

/// Of a page that was not to be written to any more when it was taken.
fn unshare_closed(place: usize) -> bool {
    let open = libc::PROT_READ | libc::PROT_WRITE;
    mapping::protect(place, PAGE_BYTES, open).is_ok() && pages::unshare(place)
}

/// Whether memory is strictly accounted (vm.overcommit_memory=2), or that is not to be known.
fn is_strict() -> bool {
    let mode = std::fs::read_to_string("/proc/sys/vm/overcommit_memory");
    !matches!(mode.as_deref().map(str::trim), Ok("0" | "1"))
}

fn new_pipe() -> io::Result<(Own<OwnedFd>, Own<OwnedFd>)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the descriptors are new and ours.
    let [reader, writer] = ends.map(|fd| Own::raised(unsafe { OwnedFd::from_raw_fd(fd) }));
    let (fd, bytes) = (writer.as_raw_fd(), HELD_MAX * PAGE_BYTES);
    // SAFETY: changes our own pipe. The raw system call passes by an interposed fcntl, to which a number could be an address.
    if unsafe { libc::syscall(libc::SYS_fcntl, fd, libc::F_SETPIPE_SZ, bytes) } < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok((reader, writer))
}

fn inode_of(fd: RawFd) -> io::Result<u64> {
    // SAFETY: a borrowed number; what is there is only looked at.
    let file = std::mem::ManuallyDrop::new(unsafe { std::fs::File::from_raw_fd(fd) });
    let found = file.metadata()?;
    // Pipes have a file system of their own: a number of another one is not to be taken for one.
    Ok(found.ino() ^ found.dev() << 40)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::File;
    use std::os::unix::fs::FileExt;

    /// Three pages, of which the first and the last have content, taken away.
    fn taken() -> (Alias, Mapping) {
        let memory = Mapping::new(3 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut alias = Alias::unasked(0).unwrap();
        for page in [0, 2] {
            pages::view_mut(memory.address() + page * PAGE_BYTES, PAGE_BYTES).fill(page as u8 + 1);
        }
        alias.take(memory.address(), 3 * PAGE_BYTES).unwrap();
        (alias, memory)
    }

    #[test]
    fn what_is_held_is_copied_and_what_nobody_holds_is_dropped() {
        let mut alias = Alias::unasked(0).unwrap();
        assert!((0..TRIES).any(|_| alias.works().unwrap()), "as on every Linux since 6.8");
        let all = (alias.bytes, alias.held);
        assert_eq!(all, (0, 0));
    }

    #[test]
    fn a_page_goes_back_with_the_protection_that_its_place_has_by_now() {
        let (mut alias, memory) = taken();
        let (first, bytes) = (memory.address(), 3 * PAGE_BYTES);
        mapping::protect(first, bytes, libc::PROT_READ).unwrap();
        for page in [0, 2] {
            let address = first + page * PAGE_BYTES;
            assert!(alias.protect_as_its_place(address).unwrap());
            alias.put_back(address).unwrap();
            let is_same =
                pages::view(address, PAGE_BYTES).iter().all(|byte| *byte == page as u8 + 1);
            assert!(is_same, "page {page} is there again");
            assert_eq!(alias.protection_at(address).unwrap(), Some(libc::PROT_READ));
        }
        // The whole range is there until it is given up.
        assert!(alias.protection_at(alias.at + PAGE_BYTES).unwrap().is_some());
        alias.clear().unwrap();
    }

    #[test]
    fn a_page_is_kept_that_was_not_to_be_written_to_when_it_was_taken() {
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut alias = Alias::unasked(0).unwrap();
        pages::view_mut(memory.address(), PAGE_BYTES).fill(7);
        mapping::protect(memory.address(), PAGE_BYTES, libc::PROT_READ).unwrap();
        alias.take(memory.address(), PAGE_BYTES).unwrap();
        assert_eq!(alias.keeps(memory.address(), &Pagemap::open()), Some(true));
        alias.clear().unwrap();
    }

    /// A thread's stack is in core dumps.
    #[test]
    fn what_is_let_go_of_is_not_left_on_the_stack() {
        const SAID: u8 = 0xa7;
        let memory = Mapping::new(PAGE_BYTES, Access::ReadWrite).unwrap();
        let mut alias = Alias::unasked(0).unwrap();
        pages::view_mut(memory.address(), PAGE_BYTES).fill(SAID);
        alias.take(memory.address(), PAGE_BYTES).unwrap();
        let mut below = vec![0; 16 * PAGE_BYTES];
        let own = File::open("/proc/self/mem").unwrap();
        assert!(alias.hold(std::iter::once(alias.place_of(memory.address()))));
        alias.let_go();
        let here = (&raw const alias).addr();
        own.read_exact_at(&mut below, (here - 16 * PAGE_BYTES) as u64).unwrap();
        assert!(!below.windows(64).any(|bytes| bytes.iter().all(|byte| *byte == SAID)));
        alias.clear().unwrap();
    }

    #[test]
    fn a_pipe_that_was_closed_holds_nothing() {
        let (mut alias, memory) = taken();
        let place = alias.place_of(memory.address());
        assert!(alias.hold(std::iter::once(place)));
        alias.let_go();
        let other = new_pipe().unwrap().0;
        super::super::fd::replace(alias.reader.as_raw_fd(), other.as_raw_fd()).unwrap();
        assert!(!alias.hold(std::iter::once(place)), "another file has its number");
    }
}
