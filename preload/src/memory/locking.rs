//! mlock and its relatives: natively the kernel locks, under the engine pages are pinned.
//!
//! Locks do not nest and pins do, so the table of areas says which memory is locked. At engagement the
//! kernel's locks on the arena are undone and become pins: pages can move only between mappings that are
//! locked alike. `mlockall` before the engagement locks what is outside the arena; afterwards it is refused.
use super::ranges;
use crate::abi::raw::{self, Errno, Span};
use crate::state::areas::{self, Area};
use crate::state::process::{self, Phase, Process, Request};
use libc::{EINVAL, ENOMEM, c_long};
use userswap::Engine;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;
use userswap::internals::{PAGE_BYTES, PageIndex, PageRange};

/// What the table says of locks and the pins that they have change together. Taken with the phase held.
static CHANGING: Lock<()> = Lock::new(());

/// Before fork: no other thread is in between.
pub fn hold_changes() {
    CHANGING.hold();
}

/// After fork, on both sides.
pub fn release_changes() {
    CHANGING.release();
}

/// mlock and mlock2.
///
/// # Errors
/// The kernel's; ENOMEM also for more than the budget can hold.
pub fn lock(call: c_long, span: Span, flags: i32) -> Result<usize, Errno> {
    let Some(request) = managed(span)? else { return raw::lock(call, span, flags) };
    if call == libc::SYS_mlock2 && flags & !(libc::MLOCK_ONFAULT as i32) != 0 {
        return Err(EINVAL);
    }
    let (process, range) = (request.process, request.pages());
    let _blocked = Blocked::new();
    let phase = process.phase();
    let parts = process.areas_within(range);
    if !areas::is_covered(range, &parts) {
        return Err(ENOMEM);
    }
    lock_parts(process, &phase, range, |part| raw::lock(call, process.span_of(part), flags))
}

/// Pages that are pinned at once: others that lock, or fork, wait for no more.
const PIECE_PAGES: u32 = 256;

/// Locks each as it can be; `natively` has the kernel do it.
fn lock_parts(
    process: &Process,
    phase: &Phase<'_>,
    range: PageRange,
    natively: impl Fn(PageRange) -> Result<usize, Errno>,
) -> Result<usize, Errno> {
    for (part, area) in process.areas_within(range) {
        match (phase, area) {
            (_, Area::Foreign) | (Phase::Native(_), _) => {
                natively(part)?;
                process.areas.lock().update(part, Area::locked);
            }
            (Phase::Engaged(engine), _) => pin(process, engine, part)?,
        }
    }
    Ok(0)
}

/// Locks memory that came to what is locked (mremap): all of it is mapped, and can be read.
///
/// # Errors
/// As [`lock`].
pub fn lock_too(process: &Process, phase: &Phase<'_>, range: PageRange) -> Result<usize, Errno> {
    let natively = |part| raw::lock(libc::SYS_mlock, process.span_of(part), 0);
    lock_parts(process, phase, range, natively)
}

/// Locks what has moved, and was locked a moment ago: there is room for it. False if the kernel refuses it all the same.
pub fn lock_again(process: &Process, phase: &Phase<'_>, range: PageRange) -> bool {
    let _changing = CHANGING.lock();
    match phase {
        Phase::Engaged(engine) => engine.core().pin_beyond(range),
        Phase::Native(_) => {
            // What it had not touched is not brought in for that.
            let flags = libc::MLOCK_ONFAULT as i32;
            if raw::lock(libc::SYS_mlock2, process.span_of(range), flags).is_err() {
                return false;
            }
        }
    }
    process.areas.lock().update(range, Area::locked);
    true
}

/// Pins what is not locked yet; what has been is given up again if there is no room for all.
fn pin(process: &Process, engine: &Engine, range: PageRange) -> Result<(), Errno> {
    // What there is no room for brings nothing in.
    let all = process.areas_within(range);
    let new: u32 =
        all.iter().filter(|(_, area)| !area.is_locked()).map(|(part, _)| part.count).sum();
    if !engine.core().has_pin_room(new) {
        return Err(ENOMEM);
    }
    let mut pinned = Vec::new();
    for first in (range.first..range.end()).step_by(PIECE_PAGES as usize) {
        let piece = PageRange { first, count: (range.end() - first).min(PIECE_PAGES) };
        let _changing = CHANGING.lock();
        for (part, area) in
            process.areas_within(piece).into_iter().filter(|(_, it)| !it.is_locked())
        {
            let has_room = || engine.core().has_pin_room(part.count);
            if !area.is_readable() || !has_room() || engine.core().pin_range(part).is_err() {
                drop(_changing);
                pinned.into_iter().for_each(|part| release(process, &Phase::Engaged(engine), part));
                return Err(ENOMEM);
            }
            process.areas.lock().update(part, Area::locked);
            pinned.push(part);
        }
    }
    Ok(())
}

