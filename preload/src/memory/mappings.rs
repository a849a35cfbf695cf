//! mmap and munmap: private anonymous mappings come from the arena and go back to it.
//!
//! Only what the program itself maps over a part of the arena (a file, shared memory) is really mapped
//! there, and replaced by plain memory when it goes.
use super::replace::{self, Over};
use super::{engagement, locking, origins, ranges};
use crate::abi::raw::{self, Errno, MapRequest, Span};
use crate::state::process::{self, Phase, Process, Request};
use libc::{EINVAL, ENOMEM, PROT_NONE};
use std::sync::atomic::Ordering;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::signal::Blocked;

/// Flags of mappings that stay the kernel's: stacks, which hold what the engine itself runs on, and huge
/// pages, which cannot leave one by one.
const NATIVE_FLAGS: i32 = libc::MAP_STACK | libc::MAP_GROWSDOWN | libc::MAP_HUGETLB;
/// Flags that put a mapping at an exact address.
const FIXED_FLAGS: i32 = libc::MAP_FIXED | libc::MAP_FIXED_NOREPLACE;
const NOREPLACE: i32 = libc::MAP_FIXED_NOREPLACE;

/// The kernel follows no hint below it.
const HINTS_START: usize = 64 << 10;
/// Where addresses for MAP_32BIT end.
const LOW_END: usize = 2 << 30;

/// mmap.
///
/// # Errors
/// The kernel's; ENOMEM for an exact range across the arena's edge.
pub fn map(request: MapRequest) -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::map(request) };
    if request.flags & FIXED_FLAGS != 0 {
        let Some(bytes) = request.bytes.checked_next_multiple_of(PAGE_BYTES) else {
            return Err(ENOMEM);
        };
        return match Request::new(Span { address: request.address, bytes }) {
            Some(exact) => map_at(&exact, MapRequest { bytes, ..request }),
            None if is_eligible(process, &request) => map_unmanaged(process, request),
            None => raw::map(request),
        };
    }
    if !is_eligible(process, &request) {
        return raw::map(request).or_else(|error| map_foreign_low(process, request, error));
    }
    let hint = request.address.checked_next_multiple_of(PAGE_BYTES).unwrap_or(0);
    if hint != 0
        && let Some(address) = map_in_gap(process, MapRequest { address: hint, ..request })
    {
        return Ok(address);
    }
    let is_outside = !is_low(&request) && !process.arena.contains(hint);
    if hint != 0 && process.insistence.is_clear() && is_outside {
        let flags = request.flags | libc::MAP_FIXED_NOREPLACE;
        let there = map_unmanaged(process, MapRequest { address: hint, flags, ..request });
        if there.is_ok() {
            return there;
        }
    }
    match allocate(process, request) {
        // The kernel may still have room outside the arena, for what is too large for it.
        Err(ENOMEM) => map_unmanaged(process, request),
        Ok(address) => {
            if hint != 0 && address != hint {
                process.insistence.made_elsewhere(Span { address, bytes: request.bytes });
            }
            Ok(address)
        }
        outcome => outcome,
    }
}

/// What is the kernel's to map below 2 GiB, where it has little room: in the arena, most of which it is. `error` is what it says.
fn map_foreign_low(
    process: &'static Process,
    request: MapRequest,
    error: Errno,
) -> Result<usize, Errno> {
    let count = u32::try_from(request.bytes.div_ceil(PAGE_BYTES)).unwrap_or(0);
    if error != ENOMEM || !is_low(&request) || count == 0 {
        return Err(error);
    }
    let blocked = Blocked::new();
    let range = ranges::take_lowest(process, count, 1).ok_or(error)?;
    let phase = process.phase();
    let claim = replace::claim(process, range, Over::Anything)?;
    let address = process.arena.address_of(range.first);
    let flags = request.flags & !libc::MAP_32BIT | libc::MAP_FIXED;
    let bytes = count as usize * PAGE_BYTES;
    let there = MapRequest { address, bytes, flags, ..request };
    let mapped = replace::with_mapping(process, &phase, &claim, there);
    drop(phase);
    if mapped.is_err() {
        process.areas.lock().clear(range);
        ranges::give_back(process, range);
    }
    drop(blocked);
    mapped
}

