//! madvise and mincore on managed memory.
//!
//! Advice that changes contents, or where they are, goes to the engine once it is there; how a range will
//! be used is kept in the arena, for readahead. Advice that would only give parts of the arena flags of
//! their own is accepted and not passed on: it must stay one registered area.
use crate::abi::raw::{self, Errno, PAGE_BYTES};
use crate::memory::mappings;
use crate::state::areas::Area;
use crate::state::process::{self, Phase, Process};
use libc::{EINVAL, ENOMEM, PROT_WRITE};
use userswap::arena::PageRange;
use userswap::hints::Hint;
use userswap::page::PageState;
use userswap::sys::signal::Blocked;

/// Not in the C library's headers everywhere (Linux 6.13).
const MADV_GUARD_INSTALL: i32 = 102;
/// See [`MADV_GUARD_INSTALL`].
const MADV_GUARD_REMOVE: i32 = 103;

/// madvise.
///
/// # Errors
/// The kernel's; EINVAL also for advice that managed memory cannot follow.
pub fn advise(address: usize, bytes: usize, advice: i32) -> Result<usize, Errno> {
    let inside = process::current().and_then(|process| {
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        process.within_arena(address, rounded).map(|inside| (process, inside, rounded))
    });
    let Some((process, (start, end), rounded)) = inside else {
        return raw::advise(address, bytes, advice);
    };
    if !address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    if rounded != end - start {
        return Err(ENOMEM);
    }
    let range = process.pages_between(start, end);
    let parts = {
        let _blocked = Blocked::new();
        process.books.lock().within(range)
    };
    for (part, area) in &parts {
        advise_part(process, *part, *area, advice)?;
    }
    let covered: u32 = parts.iter().map(|(part, _)| part.count).sum();
    if covered == range.count { Ok(0) } else { Err(ENOMEM) }
}

fn advise_part(process: &Process, range: PageRange, area: Area, advice: i32) -> Result<(), Errno> {
    let (address, bytes) = process.bytes_of(range);
    let (protection, locked) = match area {
        Area::Foreign => return raw::advise(address, bytes, advice).map(|_| ()),
        Area::Heap => (libc::PROT_READ | PROT_WRITE, false),
        Area::Memory(memory) => (memory.protection, memory.locked),
    };
    match advice {
        libc::MADV_DONTNEED | libc::MADV_FREE | libc::MADV_DONTNEED_LOCKED => {
            if locked && advice != libc::MADV_DONTNEED_LOCKED {
                return Err(EINVAL);
            }
            let _blocked = Blocked::new();
            let phase = process.phase();
            match phase {
                Phase::Native(_) => raw::advise(address, bytes, advice).map(|_| ()),
                Phase::Engaged(_) => {
                    mappings::forget(process, &phase, range);
                    Ok(())
                }
            }
        }
        libc::MADV_POPULATE_READ | libc::MADV_POPULATE_WRITE => {
            let wanted =
                if advice == libc::MADV_POPULATE_READ { libc::PROT_READ } else { PROT_WRITE };
            if protection & wanted == 0 {
                return Err(ENOMEM);
            }
            populate(process, range, protection);
            Ok(())
        }
        libc::MADV_NORMAL => hint(process, range, Hint::Normal),
        libc::MADV_SEQUENTIAL => hint(process, range, Hint::Sequential),
        libc::MADV_RANDOM => hint(process, range, Hint::Random),
        libc::MADV_WILLNEED => with_engine(process, |engine| engine.core().will_need(range)),
        libc::MADV_COLD => with_engine(process, |engine| engine.core().cool(range)),
        libc::MADV_PAGEOUT => with_engine(process, |engine| engine.core().page_out_range(range)),
        // Huge pages end with the engagement, which takes their flag off the whole arena.
        libc::MADV_HUGEPAGE if process.engine().is_none() => {
            raw::advise(address, bytes, advice).map(|_| ())
        }
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
        _ => raw::advise(address, bytes, advice).map(|_| ()),
    }
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

/// Brings a range in, as MAP_POPULATE does; beyond the budget only its end stays.
pub fn populate(process: &Process, range: PageRange, protection: i32) {
    let (address, bytes) = process.bytes_of(range);
    if process.engine().is_none() {
        let can_write = protection & PROT_WRITE != 0;
        let advice = if can_write { libc::MADV_POPULATE_WRITE } else { libc::MADV_POPULATE_READ };
        // A populate that does not succeed leaves the pages to their first touch.
        let _ = raw::advise(address, bytes, advice);
    } else if protection & libc::PROT_READ != 0 {
        userswap::sys::pages::touch(address, range.count as usize);
    }
}

/// posix_madvise: only hints, and DONTNEED must not lose anything.
///
/// # Errors
/// The kernel's, as the return value.
pub fn advise_posix(address: usize, bytes: usize, advice: i32) -> Result<usize, Errno> {
    match advice {
        libc::POSIX_MADV_DONTNEED => Ok(0),
        libc::POSIX_MADV_NORMAL
        | libc::POSIX_MADV_RANDOM
        | libc::POSIX_MADV_SEQUENTIAL
        | libc::POSIX_MADV_WILLNEED => advise(address, bytes, advice),
        _ => Err(EINVAL),
    }
}

/// mincore: managed pages are in core while they are mapped.
///
/// # Errors
/// The kernel's.
pub fn in_core(address: usize, bytes: usize, vector: *mut u8) -> Result<usize, Errno> {
    let inside = process::current().and_then(|process| {
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        process.within_arena(address, rounded).map(|inside| (process, inside, rounded))
    });
    let Some((process, (start, end), rounded)) = inside else {
        return raw::in_core(address, bytes, vector);
    };
    if !address.is_multiple_of(PAGE_BYTES) {
        return Err(EINVAL);
    }
    let range = process.pages_between(start, end);
    let allocated: u32 = {
        let _blocked = Blocked::new();
        process.books.lock().within(range).iter().map(|(part, _)| part.count).sum()
    };
    if rounded != end - start || allocated != range.count {
        return Err(ENOMEM);
    }
    let Some(engine) = process.engine() else { return raw::in_core(address, bytes, vector) };
    for (place, page) in (range.first..range.end()).enumerate() {
        let is_resident = matches!(engine.core().pages.state(page), PageState::Resident { .. });
        // SAFETY: the program gave a vector with a byte for each page.
        let entry = unsafe { vector.add(place) };
        // SAFETY: as above.
        unsafe { entry.write(u8::from(is_resident)) };
    }
    Ok(0)
}