/// munlock.
///
/// # Errors
/// The kernel's.
pub fn unlock(span: Span) -> Result<usize, Errno> {
    let Some(request) = managed(span)? else { return raw::lock(libc::SYS_munlock, span, 0) };
    let (process, range) = (request.process, request.pages());
    let _blocked = Blocked::new();
    let phase = process.phase();
    let parts = process.areas_within(range);
    for (part, _) in parts.iter().filter(|(_, area)| *area == Area::Foreign) {
        raw::lock(libc::SYS_munlock, process.span_of(*part), 0)?;
    }
    release(process, &phase, range);
    if areas::is_covered(range, &parts) { Ok(0) } else { Err(ENOMEM) }
}

/// Undoes all locks in a range, in the table too.
pub fn release(process: &Process, phase: &Phase<'_>, range: PageRange) {
    if !process.areas_within(range).iter().any(|(_, area)| area.is_locked()) {
        return;
    }
    let _changing = CHANGING.lock();
    for (part, area) in process.areas_within(range) {
        if area.is_locked() {
            unlock_part(process, phase, part);
            unmark(process, part);
        }
    }
}

/// Drops the content of memory that is locked, under the engine: it stays locked (MADV_DONTNEED_LOCKED).
pub fn empty(process: &Process, phase: &Phase<'_>, range: PageRange) {
    let _changing = CHANGING.lock();
    ranges::forget(process, phase, range);
    for (part, area) in process.areas_within(range).into_iter().filter(|(_, area)| area.is_locked())
    {
        match phase {
            Phase::Engaged(engine) if area.is_readable() => engine.core().pin_beyond(part),
            _ => unmark(process, part),
        }
    }
}

/// In the child of a fork, which has none of its parent's locks: the kernel has dropped its own already.
pub fn forget(process: &Process) {
    let phase = process.phase();
    let locked = process.areas.lock().select(Area::is_locked);
    for range in locked {
        if let Phase::Engaged(engine) = phase {
            engine.core().unpin_range(range);
        }
        unmark(process, range);
    }
}

/// Undoes the lock of a part that is locked; that the part is marked as such is left to the caller.
fn unlock_part(process: &Process, phase: &Phase<'_>, range: PageRange) {
    match phase {
        Phase::Native(_) => {
            raw::lock(libc::SYS_munlock, process.span_of(range), 0).expect("the arena is ours");
        }
        Phase::Engaged(engine) => engine.core().unpin_range(range),
    }
}

/// mlockall.
///
/// # Errors
/// The kernel's; ENOMEM once the engine has the arena: all of it does not fit.
pub fn lock_all(flags: i32) -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::lock_all(flags) };
    let _blocked = Blocked::new();
    match process.phase() {
        Phase::Engaged(_) => Err(ENOMEM),
        Phase::Native(_) => {
            // Without populating: that would fill the heap's room for growth.
            raw::lock_all(flags | libc::MCL_ONFAULT)?;
            for part in process.arena.plain() {
                raw::lock(libc::SYS_munlock, process.span_of(part), 0)?;
            }
            Ok(0)
        }
    }
}

/// munlockall.
///
/// # Errors
/// The kernel's.
pub fn unlock_all() -> Result<usize, Errno> {
    let Some(process) = process::current() else { return raw::unlock_all() };
    let _blocked = Blocked::new();
    let phase = process.phase();
    let locked = process.areas.lock().select(Area::is_locked);
    locked.into_iter().for_each(|range| release(process, &phase, range));
    let outcome = raw::unlock_all();
    if let Phase::Engaged(engine) = &phase {
        engine.core().devices.lock_key();
    }
    outcome
}

/// While engaging, before the engine has the arena: takes the kernel's locks on it off. What is locked outside stays so;
/// locks by raw system calls are not in the table, and stay too, with their pages.
pub fn suspend(process: &Process) -> Vec<PageRange> {
    let locked = process.areas.lock().select(Area::is_locked);
    for range in &locked {
        // It says ENOMEM for a hole that the program has made past us: there is nothing to unlock.
        let _ = raw::lock(libc::SYS_munlock, process.span_of(*range), 0);
    }
    locked
}

/// After engaging: what was locked is pinned, but for these pages, or None of it.
pub fn resume(process: &Process, range: PageRange, but: Option<Vec<PageIndex>>) {
    match but {
        None => unmark(process, range),
        Some(pages) => {
            pages.into_iter().for_each(|first| unmark(process, PageRange { first, count: 1 }));
        }
    }
}

fn unmark(process: &Process, range: PageRange) {
    process.areas.lock().update(range, Area::unlocked);
}

/// The managed pages that a call is about; None when it is about none.
fn managed(span: Span) -> Result<Option<Request>, Errno> {
    let address = span.address / PAGE_BYTES * PAGE_BYTES;
    let request = span.address.checked_add(span.bytes).and_then(|end| {
        let bytes = end.checked_next_multiple_of(PAGE_BYTES)? - address;
        Request::new(Span { address, bytes })
    });
    match request {
        Some(request) if !request.is_whole() => Err(ENOMEM),
        request => Ok(request),
    }
}