/// Memory that could be managed, but not where or as large as the program wants it.
fn map_unmanaged(process: &Process, request: MapRequest) -> Result<usize, Errno> {
    let address = raw::map(request)?;
    process.unmanaged_bytes.fetch_add(request.bytes as u64, Ordering::Relaxed);
    Ok(address)
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

/// Where a hint names addresses that are the kernel's, and nothing is there.
fn map_in_gap(process: &'static Process, request: MapRequest) -> Option<usize> {
    let bytes = request.bytes.checked_next_multiple_of(PAGE_BYTES)?;
    let exact = Request::new(Span { address: request.address, bytes })?;
    let is_gap = exact.is_whole() && process.arena.gaps_within(exact.pages()) == [exact.pages()];
    let is_too_high = is_low(&request) && exact.asked.end > LOW_END;
    if !is_gap || is_too_high || request.address < HINTS_START {
        return None;
    }
    let flags = request.flags | libc::MAP_FIXED_NOREPLACE;
    map_at(&exact, MapRequest { bytes, flags, ..request }).ok()
}

/// Below 2 GiB.
fn is_low(request: &MapRequest) -> bool {
    request.flags & libc::MAP_32BIT != 0
}

fn allocate(process: &Process, request: MapRequest) -> Result<usize, Errno> {
    let count = u32::try_from(request.bytes.div_ceil(PAGE_BYTES)).map_err(|_| ENOMEM)?;
    let origin = origins::of_calls(process, count);
    let blocked = Blocked::new();
    let is_too_high = is_low(&request) && request.address.saturating_add(request.bytes) > LOW_END;
    let hinted = if is_too_high { None } else { at_hint(process, request.address, count) };
    let take = if is_low(&request) { ranges::take_lowest } else { ranges::take };
    let range = hinted.or_else(|| take(process, count, ranges::align_of(count))).ok_or(ENOMEM)?;
    ranges::open(process, range, request.protection)?;
    origins::note(process, range, origin);
    drop(blocked);
    settle(process, range, &request);
    Ok(process.arena.address_of(range.first))
}

/// Takes the pages at the program's hint if they can be had.
fn at_hint(process: &Process, hint: usize, count: u32) -> Option<PageRange> {
    if !hint.is_multiple_of(PAGE_BYTES) || !process.arena.contains(hint) {
        return None;
    }
    let range = PageRange { first: process.arena.page_of(hint), count };
    ranges::take_at(process, range).ok().map(|()| range)
}

/// Readable and writable memory for malloc's own mappings.
pub fn allocate_open(process: &Process, count: u32, align: u32) -> Option<PageRange> {
    let origin = origins::of_calls(process, count);
    let blocked = Blocked::new();
    let range = ranges::take(process, count, align)?;
    ranges::open(process, range, libc::PROT_READ | libc::PROT_WRITE).ok()?;
    origins::note(process, range, origin);
    drop(blocked);
    engagement::engage_if_needed(process);
    Some(range)
}

/// What follows once a mapping is in the table of areas.
fn settle(process: &Process, range: PageRange, request: &MapRequest) {
    engagement::engage_if_needed(process);
    let is_accessible = request.protection != PROT_NONE;
    if request.flags & libc::MAP_LOCKED != 0 && is_accessible {
        // As in the kernel, a mapping that cannot be locked whole is no failure of mmap.
        let _ = locking::lock(libc::SYS_mlock, process.span_of(range), 0);
    } else if request.flags & libc::MAP_POPULATE != 0 && is_accessible {
        ranges::populate(process, range, request.protection);
    }
}

/// mmap at an address in the arena.
fn map_at(exact: &Request, request: MapRequest) -> Result<usize, Errno> {
    if request.bytes == 0 || !exact.is_aligned() {
        return Err(EINVAL);
    }
    if !exact.is_whole() {
        // Half in the arena: the program can own only the part that is inside.
        return Err(ENOMEM);
    }
    let (process, range) = (exact.process, exact.pages());
    let is_ours = request.flags & (libc::MAP_HUGETLB | libc::MAP_GROWSDOWN) == 0;
    let is_memory = is_ours && is_private_memory(&request);
    let origin = is_memory.then(|| origins::of_calls(process, range.count)).flatten();
    let blocked = Blocked::new();
    let phase = process.phase();
    let over = over_what(process, range, request.flags)?;
    let mapped = map_over(process, &phase, (range, over), (is_memory, request));
    if mapped.is_err() && request.flags & NOREPLACE == NOREPLACE {
        give_up_probe(process, &phase, range);
    }
    drop(phase);
    mapped?;
    if is_memory {
        origins::note(process, range, origin);
        drop(blocked);
        settle(process, range, &request);
    }
    Ok(request.address)
}

fn map_over(
    process: &Process,
    phase: &Phase<'_>,
    (range, over): (PageRange, Over),
    (is_memory, request): (bool, MapRequest),
) -> Result<(), Errno> {
    let claim = replace::claim(process, range, over)?;
    if is_memory {
        return replace::with_memory(process, phase, &claim, request.protection);
    }
    let flags = request.flags & !libc::MAP_FIXED_NOREPLACE | libc::MAP_FIXED;
    replace::with_mapping(process, phase, &claim, MapRequest { flags, ..request }).map(drop)
}

/// What a mapping at an exact address with these flags may replace. The kernel knows whether anything is in a gap: where
/// nothing is, there is a reservation then.
///
/// # Errors
/// EEXIST where something is.
pub fn over_what(process: &Process, range: PageRange, flags: i32) -> Result<Over, Errno> {
    if flags & NOREPLACE != NOREPLACE {
        return Ok(Over::Anything);
    }
    if process.arena.gaps_within(range) != [range] {
        return Ok(Over::Nothing);
    }
    reserve(process.span_of(range)).map(|_| Over::Anything)
}

/// Past the arena's tables, where nothing is mapped.
///
/// # Errors
/// The kernel's: EEXIST where something is.
pub fn reserve(Span { address, bytes }: Span) -> Result<usize, Errno> {
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | NOREPLACE;
    raw::map(MapRequest { address, bytes, protection: PROT_NONE, flags, fd: -1, offset: 0 })
}

/// The kernel's again, where it has not become memory.
pub fn give_up_probe(process: &Process, phase: &Phase<'_>, range: PageRange) {
    if process.arena.gaps_within(range) == [range] && ranges::is_foreign(process, phase, range) {
        let _ = raw::unmap(process.span_of(range));
    }
}

/// munmap.
///
/// # Errors
/// The kernel's.
pub fn unmap(span: Span) -> Result<usize, Errno> {
    let Some(request) = Request::new(span) else { return raw::unmap(span) };
    if span.bytes == 0 || !request.is_aligned() {
        return Err(EINVAL);
    }
    request.process.insistence.given_back(span);
    let Request { asked, inside, .. } = &request;
    for outside in [asked.start..inside.start, inside.end..asked.end] {
        if !outside.is_empty() {
            raw::unmap(Span { address: outside.start, bytes: outside.len() })?;
        }
    }
    let _blocked = Blocked::new();
    ranges::unmap(request.process, request.pages()).map(|()| 0)
}
