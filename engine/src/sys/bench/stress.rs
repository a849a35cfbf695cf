//! Memory to which the stress test does whatever a program may do to its own.
//!
//! A page that the engine has lost raises SIGBUS; [`catch_lost`] puts a page of zeros in its place and counts that, so
//! that the thread goes on where it was.
use super::check;
use crate::sys::PAGE_BYTES;
use crate::sys::request::{Direction, Pieces, Request};
use crate::sys::uring::Ring;
use std::cell::Cell;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::process::ExitStatus;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Words of a page.
pub const WORDS: usize = PAGE_BYTES / 8;

/// Areas that lost pages are caught in.
const AREAS_MAX: usize = 64;

/// How a process ends that has lost a page which is none of an area's: of its own heap, for instance.
pub const STATUS_LOST_OWN: i32 = 7;

/// First addresses and ends of the areas there are; 0 for none.
static AREAS: [[AtomicUsize; 2]; AREAS_MAX] =
    [const { [AtomicUsize::new(0), AtomicUsize::new(0)] }; AREAS_MAX];

/// Pages that were lost, by all threads of this process.
pub static LOST: AtomicU64 = AtomicU64::new(0);

/// Pages found lost whose addresses a thread remembers: more than one call brings in.
const REMEMBERED: usize = 512;

thread_local! {
    static LOST_HERE: Cell<u64> = const { Cell::new(0) };
    static LOST_AT: [Cell<usize>; REMEMBERED] = const { [const { Cell::new(0) }; REMEMBERED] };
}

/// Pages that this thread found lost.
pub fn lost_here() -> u64 {
    LOST_HERE.get()
}

/// The addresses of the pages that this thread found lost after the first `before`.
pub fn lost_since(before: u64) -> impl Iterator<Item = usize> {
    assert!(lost_here() - before <= REMEMBERED as u64, "no call brings so many pages in");
    (before..lost_here()).map(|index| LOST_AT.with(|at| at[index as usize % REMEMBERED].get()))
}

/// Has lost pages of areas replaced by pages of zeros.
pub fn catch_lost() -> io::Result<()> {
    // SAFETY: a sigaction of zeros is valid.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = on_bus as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler allocates nothing, and the structure is valid.
    check(unsafe { libc::sigaction(libc::SIGBUS, &action, std::ptr::null_mut()) }).map(drop)
}

extern "C" fn on_bus(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel, or the engine in its place, hands a valid structure to a handler.
    let info = unsafe { &*info };
    // SAFETY: that of a fault has an address.
    let address = unsafe { info.si_addr() } as usize;
    let holds = |area: &[AtomicUsize; 2]| {
        (area[0].load(Ordering::Acquire)..area[1].load(Ordering::Acquire)).contains(&address)
    };
    if !AREAS.iter().any(holds) {
        // SAFETY: ends the process; nothing of it is trusted any more.
        unsafe { libc::_exit(STATUS_LOST_OWN) };
    }
    LOST.fetch_add(1, Ordering::Relaxed);
    let page = address & !(PAGE_BYTES - 1);
    let index = LOST_HERE.replace(LOST_HERE.get() + 1);
    LOST_AT.with(|at| at[index as usize % REMEMBERED].set(page));
    if map_zeros(page, 1).is_err() {
        // SAFETY: as above.
        unsafe { libc::_exit(STATUS_LOST_OWN) };
    }
}

/// Maps pages of zeros over what is there, all of it an area's.
fn map_zeros(address: usize, pages: usize) -> io::Result<()> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let at = address as *mut libc::c_void;
    // SAFETY: the range is an area's own, and nothing but its words is there.
    let mapped = unsafe { libc::mmap(at, pages * PAGE_BYTES, protection, flags, -1, 0) };
    if mapped == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Consecutive pages of an area.
#[derive(Debug, Clone, Copy)]
pub struct Span {
    /// The first of them.
    pub first: usize,
    /// How many.
    pub count: usize,
}

/// A private anonymous mapping.
#[derive(Debug)]
pub struct Area {
    index: usize,
    start: usize,
    pages: usize,
}

