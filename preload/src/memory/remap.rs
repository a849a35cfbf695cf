//! mremap of managed memory: shrink, grow in place, or move without copying.
use super::{engagement, ranges};
use crate::abi::raw::{self, Errno, MapRequest, RemapRequest, Span};
use crate::state::areas::{Area, Memory};
use crate::state::process::{self, Phase, Process};
use libc::{EFAULT, EINVAL, ENOMEM, PROT_READ, PROT_WRITE};
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::signal::Blocked;

const MOVING_FLAGS: i32 = libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
const KNOWN_FLAGS: i32 = libc::MREMAP_MAYMOVE | MOVING_FLAGS;

/// The memory that is remapped: one area of the program's.
#[derive(Clone, Copy)]
struct Source {
    range: PageRange,
    memory: Memory,
}

/// mremap.
///
/// # Errors
/// The kernel's.
pub fn remap(request: RemapRequest) -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::remap(request) };
    if !process.arena.contains(request.address) {
        let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
        return match process.within_arena(target_of(&request)) {
            Some(_) if is_fixed => remap_over(process, request),
            _ => raw::remap(request),
        };
    }
    let request = checked(request)?;
    let range = process.pages_between(request.address..request.address + request.bytes);
    let blocked = Blocked::new();
    let parts = process.areas_within(range);
    drop(blocked);
    let memory = match parts[..] {
        [(part, Area::Memory(memory))] if part == range => memory,
        [(part, Area::Foreign)] if part == range => return remap_foreign(process, request, range),
        _ => return Err(EFAULT),
    };
    let source = Source { range, memory };
    if request.flags & MOVING_FLAGS == 0 {
        return resize(process, &request, source);
    }
    let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
    if is_fixed && process.within_arena(target_of(&request)).is_none() {
        return move_out(process, request, source);
    }
    move_to(process, &request, source)
}

