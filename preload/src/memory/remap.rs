//! mremap of managed memory: shrink, grow in place, or move without copying.
use crate::abi::raw::{self, Errno, MapRequest, PAGE_BYTES, RemapRequest};
use crate::memory::{engagement, mappings};
use crate::state::areas::{Area, Memory};
use crate::state::process::{self, Phase, Process};
use libc::{EFAULT, EINVAL, ENOMEM, PROT_READ, PROT_WRITE};
use userswap::arena::PageRange;
use userswap::sys::signal::Blocked;

const MOVING_FLAGS: i32 = libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
const KNOWN_FLAGS: i32 = libc::MREMAP_MAYMOVE | MOVING_FLAGS;

/// mremap.
///
/// # Errors
/// The kernel's.
pub fn remap(request: RemapRequest) -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::remap(request) };
    let to = if request.flags & libc::MREMAP_FIXED != 0 { request.new_address } else { 0 };
    if !process.arena.contains(request.address) {
        return match process.within_arena(to, request.new_bytes) {
            None => raw::remap(request),
            Some(_) => remap_over(process, request),
        };
    }
    let request = checked(request)?;
    let range = process.pages_between(request.address, request.address + request.bytes);
    let area = {
        let _blocked = Blocked::new();
        process.books.lock().within(range)
    };
    let memory = match area[..] {
        [(part, Area::Memory(memory))] if part == range => memory,
        [(part, Area::Foreign)] if part == range => return remap_foreign(process, request, range),
        _ => return Err(EFAULT),
    };
    if request.flags & MOVING_FLAGS != 0 {
        return remap_to(process, request, range, memory);
    }
    let count = (request.new_bytes / PAGE_BYTES) as u32;
    let blocked = Blocked::new();
    if count < range.count {
        let rest = PageRange { first: range.first + count, count: range.count - count };
        mappings::unmap_inside(process, rest);
    }
    if count <= range.count {
        return Ok(request.address);
    }
    let outcome = grow(process, range, memory, (count, request.flags));
    drop(blocked);
    engagement::engage_if_needed(process);
    outcome.map(|first| process.arena.address_of(first))
}

/// Rounds the lengths and refuses what the kernel refuses.
fn checked(request: RemapRequest) -> Result<RemapRequest, Errno> {
    let RemapRequest { address, bytes, new_bytes, flags, new_address } = request;
    let moves = flags & MOVING_FLAGS != 0;
    if flags & !KNOWN_FLAGS != 0 || moves && flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(EINVAL);
    }
    if !address.is_multiple_of(PAGE_BYTES) || new_bytes == 0 || bytes == 0 {
        return Err(EINVAL);
    }
    let bytes = bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(EINVAL)?;
    let new_bytes = new_bytes.checked_next_multiple_of(PAGE_BYTES).ok_or(ENOMEM)?;
    if new_bytes / PAGE_BYTES > u32::MAX as usize {
        return Err(ENOMEM);
    }
    if flags & libc::MREMAP_DONTUNMAP != 0 && bytes != new_bytes {
        return Err(EINVAL);
    }
    let overlaps = new_address < address + bytes && address < new_address.saturating_add(new_bytes);
    if flags & libc::MREMAP_FIXED != 0 && (!new_address.is_multiple_of(PAGE_BYTES) || overlaps) {
        return Err(EINVAL);
    }
    Ok(RemapRequest { bytes, new_bytes, ..request })
}

/// Grows memory in place if what follows is free, else elsewhere; signals are blocked.
fn grow(
    process: &Process,
    range: PageRange,
    memory: Memory,
    (count, flags): (u32, i32),
) -> Result<u32, Errno> {
    let more = PageRange { first: range.end(), count: count - range.count };
    let fits = more.first.checked_add(more.count).is_some_and(|end| end <= process.arena.pages());
    if fits && !memory.locked {
        let books = process.books.lock();
        let taken = process.arena.allocate_at(more);
        drop(books);
        if taken {
            mappings::open(process, more, memory.protection)?;
            return Ok(range.first);
        }
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(ENOMEM);
    }
    let books = process.books.lock();
    let align = if count.is_multiple_of(512) { 512 } else { 1 };
    let to = process.arena.allocate(count, align).ok_or(ENOMEM)?;
    drop(books);
    relocate(process, range, memory, to)?;
    mappings::unmap_inside(process, range);
    Ok(to.first)
}

/// Moves memory to a range that was just allocated and is at least as long; the old range is left empty.
fn relocate(
    process: &Process,
    from: PageRange,
    memory: Memory,
    to: PageRange,
) -> Result<(), Errno> {
    mappings::open(process, to, PROT_READ | PROT_WRITE)?;
    let phase = process.phase();
    match &phase {
        Phase::Engaged(engine) => engine.core().move_range(from, to.first),
        Phase::Native(_) if memory.opened => move_natively(process, from, to)?,
        Phase::Native(_) => {}
    }
    if memory.protection != PROT_READ | PROT_WRITE {
        let (address, bytes) = process.bytes_of(to);
        mappings::protect_own(address, bytes, memory.protection);
    }
    let moved = Memory { locked: false, ..memory };
    process.books.lock().set(to, Area::Memory(moved));
    Ok(())
}