impl Area {
    /// Maps so many pages.
    ///
    /// # Errors
    /// As mmap's; also when there are too many areas.
    pub fn map(pages: usize) -> io::Result<Self> {
        let free = |area: &&[AtomicUsize; 2]| {
            area[1].compare_exchange(0, 1, Ordering::AcqRel, Ordering::Relaxed).is_ok()
        };
        let index =
            AREAS.iter().position(|area| free(&area)).ok_or(io::ErrorKind::QuotaExceeded)?;
        let protection = libc::PROT_READ | libc::PROT_WRITE;
        let (bytes, flags) = (pages * PAGE_BYTES, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: the kernel chooses the address, so nothing is replaced.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            AREAS[index][1].store(0, Ordering::Release);
            return Err(io::Error::last_os_error());
        }
        let mut area = Self { index, start: 0, pages };
        area.moved_to(start as usize, pages);
        Ok(area)
    }

    fn moved_to(&mut self, start: usize, pages: usize) {
        (self.start, self.pages) = (start, pages);
        AREAS[self.index][0].store(start, Ordering::Release);
        AREAS[self.index][1].store(start + pages * PAGE_BYTES, Ordering::Release);
    }

    /// Number of pages.
    pub fn pages(&self) -> usize {
        self.pages
    }

    /// The page at an address, if it is the area's.
    pub fn page_at(&self, address: usize) -> Option<usize> {
        let page = address.checked_sub(self.start)? / PAGE_BYTES;
        (page < self.pages).then_some(page)
    }

    fn words(&self, page: usize) -> &[AtomicU64] {
        assert!(page < self.pages, "the page is one of the area's");
        let first = (self.start + page * PAGE_BYTES) as *const AtomicU64;
        // SAFETY: the area is mapped, readable and writable while no method that changes that runs, and reached as
        // atomics only.
        unsafe { std::slice::from_raw_parts(first, WORDS) }
    }

    /// Writes every word of a page.
    pub fn fill(&self, page: usize, word: impl Fn(usize) -> u64) {
        let words = self.words(page);
        (0..WORDS).for_each(|index| words[index].store(word(index), Ordering::Relaxed));
    }

    /// The first word that is not as it should be: its index.
    pub fn wrong(&self, page: usize, word: impl Fn(usize) -> u64) -> Option<usize> {
        let words = self.words(page);
        (0..WORDS).find(|index| words[*index].load(Ordering::Relaxed) != word(*index))
    }

    /// A word of a page.
    pub fn word(&self, page: usize, index: usize) -> u64 {
        self.words(page)[index].load(Ordering::Relaxed)
    }

    fn range(&self, span: Span) -> (*mut libc::c_void, usize) {
        assert!(span.first + span.count <= self.pages, "the span is the area's");
        ((self.start + span.first * PAGE_BYTES) as *mut _, span.count * PAGE_BYTES)
    }