/// What MREMAP_FIXED asks for.
fn target_of(request: &RemapRequest) -> Span {
    Span { address: request.new_address, bytes: request.new_bytes }
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

/// Shrinks or grows.
fn resize(process: &Process, request: &RemapRequest, source: Source) -> Result<usize, Errno> {
    let range = source.range;
    let count = (request.new_bytes / PAGE_BYTES) as u32;
    let blocked = Blocked::new();
    if count < range.count {
        let rest = PageRange { first: range.first + count, count: range.count - count };
        ranges::unmap(process, rest);
    }
    if count <= range.count {
        return Ok(request.address);
    }
    let outcome = grow(process, source, count, request.flags);
    drop(blocked);
    engagement::engage_if_needed(process);
    outcome.map(|first| process.arena.address_of(first))
}

/// Grows memory to `count` pages, in place if what follows is free, else elsewhere; signals are blocked.
fn grow(process: &Process, source: Source, count: u32, flags: i32) -> Result<u32, Errno> {
    let Source { range, memory } = source;
    let more = PageRange { first: range.end(), count: count - range.count };
    if !memory.locked && ranges::take_at(process, more).is_ok() {
        ranges::open(process, more, memory.protection)?;
        return Ok(range.first);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(ENOMEM);
    }
    let to = ranges::take(process, count, ranges::align_of(count)).ok_or(ENOMEM)?;
    relocate(process, source, to)?;
    ranges::unmap(process, range);
    Ok(to.first)
}

/// Moves memory to a range that was just taken and is at least as long; the old range is left empty.
fn relocate(
    process: &Process,
    Source { range, memory }: Source,
    to: PageRange,
) -> Result<(), Errno> {
    ranges::open(process, to, PROT_READ | PROT_WRITE)?;
    let phase = process.phase();
    match &phase {
        Phase::Engaged(engine) => engine.core().move_range(range, to.first),
        Phase::Native(_) if memory.opened => {
            move_natively(process.span_of(range), process.span_of(to).address)?;
        }
        Phase::Native(_) => {}
    }
    if memory.protection != PROT_READ | PROT_WRITE {
        ranges::protect(process.span_of(to), memory.protection);
    }
    let moved = Memory { locked: false, ..memory };
    process.areas.lock().set(to, Area::Memory(moved));
    Ok(())
}

fn move_natively(from: Span, new_address: usize) -> Result<(), Errno> {
    let Span { address, bytes } = from;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    if raw::remap(RemapRequest { address, bytes, new_bytes: bytes, flags, new_address }).is_ok() {
        // The new mapping has the old one's protection.
        let moved = Span { address: new_address, bytes };
        return raw::protect(moved, PROT_READ | PROT_WRITE).map(|_| ());
    }
    // More than one mapping of the kernel's, or an old kernel.
    raw::protect(from, PROT_READ)?;
    // SAFETY: both ranges are the program's, readable and writable, and distinct.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, new_address as *mut u8, bytes) };
    Ok(())
}

/// MREMAP_FIXED and MREMAP_DONTUNMAP inside the arena.
fn move_to(process: &Process, request: &RemapRequest, source: Source) -> Result<usize, Errno> {
    let count = (request.new_bytes / PAGE_BYTES) as u32;
    let moved = PageRange { first: source.range.first, count: source.range.count.min(count) };
    let blocked = Blocked::new();
    let to = if request.flags & libc::MREMAP_FIXED != 0 {
        make_room(process, target_of(request))?
    } else {
        ranges::take(process, count, 1).ok_or(ENOMEM)?
    };
    relocate(process, Source { range: moved, ..source }, to)?;
    if request.flags & libc::MREMAP_DONTUNMAP == 0 {
        ranges::unmap(process, source.range);
    }
    drop(blocked);
    engagement::engage_if_needed(process);
    Ok(process.arena.address_of(to.first))
}

/// Takes exactly these pages, whatever the program has there; signals are blocked.
fn make_room(process: &Process, span: Span) -> Result<PageRange, Errno> {
    let asked = span.address..span.address.saturating_add(span.bytes);
    if process.within_arena(span) != Some(asked.clone()) {
        return Err(ENOMEM);
    }
    if !span.address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    let range = process.pages_between(asked);
    ranges::unmap(process, range);
    ranges::take_at(process, range)?;
    Ok(range)
}

/// To an exact address outside the arena: a copy, which is the kernel's from then on.
fn move_out(process: &Process, request: RemapRequest, source: Source) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = PROT_READ | PROT_WRITE;
    let Span { address, bytes } = target_of(&request);
    let to = raw::map(MapRequest { address, bytes, protection, flags, fd: -1, offset: 0 })?;
    if source.memory.opened {
        let from = Span { bytes: bytes.min(request.bytes), ..process.span_of(source.range) };
        ranges::protect(from, PROT_READ | PROT_WRITE);
        // SAFETY: both ranges are the program's, readable and writable, and distinct.
        unsafe {
            std::ptr::copy_nonoverlapping(from.address as *const u8, to as *mut u8, from.bytes)
        };
        ranges::protect(from, source.memory.protection);
    }
    raw::protect(Span { address: to, bytes }, source.memory.protection)?;
    let _blocked = Blocked::new();
    if request.flags & libc::MREMAP_DONTUNMAP != 0 {
        ranges::forget(process, &process.phase(), source.range);
    } else {
        ranges::unmap(process, source.range);
    }
    Ok(to)
}

/// A mapping from outside over a part of the arena.
fn remap_over(process: &Process, request: RemapRequest) -> Result<usize, Errno> {
    let bytes = request.new_bytes.next_multiple_of(PAGE_BYTES);
    let _blocked = Blocked::new();
    let range = make_room(process, Span { address: request.new_address, bytes })?;
    ranges::cover(process, range, || raw::remap(request))
}

/// What the program itself mapped over a part of the arena moves and shrinks as the kernel does it; the
/// range it leaves becomes plain memory again.
fn remap_foreign(
    process: &Process,
    request: RemapRequest,
    range: PageRange,
) -> Result<usize, Errno> {
    let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
    if is_fixed && process.within_arena(target_of(&request)).is_some() {
        return Err(EINVAL);
    }
    let address = raw::remap(request)?;
    let kept = if address == request.address { (request.new_bytes / PAGE_BYTES) as u32 } else { 0 };
    if request.flags & libc::MREMAP_DONTUNMAP == 0 && kept < range.count {
        let left = PageRange { first: range.first + kept, count: range.count - kept };
        let _blocked = Blocked::new();
        ranges::unmap(process, left);
    }
    Ok(address)
}
