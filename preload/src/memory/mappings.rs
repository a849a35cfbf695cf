//! mmap and munmap: private anonymous mappings come from the arena and go back to it.
//!
//! The arena stays one reservation. Handing out a range is a change of protection, taking it back drops
//! its content and makes it inaccessible again. Only what the program itself maps over a part of the
//! arena (a file, shared memory) is really mapped there, and replaced by plain memory when it goes.
use crate::abi::raw::{self, Errno, MapRequest, PAGE_BYTES};
use crate::memory::{advice, engagement, locking};
use crate::state::areas::{Area, Memory};
use crate::state::process::{self, Phase, Process};
use libc::{EEXIST, EINVAL, ENOMEM, PROT_NONE};
use userswap::arena::PageRange;
use userswap::sys::signal::Blocked;

/// Flags of mappings that stay the kernel's: stacks, which hold what the engine itself runs on; huge
/// pages, which cannot leave one by one; and addresses below 2 GiB, which the arena has none of.
const NATIVE_FLAGS: i32 =
    libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB | libc::MAP_32BIT;
/// Flags that put a mapping at an exact address.
const FIXED_FLAGS: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
/// The kernel aligns mappings of whole huge pages to them.
const HUGE_PAGES: u32 = 512;

/// mmap.
///
/// # Errors
/// The kernel's.
pub fn map(request: MapRequest) -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::map(request) };
    if request.flags & FIXED_FLAGS != 0 {
        let Some(bytes) = request.bytes.checked_next_multiple_of(PAGE_BYTES) else {
            return Err(ENOMEM);
        };
        return match process.within_arena(request.address, bytes) {
            Some(inside) => map_at(process, MapRequest { bytes, ..request }, inside),
            None => raw::map(request),
        };
    }
    if !is_eligible(process, &request) {
        return raw::map(request);
    }
    match allocate(process, request) {
        // The kernel may still have room outside the arena.
        Err(ENOMEM) => raw::map(request),
        outcome => outcome,
    }
}

fn is_eligible(process: &Process, request: &MapRequest) -> bool {
    request.flags & NATIVE_FLAGS == 0
        && request.bytes as u64 >= process.options.min_region_bytes.max(1)
        && is_private_memory(request)
}

/// Private anonymous memory, also by its old name, /dev/zero.
fn is_private_memory(request: &MapRequest) -> bool {
    let is_private = request.flags & libc::MAP_TYPE == libc::MAP_PRIVATE;
    let is_anonymous = request.flags & libc::MAP_ANONYMOUS != 0;
    is_private
        && (is_anonymous || request.offset % PAGE_BYTES as i64 == 0 && raw::is_dev_zero(request.fd))
}

fn allocate(process: &Process, request: MapRequest) -> Result<usize, Errno> {
    let count = u32::try_from(request.bytes.div_ceil(PAGE_BYTES)).map_err(|_| ENOMEM)?;
    let blocked = Blocked::new();
    let align = if count.is_multiple_of(HUGE_PAGES) { HUGE_PAGES } else { 1 };
    let range = reserve(process, count, (align, request.address)).ok_or(ENOMEM)?;
    open(process, range, request.protection)?;
    drop(blocked);
    settle(process, range, &request);
    Ok(process.arena.address_of(range.first))
}

/// Takes a range out of the arena's free ones, at the hint if it can be had.
fn reserve(process: &Process, count: u32, (align, hint): (u32, usize)) -> Option<PageRange> {
    let books = process.books.lock();
    if hint.is_multiple_of(PAGE_BYTES) && process.arena.contains(hint) {
        let wanted = PageRange { first: process.arena.page_of(hint), count };
        let fits = wanted.first.checked_add(count).is_some_and(|end| end <= process.arena.pages());
        if fits && process.arena.allocate_at(wanted) {
            return Some(wanted);
        }
    }
    let range = process.arena.allocate(count, align);
    drop(books);
    range
}

/// Makes a range that was just allocated the program's memory.
///
/// # Errors
/// What mprotect says; the range is free again then.
pub fn open(process: &Process, range: PageRange, protection: i32) -> Result<(), Errno> {
    if protection != PROT_NONE {
        let (address, bytes) = process.bytes_of(range);
        if let Err(error) = raw::protect(address, bytes, protection) {
            let books = process.books.lock();
            process.arena.free(range);
            drop(books);
            return Err(error);
        }
    }
    process.books.lock().set(range, Area::Memory(Memory::new(protection)));
    Ok(())
}

/// Allocates memory for this library's own uses on the program's behalf; readable and writable.
pub fn allocate_open(process: &Process, count: u32, align: u32) -> Option<PageRange> {
    let blocked = Blocked::new();
    let range = reserve(process, count, (align, 0))?;
    open(process, range, libc::PROT_READ | libc::PROT_WRITE).ok()?;
    drop(blocked);
    engagement::engage_if_needed(process);
    Some(range)
}

