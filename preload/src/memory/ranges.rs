//! Ranges of the arena: given out, filled and emptied, taken back.
//!
//! The arena stays one reservation. Giving out a range is a change of protection; taking it back drops
//! its content and makes it inaccessible again. Signals are blocked in all of these, but for `populate`.
//! What is mapped over memory that is in use is in `replace`.
use super::replace::{self, Over};
use super::{engagement, locking};
use crate::abi::raw::{self, Errno, Span};
use crate::calls::{in_flight, kept_stacks};
use crate::state::areas::{Area, Memory};
use crate::state::owner;
use crate::state::process::{Phase, Process};
use libc::{ENOMEM, PROT_NONE, PROT_READ, PROT_WRITE};
use userswap::internals::PageRange;
use userswap::internals::RangeSet;

/// Pages of a huge page, to which the kernel aligns mappings of whole ones.
pub const HUGE_PAGES: u32 = 512;

/// How a mapping of `count` pages is aligned, in pages.
pub fn align_of(count: u32) -> u32 {
    if count.is_multiple_of(HUGE_PAGES) { HUGE_PAGES } else { 1 }
}

/// Takes free pages anywhere in the arena. The phase may not be held.
pub fn take(process: &Process, count: u32, align: u32) -> Option<PageRange> {
    take_by(process, || process.arena.allocate(count, align))
}

/// Takes free pages below 2 GiB. The phase may not be held.
pub fn take_lowest(process: &Process, count: u32, align: u32) -> Option<PageRange> {
    take_by(process, || process.arena.allocate_lowest(count, align))
}

fn take_by(process: &Process, allocate: impl FnOnce() -> Option<PageRange>) -> Option<PageRange> {
    let mut areas = process.areas.lock();
    let range = allocate()?;
    process.will_manage(range);
    let open = take_left_open(&mut areas.left_open, range);
    drop(areas);
    clear(process, &open);
    Some(range)
}

/// Takes exactly these pages. The phase may not be held.
///
/// # Errors
/// ENOMEM when one of them is in use, or outside the arena.
pub fn take_at(process: &Process, range: PageRange) -> Result<(), Errno> {
    let fits = range.first.checked_add(range.count).is_some_and(|end| end <= process.arena.pages());
    take_by(process, || (fits && process.arena.allocate_at(range)).then_some(range))
        .map_or(Err(ENOMEM), |_| Ok(()))
}

/// The same, for what lies before them to grow.
///
/// # Errors
/// As [`take_at`].
pub fn extend(process: &Process, range: PageRange) -> Result<(), Errno> {
    let fits = range.first.checked_add(range.count).is_some_and(|end| end <= process.arena.pages());
    take_by(process, || (fits && process.arena.extend(range)).then_some(range))
        .map_or(Err(ENOMEM), |_| Ok(()))
}

/// The parts of a range that could not be closed when they were freed; they are its new owner's now.
pub fn take_left_open(left_open: &mut RangeSet, range: PageRange) -> Vec<PageRange> {
    if left_open.is_empty() {
        return Vec::new();
    }
    let parts = left_open.within(range);
    left_open.remove(range);
    parts
}

/// A thread with a stale address may have written where it could.
fn clear(process: &Process, parts: &[PageRange]) {
    if parts.is_empty() {
        return;
    }
    let phase = process.phase();
    parts.iter().for_each(|part| forget(process, &phase, *part));
}

/// Makes a range that was just taken the program's memory.
///
/// # Errors
/// What mprotect says; the range is free again then.
pub fn open(process: &Process, range: PageRange, protection: i32) -> Result<(), Errno> {
    // Also to PROT_NONE: what was left open when it was freed is closed now.
    if let Err(error) = raw::protect(process.span_of(range), protection) {
        give_back(process, range);
        return Err(error);
    }
    if protection != PROT_NONE {
        add_to_dump(process, range);
    }
    process.areas.lock().set(range, Area::Memory(Memory::new(protection)));
    Ok(())
}

/// Free ranges from this size on, 64 MiB, are taken out of core dumps; smaller ones are soon in use again.
const UNDUMPED_PAGES: u32 = 1 << 14;

/// A core dump holds a range that becomes accessible; free parts of the arena it does not, which are TiBs, and it
/// would look at each page.
pub fn add_to_dump(process: &Process, range: PageRange) {
    let mut areas = process.areas.lock();
    if areas.dumped.covers(range) {
        return;
    }
    areas.dumped.insert(range);
    drop(areas);
    // It fails where there is no mapping left to split a part off: the dump holds less then.
    let _ = raw::advise(process.span_of(range), libc::MADV_DODUMP);
}

