//! mremap of managed memory: shrink, grow in place, or move without copying.
use super::replace::{self, Claim, Over};
use super::{engagement, locking, mappings, ranges};
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
        return from_outside(process, request);
    }
    // Length zero maps what is shared a second time.
    if request.bytes == 0 && is_shared(process, request.address) {
        return from_outside(process, request);
    }
    let request = checked(request)?;
    let range = process.pages_between(request.address..request.address + request.bytes);
    let blocked = Blocked::new();
    let parts = process.areas_within(range);
    drop(blocked);
    let is_shorter = request.flags & MOVING_FLAGS == 0 && request.new_bytes < request.bytes;
    let memory = match parts[..] {
        [(part, Area::Memory(memory))] if part == range => memory,
        // Whatever is behind, only the end of it goes.
        [(part, _), ..] if is_shorter && part.first == range.first => {
            let RemapRequest { address, bytes, new_bytes, .. } = request;
            let rest = Span { address: address + new_bytes, bytes: bytes - new_bytes };
            return mappings::unmap(rest).map(|_| address);
        }
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

/// Whether the kernel's own mapping is at an address in the arena.
fn is_shared(process: &Process, address: usize) -> bool {
    let _blocked = Blocked::new();
    let page = process.pages_between(address..address + 1);
    process.areas_within(page)[..] == [(page, Area::Foreign)]
}

/// What is the kernel's, and stays so where it is.
fn from_outside(process: &Process, request: RemapRequest) -> Result<usize, Errno> {
    let is_fixed = request.flags & libc::MREMAP_FIXED != 0;
    match process.within_arena(target_of(&request)) {
        Some(_) if is_fixed => remap_over(process, request),
        _ => raw::remap(request),
    }
}

/// What MREMAP_FIXED asks for.
fn target_of(request: &RemapRequest) -> Span {
    Span { address: request.new_address, bytes: request.new_bytes }
}

/// Rounds the lengths and refuses what the kernel refuses, length zero as well: only what is shared can be mapped again.
fn checked(request: RemapRequest) -> Result<RemapRequest, Errno> {
    if request.bytes == 0 { Err(EINVAL) } else { checked_of_any(request) }
}

/// The same of what may be shared.
fn checked_of_any(request: RemapRequest) -> Result<RemapRequest, Errno> {
    let RemapRequest { address, bytes, new_bytes, flags, new_address } = request;
    let moves = flags & MOVING_FLAGS != 0;
    if flags & !KNOWN_FLAGS != 0 || moves && flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(EINVAL);
    }
    if !address.is_multiple_of(PAGE_BYTES) || new_bytes == 0 {
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
        ranges::unmap(process, rest)?;
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
    if ranges::extend(process, more).is_ok() {
        match memory.locked {
            false => ranges::open(process, more, memory.protection)?,
            true => open_locked(process, more, memory)?,
        }
        return Ok(range.first);
    }
    if flags & libc::MREMAP_MAYMOVE == 0 {
        return Err(ENOMEM);
    }
    let to = relocate_anywhere(process, source, count, ranges::align_of(count))?;
    ranges::unmap(process, range)?;
    Ok(to.first)
}

/// Moves memory to a new place of so many pages, as [`relocate`].
fn relocate_anywhere(
    process: &Process,
    source: Source,
    count: u32,
    align: u32,
) -> Result<PageRange, Errno> {
    let to = ranges::take(process, count, align).ok_or(ENOMEM)?;
    ranges::open(process, to, PROT_READ | PROT_WRITE)?;
    let moved = relocate(process, &process.phase(), source, to);
    given_back_on_error(process, to, moved)?;
    Ok(to)
}

/// Opens what has been taken behind memory that is locked, as it is.
fn open_locked(process: &Process, range: PageRange, memory: Memory) -> Result<(), Errno> {
    ranges::open(process, range, PROT_READ | PROT_WRITE)?;
    let locked = locking::lock_too(process, &process.phase(), range);
    given_back_on_error(process, range, locked)?;
    protect_as(process, range, memory);
    Ok(())
}

/// Gives memory that is readable and writable the protection that other memory has.
fn protect_as(process: &Process, range: PageRange, memory: Memory) {
    let span = process.span_of(range);
    let is_protected = process.change_protection(|| raw::protect(span, memory.protection)).is_ok();
    // With no mapping left to split it off, it stays accessible.
    let protection = if is_protected { memory.protection } else { PROT_READ | PROT_WRITE };
    process.areas.lock().set(range, Area::Memory(memory.protected(protection)));
}

/// What became of a range that was taken for it.
fn given_back_on_error<T>(
    process: &Process,
    taken: PageRange,
    outcome: Result<T, Errno>,
) -> Result<T, Errno> {
    if outcome.is_err() {
        ranges::unmap(process, taken)?;
    }
    outcome
}

/// Moves memory to a range that is readable, writable, empty and at least as long; the old range is left
/// empty, and not locked: its lock goes along.
fn relocate(
    process: &Process,
    phase: &Phase<'_>,
    Source { range, memory }: Source,
    to: PageRange,
) -> Result<(), Errno> {
    if memory.locked {
        let behind = PageRange { first: to.first + range.count, count: to.count - range.count };
        if behind.count > 0 {
            locking::lock_too(process, phase, behind)?;
        }
        locking::release(process, phase, range);
    }
    ranges::let_go(phase, range);
    match phase {
        Phase::Engaged(engine) => engine.core().move_range(range, to.first),
        Phase::Native(_) => {
            move_natively(process.span_of(range), process.span_of(to).address)?;
            // What was moved has brought its protection with it.
            raw::protect(process.span_of(to), PROT_READ | PROT_WRITE)?;
        }
    }
    let moved = PageRange { count: range.count, ..to };
    let locked = memory.locked && locking::lock_again(process, phase, moved);
    if memory.locked && !locked {
        locking::release(process, phase, to);
    }
    protect_as(process, to, Memory { locked, ..memory });
    Ok(())
}

/// The kernel moves one mapping of its own at a time; of how many the memory consists we are not told.
fn move_natively(from: Span, new_address: usize) -> Result<(), Errno> {
    let Span { address, bytes } = from;
    let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED | libc::MREMAP_DONTUNMAP;
    if raw::remap(RemapRequest { address, bytes, new_bytes: bytes, flags, new_address }).is_ok() {
        return Ok(());
    }
    if bytes > PAGE_BYTES {
        let half = (bytes / 2).next_multiple_of(PAGE_BYTES);
        move_natively(Span { address, bytes: half }, new_address)?;
        let rest = Span { address: address + half, bytes: bytes - half };
        return move_natively(rest, new_address + half);
    }
    raw::protect(from, PROT_READ)?;
    // SAFETY: both pages are the program's, readable and writable, and distinct.
    unsafe { std::ptr::copy_nonoverlapping(address as *const u8, new_address as *mut u8, bytes) };
    Ok(())
}

/// MREMAP_FIXED and MREMAP_DONTUNMAP inside the arena.
fn move_to(process: &Process, request: &RemapRequest, source: Source) -> Result<usize, Errno> {
    let count = (request.new_bytes / PAGE_BYTES) as u32;
    let moved = PageRange { first: source.range.first, count: source.range.count.min(count) };
    let blocked = Blocked::new();
    let moving = Source { range: moved, ..source };
    let to = if request.flags & libc::MREMAP_FIXED != 0 {
        let phase = process.phase();
        let claim = claim_at(process, target_of(request))?;
        replace::with_memory(process, &phase, &claim, PROT_READ | PROT_WRITE)?;
        relocate(process, &phase, moving, claim.range)
            .or_else(|error| ranges::take_back(process, &phase, claim.range).and(Err(error)))?;
        claim.range
    } else {
        relocate_anywhere(process, moving, count, 1)?
    };
    if request.flags & libc::MREMAP_DONTUNMAP == 0 {
        ranges::unmap(process, source.range)?;
    }
    drop(blocked);
    engagement::engage_if_needed(process);
    Ok(process.arena.address_of(to.first))
}

/// Claims exactly these pages, whatever the program has there; the phase is held, signals are blocked.
fn claim_at(process: &Process, span: Span) -> Result<Claim, Errno> {
    let asked = span.address..span.address.saturating_add(span.bytes);
    if process.within_arena(span) != Some(asked.clone()) {
        return Err(ENOMEM);
    }
    if !span.address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    replace::claim(process, process.pages_between(asked), Over::Anything)
}

/// To an exact address outside the arena: a copy, which is the kernel's from then on.
fn move_out(process: &Process, request: RemapRequest, source: Source) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
    let protection = PROT_READ | PROT_WRITE;
    let Span { address, bytes } = target_of(&request);
    let to = raw::map(MapRequest { address, bytes, protection, flags, fd: -1, offset: 0 })?;
    if source.memory.opened {
        let from = Span { bytes: bytes.min(request.bytes), ..process.span_of(source.range) };
        process.change_protection(|| raw::protect(from, PROT_READ | PROT_WRITE))?;
        // SAFETY: both ranges are the program's, readable and writable, and distinct.
        unsafe {
            std::ptr::copy_nonoverlapping(from.address as *const u8, to as *mut u8, from.bytes)
        };
        // If that fails, it stays accessible.
        let _ = process.change_protection(|| raw::protect(from, source.memory.protection));
    }
    if source.memory.locked {
        // As far as the kernel lets it; what is there is not managed.
        let _ = raw::lock(libc::SYS_mlock, Span { address: to, bytes }, 0);
    }
    raw::protect(Span { address: to, bytes }, source.memory.protection)?;
    let _blocked = Blocked::new();
    if request.flags & libc::MREMAP_DONTUNMAP != 0 {
        let phase = process.phase();
        locking::release(process, &phase, source.range);
        ranges::forget(process, &phase, source.range);
    } else {
        ranges::unmap(process, source.range)?;
    }
    Ok(to)
}

