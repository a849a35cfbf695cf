//! madvise and mincore on managed memory.
//!
//! Advice that changes contents, or where they are, goes to the engine once it is there; how a range will
//! be used is kept in the arena, for readahead. Advice that would only give parts of the arena flags of
//! their own is accepted and not passed on: it must stay one registered area.
use super::{locking, ranges};
use crate::abi::raw::{self, Errno, Span};
use crate::calls::held::Held;
use crate::state::areas::{self, Area, Memory};
use crate::state::process::{Phase, Process, Request};
use libc::{EINVAL, ENOMEM, PROT_READ, PROT_WRITE};
use userswap::Engine;
use userswap::internals::Hint;
use userswap::internals::signal::Blocked;
use userswap::internals::{PAGE_BYTES, PageRange};

/// Not in the C library's headers everywhere (Linux 6.13).
const MADV_GUARD_INSTALL: i32 = 102;
/// See [`MADV_GUARD_INSTALL`].
const MADV_GUARD_REMOVE: i32 = 103;

/// madvise.
///
/// # Errors
/// The kernel's; EINVAL also for advice that managed memory cannot follow.
pub fn advise(span: Span, advice: i32) -> Result<usize, Errno> {
    let Some(request) = Request::new(span) else { return raw::advise(span, advice) };
    if !request.is_aligned() || span.address.checked_add(span.bytes).is_none() {
        return Err(EINVAL);
    }
    if !request.is_whole() {
        return Err(ENOMEM);
    }
    let range = request.pages();
    let blocked = Blocked::new();
    let parts = request.process.areas_within(range);
    drop(blocked);
    // Beyond a hole it goes on.
    let mut outcome = if areas::is_covered(range, &parts) { Ok(0) } else { Err(ENOMEM) };
    for (part, area) in &parts {
        match advise_part(request.process, *part, *area, advice) {
            Err(ENOMEM) if *area == Area::Foreign => outcome = Err(ENOMEM),
            advised => advised?,
        }
    }
    outcome
}

fn advise_part(process: &Process, range: PageRange, area: Area, advice: i32) -> Result<(), Errno> {
    let pass_on = || raw::advise(process.span_of(range), advice).map(|_| ());
    if area == Area::Foreign {
        return pass_on();
    }
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => {
            drop_content(process, range, area, advice)
        }
        libc::MADV_POPULATE_READ => populate(process, range, area, PROT_READ),
        libc::MADV_POPULATE_WRITE => populate(process, range, area, PROT_WRITE),
        libc::MADV_NORMAL => hint(process, range, Hint::Normal),
        libc::MADV_SEQUENTIAL => hint(process, range, Hint::Sequential),
        libc::MADV_RANDOM => hint(process, range, Hint::Random),
        libc::MADV_WILLNEED => with_engine(process, |engine| engine.core().will_need(range)),
        libc::MADV_COLD => with_engine(process, |engine| engine.core().cool(range)),
        libc::MADV_PAGEOUT => with_engine(process, |engine| engine.core().page_out_range(range)),
        // Huge pages end with the engagement, which takes their flag off the whole arena.
        libc::MADV_HUGEPAGE if process.engine().is_none() => pass_on(),
        libc::MADV_HUGEPAGE
        | libc::MADV_NOHUGEPAGE
        | libc::MADV_DONTDUMP
        | libc::MADV_DODUMP
        | libc::MADV_DOFORK
        | libc::MADV_DONTFORK
        | libc::MADV_KEEPONFORK
        | libc::MADV_MERGEABLE
        | libc::MADV_UNMERGEABLE => Ok(()),
        // Private memory has no file to punch; wiping on fork, guards and collapsing cannot be had here.
        libc::MADV_REMOVE
        | libc::MADV_WIPEONFORK
        | libc::MADV_COLLAPSE
        | MADV_GUARD_INSTALL
        | MADV_GUARD_REMOVE => Err(EINVAL),
        _ => pass_on(),
    }
}

/// What reads as zeros afterwards; locked memory is dropped only by the advice that says so.
fn drop_content(process: &Process, range: PageRange, area: Area, advice: i32) -> Result<(), Errno> {
    if area.is_locked() && advice != libc::MADV_DONTNEED_LOCKED {
        return Err(EINVAL);
    }
    let _blocked = Blocked::new();
    let phase = process.phase();
    match phase {
        Phase::Native(_) => raw::advise(process.span_of(range), advice).map(|_| ()),
        Phase::Engaged(_) if area.is_locked() => {
            locking::empty(process, &phase, range);
            Ok(())
        }
        Phase::Engaged(_) => {
            ranges::forget(process, &phase, range);
            Ok(())
        }
    }
}