/// A range is not accessible any more.
pub fn leave_out_of_dump(process: &Process, range: PageRange) {
    if range.count >= UNDUMPED_PAGES {
        process.areas.lock().dumped.remove(range);
        // As above: the dump takes longer then.
        let _ = raw::advise(process.span_of(range), libc::MADV_DONTDUMP);
    }
}

/// Frees a range that was taken and could not be opened: a part of it may be accessible.
pub fn give_back(process: &Process, range: PageRange) {
    let outcome = raw::protect(process.span_of(range), PROT_NONE);
    leave_out_of_dump(process, range);
    let mut areas = process.areas.lock();
    if outcome.is_err() {
        areas.left_open.insert(range);
    }
    process.arena.free(range);
}

/// Takes back whatever the program has in a range; what the arena did not have from the start is the kernel's again.
///
/// # Errors
/// ENOMEM at the limit on mappings, for what the program had mapped of the kernel's: it stays.
pub fn unmap(process: &Process, range: PageRange) -> Result<(), Errno> {
    let phase = process.phase();
    for gap in process.arena.gaps_within(range) {
        give_to_kernel(process, &phase, gap)?;
    }
    take_back(process, &phase, range)?;
    drop(phase);
    engagement::settle(process);
    Ok(())
}

fn give_to_kernel(process: &Process, phase: &Phase<'_>, gap: PageRange) -> Result<(), Errno> {
    let unmap = || raw::unmap(process.span_of(gap));
    if is_foreign(process, phase, gap) {
        return unmap().map(drop);
    }
    let claim = replace::claim(process, gap, Over::Anything)?;
    replace::separate(process, phase, &claim)?;
    replace::with_foreign(process, phase, &claim, unmap).map(drop)
}

/// Whether all of a range is the kernel's. No fork comes between.
pub fn is_foreign(process: &Process, phase: &Phase<'_>, range: PageRange) -> bool {
    let _alone = process.alone(phase);
    process.arena.foreign_within(range) == [range]
}

/// Takes back what the arena had of a range, where that is the program's.
///
/// # Errors
/// As [`unmap`].
pub fn take_back(process: &Process, phase: &Phase<'_>, range: PageRange) -> Result<(), Errno> {
    let own = process.arena.own_within(range);
    for (part, area) in own.into_iter().flat_map(|own| process.areas_within(own)) {
        let is_closed = match area {
            Area::Memory(memory) => close(process, phase, part, memory),
            Area::Foreign => {
                let _alone = process.alone(phase);
                replace::put_plain(process, phase, part, PROT_NONE)?;
                true
            }
            // What malloc gave out is not the program's to unmap.
            Area::Heap { .. } => continue,
        };
        let mut areas = process.areas.lock();
        areas.clear(part);
        if !is_closed {
            areas.left_open.insert(part);
        }
        process.arena.free(part);
    }
    Ok(())
}

/// Drops the content of a range and makes it inaccessible, before others can have it; false if it stays
/// accessible, because the kernel has no mapping left to split it off.
fn close(process: &Process, phase: &Phase<'_>, range: PageRange, memory: Memory) -> bool {
    if memory.locked {
        locking::release(process, phase, range);
    }
    forget(process, phase, range);
    let is_closed = protect_anew(process.span_of(range), PROT_NONE, memory.keyed).is_ok();
    if memory.opened {
        leave_out_of_dump(process, range);
    }
    is_closed
}

/// Protects memory for its next use, which knows nothing of the last one's protection key.
///
/// # Errors
/// The kernel's.
pub fn protect_anew(span: Span, protection: i32, keyed: bool) -> Result<usize, Errno> {
    if keyed { raw::protect_keyed(span, protection, 0) } else { raw::protect(span, protection) }
}

/// Before a range loses its content: what was pinned of it is nobody's any more.
pub fn let_go(phase: &Phase<'_>, range: PageRange) {
    // Of a child that shares this memory, nothing of it goes.
    if !owner::is_here() {
        return;
    }
    kept_stacks::forget(range);
    if let Phase::Engaged(engine) = phase {
        in_flight::trim(engine, range);
    }
}

/// Drops the content of a range, which reads as zeros afterwards; also where we were never told that it is
/// accessible: a raw system call can have opened it.
pub fn forget(process: &Process, phase: &Phase<'_>, range: PageRange) {
    let_go(phase, range);
    match phase {
        Phase::Native(_) => {
            let span = process.span_of(range);
            let drop_all = || raw::advise(span, libc::MADV_DONTNEED);
            if drop_all() == Err(libc::EINVAL) {
                // Locked past us: that goes with its content, as by munmap.
                let _ = raw::lock(libc::SYS_munlock, span, 0);
                drop_all().expect("the arena is ours");
            }
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
    } else if protection & (PROT_READ | PROT_WRITE) != 0 {
        userswap::internals::pages::touch(span.address, range.count as usize);
    }
}