/// A mapping from outside over a part of the arena.
fn remap_over(process: &Process, request: RemapRequest) -> Result<usize, Errno> {
    // What the kernel refuses must not cost what is there.
    let bytes = checked_of_any(request)?.new_bytes;
    let _blocked = Blocked::new();
    let phase = process.phase();
    let claim = claim_at(process, Span { address: request.new_address, bytes })?;
    replace::separate(process, &phase, &claim)?;
    replace::with_foreign(process, &phase, &claim, || raw::remap(request))
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
    let count = (request.new_bytes.div_ceil(PAGE_BYTES)) as u32;
    if request.flags & MOVING_FLAGS == 0 && count < range.count {
        let rest = PageRange { first: range.first + count, count: range.count - count };
        let _blocked = Blocked::new();
        return ranges::unmap(process, rest).map(|()| request.address);
    }
    let moved = move_foreign(request)?;
    if request.flags & libc::MREMAP_DONTUNMAP == 0 && moved.address != request.address {
        let _blocked = Blocked::new();
        match moved.is_kept {
            true => ranges::unmap(process, range)?,
            // What is not the arena's may be others' by now.
            false => ranges::take_back(process, &process.phase(), range)?,
        }
    }
    Ok(moved.address)
}

/// Where a mapping has gone.
struct Moved {
    address: usize,
    /// Whether its old place is still mapped.
    is_kept: bool,
}

