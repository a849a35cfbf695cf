//! Ranges of the arena: given out, filled and emptied, taken back.
//!
//! The arena stays one reservation. Giving out a range is a change of protection; taking it back drops
//! its content and makes it inaccessible again. Signals are blocked in all of these, but for `populate`.
use super::{engagement, locking};
use crate::abi::raw::{self, Errno, MapRequest, Span};
use crate::state::areas::{Area, Memory};
use crate::state::process::{Phase, Process};
use libc::{ENOMEM, PROT_NONE, PROT_READ, PROT_WRITE};
use userswap::internals::PageRange;

/// Pages of a huge page, to which the kernel aligns mappings of whole ones.
pub const HUGE_PAGES: u32 = 512;

/// How a mapping of `count` pages is aligned, in pages.
pub fn align_of(count: u32) -> u32 {
    if count.is_multiple_of(HUGE_PAGES) { HUGE_PAGES } else { 1 }
}

/// Takes free pages anywhere in the arena.
pub fn take(process: &Process, count: u32, align: u32) -> Option<PageRange> {
    let _areas = process.areas.lock();
    process.arena.allocate(count, align)
}

/// Takes exactly these pages.
///
/// # Errors
/// ENOMEM when one of them is in use, or outside the arena.
pub fn take_at(process: &Process, range: PageRange) -> Result<(), Errno> {
    let _areas = process.areas.lock();
    let fits = range.first.checked_add(range.count).is_some_and(|end| end <= process.arena.pages());
    if fits && process.arena.allocate_at(range) { Ok(()) } else { Err(ENOMEM) }
}

/// Makes a range that was just taken the program's memory.
///
/// # Errors
/// What mprotect says; the range is free again then.
pub fn open(process: &Process, range: PageRange, protection: i32) -> Result<(), Errno> {
    if protection != PROT_NONE
        && let Err(error) = raw::protect(process.span_of(range), protection)
    {
        let _areas = process.areas.lock();
        process.arena.free(range);
        return Err(error);
    }
    process.areas.lock().set(range, Area::Memory(Memory::new(protection)));
    Ok(())
}

/// Maps something of the kernel's over a range that was just taken; the range is free again if that fails.
pub fn cover(
    process: &Process,
    range: PageRange,
    map: impl FnOnce() -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    let mut areas = process.areas.lock();
    let outcome = map();
    match outcome {
        Ok(_) => areas.set(range, Area::Foreign),
        Err(_) => process.arena.free(range),
    }
    outcome
}

/// Takes back whatever the program has in a range.
pub fn unmap(process: &Process, range: PageRange) {
    let phase = process.phase();
    for (part, area) in process.areas_within(range) {
        match area {
            Area::Memory(memory) => close(process, &phase, part, memory),
            Area::Foreign => replace_foreign(process, &phase, part),
            // What malloc gave out is not the program's to unmap.
            Area::Heap => continue,
        }
        let mut areas = process.areas.lock();
        areas.clear(part);
        process.arena.free(part);
    }
}

/// Drops the content of a range and makes it inaccessible, before others can have it.
fn close(process: &Process, phase: &Phase<'_>, range: PageRange, memory: Memory) {
    if memory.locked {
        locking::unlock_part(process, phase, range);
    }
    if memory.opened {
        forget(process, phase, range);
    }
    if memory.protection != PROT_NONE {
        protect(process.span_of(range), PROT_NONE);
    }
}

/// Drops the content of a range, which reads as zeros afterwards.
pub fn forget(process: &Process, phase: &Phase<'_>, range: PageRange) {
    match phase {
        Phase::Native(_) => {
            raw::advise(process.span_of(range), libc::MADV_DONTNEED).expect("the arena is ours");
        }
        Phase::Engaged(engine) => engine.core().drop_range(range),
    }
}

/// Brings a range in, as MAP_POPULATE does; beyond the budget only its end stays.
pub fn populate(process: &Process, range: PageRange, protection: i32) {
    let span = process.span_of(range);
    if process.engine().is_none() {
        let can_write = protection & PROT_WRITE != 0;
        let advice = if can_write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // A populate that does not succeed leaves the pages to their first touch.
        let _ = raw::advise(span, advice);
    } else if protection & PROT_READ != 0 {
        userswap::internals::pages::touch(span.address, range.count as usize);
    }
}

/// Puts plain memory back where the program had mapped something else.
fn replace_foreign(process: &Process, phase: &Phase<'_>, range: PageRange) {
    let Span { address, bytes } = process.span_of(range);
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE | libc::MAP_FIXED;
    let plain = MapRequest { address, bytes, protection: PROT_NONE, flags, fd: -1, offset: 0 };
    if let Err(error) = raw::map(plain) {
        fail("cannot replace a mapping in the arena", error);
    }
    if let Phase::Engaged(engine) = phase {
        engagement::join(engine, process.span_of(range));
    }
}

/// mprotect of memory that is ours: it can fail only for want of mappings, which ends the process.
pub fn protect(span: Span, protection: i32) {
    if let Err(error) = raw::protect(span, protection) {
        fail("cannot protect memory (raise vm.max_map_count?)", error);
    }
}

/// Ends the process: its memory is not what it believes it to be.
fn fail(what: &str, error: Errno) -> ! {
    raw::say(&format!("{what}: {}", std::io::Error::from_raw_os_error(error)));
    raw::exit_now(1)
}