fn populate(process: &Process, range: PageRange, area: Area, wanted: i32) -> Result<(), Errno> {
    let (Area::Memory(Memory { protection, .. }) | Area::Heap { protection, .. }) = area else {
        return Err(EINVAL);
    };
    if protection & wanted == 0 {
        return Err(EINVAL);
    }
    ranges::populate(process, range, protection);
    Ok(())
}

/// Kept in the arena, also for an engine that starts later.
fn hint(process: &Process, range: PageRange, hint: Hint) -> Result<(), Errno> {
    process.arena.hints.set(range, hint);
    Ok(())
}

fn with_engine(process: &Process, act: impl FnOnce(&userswap::Engine)) -> Result<(), Errno> {
    let _blocked = Blocked::new();
    if let Some(engine) = process.engine() {
        act(engine);
    }
    Ok(())
}

/// posix_madvise: only hints, and DONTNEED must not lose anything.
///
/// # Errors
/// The kernel's, as the return value.
pub fn advise_posix(span: Span, advice: i32) -> Result<usize, Errno> {
    match advice {
        libc::POSIX_MADV_DONTNEED => Ok(0),
        libc::POSIX_MADV_NORMAL
        | libc::POSIX_MADV_RANDOM
        | libc::POSIX_MADV_SEQUENTIAL
        | libc::POSIX_MADV_WILLNEED => advise(span, advice),
        _ => Err(EINVAL),
    }
}

/// Whether the program can write so many bytes there: the kernel, asked about a page of ours, writes one to each page of them.
fn check_vector(vector: *mut u8, bytes: usize) -> Result<(), Errno> {
    let asked = 0u8;
    let address = (&raw const asked).addr() / PAGE_BYTES * PAGE_BYTES;
    let ends = (0..bytes).step_by(PAGE_BYTES).chain(bytes.checked_sub(1));
    for at in ends {
        let place = vector.wrapping_add(at);
        let _held = Held::new(&[Span::of(place, 1)]);
        raw::in_core(Span { address, bytes: PAGE_BYTES }, place)?;
    }
    Ok(())
}

/// mincore: managed pages are in core while they are mapped.
///
/// # Errors
/// The kernel's.
pub fn in_core(span: Span, vector: *mut u8) -> Result<usize, Errno> {
    let Some(request) = Request::new(span) else { return raw::in_core(span, vector) };
    if !request.is_aligned() {
        return Err(EINVAL);
    }
    let (process, range) = (request.process, request.pages());
    let blocked = Blocked::new();
    let parts = process.areas_within(range);
    drop(blocked);
    if !request.is_whole() || !areas::is_covered(range, &parts) {
        return Err(ENOMEM);
    }
    let Some(engine) = process.engine() else { return raw::in_core(span, vector) };
    check_vector(vector, range.count as usize)?;
    for (part, area) in parts {
        let vector = vector.wrapping_add((part.first - range.first) as usize);
        match area {
            Area::Foreign => ask_kernel(process, part, vector)?,
            _ => tell_resident(engine, part, vector),
        }
    }
    Ok(0)
}

/// In pieces whose answers, which may be managed memory, can stay in RAM for as long.
fn ask_kernel(process: &Process, range: PageRange, vector: *mut u8) -> Result<(), Errno> {
    const PIECE_PAGES: u32 = 1 << 20;
    for first in (range.first..range.end()).step_by(PIECE_PAGES as usize) {
        let piece = PageRange { first, count: (range.end() - first).min(PIECE_PAGES) };
        let vector = vector.wrapping_add((first - range.first) as usize);
        let _held = Held::new(&[Span::of(vector, piece.count as usize)]);
        raw::in_core(process.span_of(piece), vector)?;
    }
    Ok(())
}

/// A byte for each page of managed memory.
fn tell_resident(engine: &Engine, range: PageRange, vector: *mut u8) {
    for (index, page) in (range.first..range.end()).enumerate() {
        let is_resident = engine.core().pages.state(page).mapped().is_some();
        // SAFETY: the program gave a vector with a byte for each page.
        let entry = unsafe { vector.add(index) };
        // SAFETY: as above.
        unsafe { entry.write(u8::from(is_resident)) };
    }
}