impl Moved {
    fn leaving(is_kept: bool) -> impl Fn(usize) -> Self {
        move |address| Self { address, is_kept }
    }
}

/// Leaves the old place mapped where it can: a hole in the arena would be the kernel's to give to others.
fn move_foreign(request: RemapRequest) -> Result<Moved, Errno> {
    let (gone, kept) = (Moved::leaving(false), Moved::leaving(true));
    let RemapRequest { address, bytes, new_bytes, flags, .. } = request;
    let may_move = flags & libc::MREMAP_MAYMOVE != 0;
    let grows = new_bytes > bytes && flags & MOVING_FLAGS == 0;
    let moves = new_bytes == bytes && flags & MOVING_FLAGS != 0;
    if !may_move || !(grows || moves) {
        return raw::remap(request).map(gone);
    }
    let keeping =
        RemapRequest { new_bytes: bytes, flags: flags | libc::MREMAP_DONTUNMAP, ..request };
    let moved = match raw::remap(keeping) {
        Ok(moved) if moves => return Ok(kept(moved)),
        Ok(moved) => moved,
        Err(_) => return raw::remap(request).map(gone),
    };
    let flags = libc::MREMAP_MAYMOVE;
    raw::remap(RemapRequest { address: moved, flags, ..request }).map(kept).inspect_err(|_| {
        let flags = libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED;
        let back =
            RemapRequest { address: moved, new_bytes: bytes, flags, new_address: address, bytes };
        let _ = raw::remap(back);
    })
}