    /// madvise.
    ///
    /// # Errors
    /// As madvise's.
    pub fn advise(&mut self, span: Span, advice: i32) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: the range is the area's own, whose words nobody holds.
        check(unsafe { libc::madvise(address, bytes, advice) }).map(drop)
    }

    /// Takes all rights away, or that of writing, and gives them back; what `between` does may only read, or nothing.
    ///
    /// # Errors
    /// As mprotect's.
    pub fn protect(
        &mut self,
        span: Span,
        rights: i32,
        between: impl FnOnce(&Self),
    ) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: the range is the area's own.
        check(unsafe { libc::mprotect(address, bytes, rights) })?;
        between(self);
        // SAFETY: as above.
        check(unsafe { libc::mprotect(address, bytes, libc::PROT_READ | libc::PROT_WRITE) })
            .map(drop)
    }

    /// Maps zeros over a part of it (MAP_FIXED).
    ///
    /// # Errors
    /// As mmap's.
    pub fn replace(&mut self, span: Span) -> io::Result<()> {
        let (address, _) = self.range(span);
        map_zeros(address as usize, span.count)
    }

    /// Makes it longer or shorter, and lets it move.
    ///
    /// # Errors
    /// As mremap's.
    pub fn resize(&mut self, pages: usize) -> io::Result<()> {
        let (address, bytes) = self.range(Span { first: 0, count: self.pages });
        // SAFETY: the range is the area's own, and no reference to its words is held.
        let moved =
            unsafe { libc::mremap(address, bytes, pages * PAGE_BYTES, libc::MREMAP_MAYMOVE) };
        if moved == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        self.moved_to(moved as usize, pages);
        Ok(())
    }

    /// mlock.
    ///
    /// # Errors
    /// As mlock's; a part may be locked then.
    pub fn lock(&self, span: Span) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: the range is the area's own.
        check(unsafe { libc::mlock(address, bytes) }).map(drop)
    }

    /// munlock.
    ///
    /// # Errors
    /// As munlock's.
    pub fn unlock(&self, span: Span) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: as above.
        check(unsafe { libc::munlock(address, bytes) }).map(drop)
    }

    /// Writes pages to a file.
    ///
    /// # Errors
    /// As pwrite's; a short write is one, too.
    pub fn write(&self, span: Span, file: &File, offset: usize) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: the range is the area's own, and mapped.
        let written = unsafe { libc::pwrite(file.as_raw_fd(), address, bytes, offset as i64) };
        match written {
            -1 => Err(io::Error::last_os_error()),
            written if written as usize == bytes => Ok(()),
            _ => Err(io::ErrorKind::WriteZero.into()),
        }
    }

    /// Reads from a file into pages.
    ///
    /// # Errors
    /// As pread's; a short read is one, too.
    pub fn read(&mut self, span: Span, file: &File, offset: usize) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        // SAFETY: the range is the area's own, whose words nobody holds.
        let read = unsafe { libc::pread(file.as_raw_fd(), address, bytes, offset as i64) };
        match read {
            -1 => Err(io::Error::last_os_error()),
            read if read as usize == bytes => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    /// The same by an io_uring of the program's own.
    ///
    /// # Errors
    /// What the request ended with.
    pub fn read_by_ring(
        &mut self,
        span: Span,
        file: &File,
        offset: usize,
        ring: &mut StressRing,
    ) -> io::Result<()> {
        let (address, bytes) = self.range(span);
        let pieces = Pieces::one(address as usize, bytes);
        let request = Request::new(file.as_raw_fd(), Direction::Read, offset as u64);
        ring.0.start(request, &pieces, 0);
        loop {
            match ring.0.reap() {
                Some((_, read)) if read == bytes as i32 => return Ok(()),
                Some((_, error)) if error < 0 => return Err(io::Error::from_raw_os_error(-error)),
                Some(_) => return Err(io::ErrorKind::UnexpectedEof.into()),
                None => ring.0.wait(),
            }
        }
    }
}

impl Drop for Area {
    fn drop(&mut self) {
        let (address, bytes) = self.range(Span { first: 0, count: self.pages });
        AREAS[self.index].iter().for_each(|bound| bound.store(0, Ordering::Release));
        // SAFETY: the range is the area's own, and no reference to it is left.
        unsafe { libc::munmap(address, bytes) };
    }
}

/// An io_uring of the program's own.
pub struct StressRing(Ring);

impl StressRing {
    /// A ring.
    ///
    /// # Errors
    /// As io_uring_setup's.
    pub fn new() -> io::Result<Self> {
        Ring::new(4).map(Self)
    }
}

/// Forks, has the child do `work`, and waits; the child's exit code is 0 when that says so.
///
/// # Errors
/// As fork's; and what the child ended with, when that is neither.
pub fn in_child(work: impl FnOnce() -> bool) -> io::Result<bool> {
    // SAFETY: the child does nothing but `work`, which takes no lock that another thread may hold.
    let child = check(unsafe { libc::fork() })?;
    if child == 0 {
        let code = if work() { 0 } else { 1 };
        // SAFETY: ends the child without what belongs to the parent.
        unsafe { libc::_exit(code) };
    }
    verdict(super::process::wait(child)?.status)
}

/// Whether a child that ended so has found everything right.
///
/// # Errors
/// What it ended with, when it says neither.
pub fn verdict(status: ExitStatus) -> io::Result<bool> {
    match status.code() {
        Some(0) => Ok(true),
        Some(STATUS_LOST_OWN) if LOST_ALLOWED.load(Ordering::Relaxed) == 1 => Ok(true),
        Some(1) => Ok(false),
        _ => Err(io::Error::other(format!("a child ended with {status}"))),
    }
}

/// 1 where devices may lose pages.
pub static LOST_ALLOWED: AtomicU64 = AtomicU64::new(0);