fn move_natively(process: &Process, from: PageRange, to: PageRange) -> Result<(), Errno> {
    let (address, bytes) = process.bytes_of(from);
    let (new_address, _) = process.bytes_of(to);
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    if raw::remap(RemapRequest { address, bytes, new_bytes: bytes, flags, new_address }).is_ok() {
        // The new place has the old one's protection.
        return raw::protect(new_address, bytes, PROT_READ | PROT_WRITE).map(|_| ());
    }
    // More than one mapping of the kernel's, or an old kernel.
    raw::protect(address, bytes, PROT_READ)?;
    // SAFETY: both ranges are the program's, readable and writable, and distinct.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, new_address as *mut u8, bytes) };
    Ok(())
}

/// MREMAP_FIXED and MREMAP_DONTUNMAP.
fn remap_to(
    process: &Process,
    request: RemapRequest,
    range: PageRange,
    memory: Memory,
) -> Result<usize, Errno> {
    let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
    let count = (request.new_bytes / PAGE_BYTES) as u32;
    let moved = PageRange { first: range.first, count: range.count.min(count) };
    let address = request.new_address;
    if is_fixed && process.within_arena(address, request.new_bytes).is_none() {
        return move_out(process, request, moved, memory);
    }
    let blocked = Blocked::new();
    let to = if is_fixed {
        if process.within_arena(address, request.new_bytes)
            != Some((address, address + request.new_bytes))
        {
            return Err(ENOMEM);
        }
        let to = process.pages_between(address, address + request.new_bytes);
        mappings::unmap_inside(process, to);
        let books = process.books.lock();
        if !process.arena.allocate_at(to) {
            return Err(ENOMEM);
        }
        drop(books);
        to
    } else {
        let books = process.books.lock();
        let to = process.arena.allocate(count, 1);
        drop(books);
        to.ok_or(ENOMEM)?
    };
    relocate(process, moved, memory, to)?;
    if request.flags & libc::MREMAP_DONTUNMAP == 0 {
        mappings::unmap_inside(process, range);
    }
    drop(blocked);
    engagement::engage_if_needed(process);
    Ok(process.arena.address_of(to.first))
}

/// To an exact place outside the arena: a copy, which is the kernel's from then on.
fn move_out(
    process: &Process,
    request: RemapRequest,
    from: PageRange,
    memory: Memory,
) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = PROT_READ | PROT_WRITE;
    let RemapRequest { new_address: address, new_bytes: bytes, .. } = request;
    let to = raw::map(MapRequest { address, bytes, protection, flags, fd: -1, offset: 0 })?;
    let (old, old_bytes) = process.bytes_of(from);
    if memory.opened {
        mappings::protect_own(old, old_bytes, PROT_READ | PROT_WRITE);
        // SAFETY: both ranges are the program's, readable and writable, and distinct.
        unsafe { std::ptr::copy_nonoverlapping(old as *const u8, to as *mut u8, old_bytes) };
        mappings::protect_own(old, old_bytes, memory.protection);
    }
    raw::protect(to, bytes, memory.protection)?;
    let _blocked = Blocked::new();
    let whole = process.pages_between(request.address, request.address + request.bytes);
    if request.flags & libc::MREMAP_DONTUNMAP != 0 {
        mappings::forget(process, &process.phase(), whole);
    } else {
        mappings::unmap_inside(process, whole);
    }
    Ok(to)
}

/// A mapping from outside over a part of the arena.
fn remap_over(process: &Process, request: RemapRequest) -> Result<usize, Errno> {
    let bytes = request.new_bytes.next_multiple_of(PAGE_BYTES);
    let target = (request.new_address, request.new_address + bytes);
    if process.within_arena(request.new_address, bytes) != Some(target) {
        return Err(ENOMEM);
    }
    let range = process.pages_between(target.0, target.1);
    let _blocked = Blocked::new();
    mappings::unmap_inside(process, range);
    let mut books = process.books.lock();
    if !process.arena.allocate_at(range) {
        return Err(ENOMEM);
    }
    let outcome = raw::remap(request);
    match outcome {
        Ok(_) => books.set(range, Area::Foreign),
        Err(_) => process.arena.free(range),
    }
    outcome
}

/// What the program itself mapped over a part of the arena moves and shrinks as the kernel does it; the
/// place it leaves becomes plain memory again.
fn remap_foreign(
    process: &Process,
    request: RemapRequest,
    range: PageRange,
) -> Result<usize, Errno> {
    let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
    if is_fixed && process.within_arena(request.new_address, request.new_bytes).is_some() {
        return Err(EINVAL);
    }
    let address = raw::remap(request)?;
    let kept = if address == request.address { (request.new_bytes / PAGE_BYTES) as u32 } else { 0 };
    if request.flags & libc::MREMAP_DONTUNMAP == 0 && kept < range.count {
        let left = PageRange { first: range.first + kept, count: range.count - kept };
        let _blocked = Blocked::new();
        mappings::unmap_inside(process, left);
    }
    Ok(address)
}