/// What follows once a mapping is in the books.
fn settle(process: &Process, range: PageRange, request: &MapRequest) {
    engagement::engage_if_needed(process);
    let (address, bytes) = process.bytes_of(range);
    let is_accessible = request.protection != PROT_NONE;
    if request.flags & libc::MAP_LOCKED != 0 && is_accessible {
        // As in the kernel, a mapping that cannot be locked whole is no failure of mmap.
        let _ = locking::lock(libc::SYS_mlock, address, bytes, 0);
    } else if request.flags & libc::MAP_POPULATE != 0 && is_accessible {
        advice::populate(process, range, request.protection);
    }
}

/// mmap at an address in the arena.
fn map_at(process: &Process, request: MapRequest, inside: (usize, usize)) -> Result<usize, Errno> {
    if request.bytes == 0 || !request.address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    if inside != (request.address, request.address + request.bytes) {
        // Half in the arena: the program can own only the part that is inside.
        return Err(ENOMEM);
    }
    let range = process.pages_between(inside.0, inside.1);
    let blocked = Blocked::new();
    if request.flags & libc::MAP_FIXED_NOREPLACE == libc::MAP_FIXED_NOREPLACE {
        let books = process.books.lock();
        if !process.arena.allocated(range).is_empty() {
            return Err(EEXIST);
        }
        drop(books);
    }
    unmap_inside(process, range);
    let books = process.books.lock();
    if !process.arena.allocate_at(range) {
        return Err(ENOMEM);
    }
    drop(books);
    let is_ours = request.flags & (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) == 0;
    if is_ours && is_private_memory(&request) {
        open(process, range, request.protection)?;
        drop(blocked);
        settle(process, range, &request);
        return Ok(request.address);
    }
    map_foreign(process, range, request)
}

/// Really maps something over a range that was just allocated.
fn map_foreign(process: &Process, range: PageRange, request: MapRequest) -> Result<usize, Errno> {
    let flags = request.flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED;
    let outcome = raw::map(MapRequest { flags, ..request });
    let mut books = process.books.lock();
    match outcome {
        Ok(_) => books.set(range, Area::Foreign),
        Err(_) => process.arena.free(range),
    }
    outcome
}

/// munmap.
///
/// # Errors
/// The kernel's.
pub fn unmap(address: usize, bytes: usize) -> Result<usize, Errno> {
    let inside = process::current().and_then(|process| {
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        process.within_arena(address, rounded).map(|inside| (process, inside, address + rounded))
    });
    let Some((process, (start, end), last)) = inside else { return raw::unmap(address, bytes) };
    if bytes == 0 || !address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    if address < start {
        raw::unmap(address, start - address)?;
    }
    if end < last {
        raw::unmap(end, last - end)?;
    }
    let _blocked = Blocked::new();
    unmap_inside(process, process.pages_between(start, end));
    Ok(0)
}

/// Takes back whatever the program has in a range of the arena; signals are blocked.
pub fn unmap_inside(process: &Process, range: PageRange) {
    let phase = process.phase();
    let parts = process.books.lock().within(range);
    for (part, area) in parts {
        match area {
            Area::Memory(memory) => close(process, &phase, part, memory),
            Area::Foreign => replace_foreign(process, &phase, part),
            // What malloc gave out is not the program's to unmap.
            Area::Heap => continue,
        }
        let mut books = process.books.lock();
        books.clear(part);
        process.arena.free(part);
    }
}

/// Drops the content of a range and makes it inaccessible, before others can have it.
fn close(process: &Process, phase: &Phase<'_>, range: PageRange, memory: Memory) {
    let (address, bytes) = process.bytes_of(range);
    if memory.locked {
        locking::unlock_part(process, phase, range);
    }
    if memory.opened {
        forget(process, phase, range);
    }
    if memory.protection != PROT_NONE {
        protect_own(address, bytes, PROT_NONE);
    }
}

/// Drops the content of a range, which reads as zeros afterwards.
pub fn forget(process: &Process, phase: &Phase<'_>, range: PageRange) {
    match phase {
        Phase::Native(_) => {
            let (address, bytes) = process.bytes_of(range);
            raw::advise(address, bytes, libc::MADV_DONTNEED).expect("the arena is ours");
        }
        Phase::Engaged(engine) => engine.core().drop_range(range),
    }
}

/// Puts plain memory back where the program had mapped something else.
pub fn replace_foreign(process: &Process, phase: &Phase<'_>, range: PageRange) {
    let (address, bytes) = process.bytes_of(range);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let plain = MapRequest { address, bytes, protection: PROT_NONE, flags, fd: -1, offset: 0 };
    if let Err(error) = raw::map(plain) {
        fail("cannot replace a mapping in the arena", error);
    }
    if let Phase::Engaged(engine) = phase {
        engagement::join(engine, address, bytes);
    }
}

/// mprotect of memory that is ours: it can fail only for want of mappings.
pub fn protect_own(address: usize, bytes: usize, protection: i32) {
    if let Err(error) = raw::protect(address, bytes, protection) {
        fail("cannot protect memory (raise vm.max_map_count?)", error);
    }
}

/// Ends the process: its memory is not what it believes it to be.
fn fail(what: &str, error: Errno) -> ! {
    raw::say(&format!("{what}: {}", std::io::Error::from_raw_os_error(error)));
    raw::exit_now(1)
}
