//! mlock and its relatives: natively the kernel locks, under the engine pages are pinned.
//!
//! Locks do not nest and pins do, so the books say which memory is locked. At engagement the kernel's
//! locks on the arena are undone and become pins: pages can move only between mappings that are locked
//! alike. `mlockall` before the engagement locks what is outside the arena; afterwards it is refused.
use crate::abi::raw::{self, Errno, PAGE_BYTES};
use crate::state::areas::{Area, Memory};
use crate::state::process::{self, Phase, Process};
use libc::{EINVAL, ENOMEM, c_long};
use userswap::Engine;
use userswap::arena::PageRange;
use userswap::sys::signal::Blocked;

/// mlock and mlock2.
///
/// # Errors
/// The kernel's; ENOMEM also for more than the budget can hold.
pub fn lock(call: c_long, address: usize, bytes: usize, flags: i32) -> Result<usize, Errno> {
    let Some((process, range)) = managed(address, bytes)? else {
        return raw::lock(call, address, bytes, flags);
    };
    if call == libc::SYS_mlock2 && flags & !(libc::MLOCK_ONFAULT as i32) != 0 {
        return Err(EINVAL);
    }
    let _blocked = Blocked::new();
    let phase = process.phase();
    let parts = process.books.lock().within(range);
    if parts.iter().map(|(part, _)| part.count).sum::<u32>() != range.count {
        return Err(ENOMEM);
    }
    for (part, area) in parts {
        let Area::Memory(memory) = area else { continue };
        if memory.locked {
            continue;
        }
        match &phase {
            Phase::Native(_) => {
                let (address, bytes) = process.bytes_of(part);
                raw::lock(call, address, bytes, flags)?;
            }
            Phase::Engaged(engine) => pin(engine, part, memory)?,
        }
        process.books.lock().set(part, Area::Memory(Memory { locked: true, ..memory }));
    }
    Ok(0)
}

fn pin(engine: &Engine, range: PageRange, memory: Memory) -> Result<(), Errno> {
    if memory.protection & libc::PROT_READ == 0 {
        return Err(ENOMEM);
    }
    engine.core().pin_range(range).map_err(|_| ENOMEM)
}

/// munlock.
///
/// # Errors
/// The kernel's.
pub fn unlock(address: usize, bytes: usize) -> Result<usize, Errno> {
    let Some((process, range)) = managed(address, bytes)? else {
        return raw::lock(libc::SYS_munlock, address, bytes, 0);
    };
    let _blocked = Blocked::new();
    let phase = process.phase();
    let parts = process.books.lock().within(range);
    for (part, area) in &parts {
        let Area::Memory(memory @ Memory { locked: true, .. }) = *area else { continue };
        unlock_part(process, &phase, *part);
        process.books.lock().set(*part, Area::Memory(Memory { locked: false, ..memory }));
    }
    let covered: u32 = parts.iter().map(|(part, _)| part.count).sum();
    if covered == range.count { Ok(0) } else { Err(ENOMEM) }
}

/// Undoes the lock of a part that is locked; the books are the caller's.
pub fn unlock_part(process: &Process, phase: &Phase<'_>, range: PageRange) {
    match phase {
        Phase::Native(_) => {
            let (address, bytes) = process.bytes_of(range);
            raw::lock(libc::SYS_munlock, address, bytes, 0).expect("the arena is ours");
        }
        Phase::Engaged(engine) => engine.core().unpin_range(range),
    }
}

/// mlockall.
///
/// # Errors
/// The kernel's; ENOMEM once the engine has the arena: all of it does not fit.
pub fn lock_all(flags: i32) -> Result<usize, Errno> {
    let Some(process) = process::current() else {
        return raw::lock(libc::SYS_mlockall, flags as usize, 0, 0);
    };
    let _blocked = Blocked::new();
    match process.phase() {
        Phase::Engaged(_) => Err(ENOMEM),
        Phase::Native(_) => {
            // Without populating: that would fill the heap's room for growth.
            let gently = flags | libc::MCL_ONFAULT;
            raw::lock(libc::SYS_mlockall, gently as usize, 0, 0)?;
            let (address, bytes) = (process.arena.address(), process.arena.bytes());
            raw::lock(libc::SYS_munlock, address, bytes, 0)
        }
    }
}

/// munlockall.
///
/// # Errors
/// The kernel's.
pub fn unlock_all() -> Result<usize, Errno> {
    if let Some(process) = process::current() {
        let _blocked = Blocked::new();
        let phase = process.phase();
        let locked = process.books.lock().select(is_locked);
        for range in locked {
            unlock_part(process, &phase, range);
            unmark(process, range);
        }
    }
    raw::lock(libc::SYS_munlockall, 0, 0, 0)
}

/// While engaging, before the engine has the arena: takes the kernel's locks off.
pub fn suspend(process: &Process) -> Vec<PageRange> {
    let locked = process.books.lock().select(is_locked);
    if !locked.is_empty() {
        raw::lock(libc::SYS_munlockall, 0, 0, 0).expect("unlocking cannot fail");
    }
    locked
}

/// After engaging: what was locked is pinned, as far as the budget allows.
pub fn resume(process: &Process, engine: &Engine, locked: Vec<PageRange>) {
    for range in locked {
        if engine.core().pin_range(range).is_err() {
            unmark(process, range);
        }
    }
}

fn is_locked(area: Area) -> bool {
    matches!(area, Area::Memory(Memory { locked: true, .. }))
}

fn unmark(process: &Process, range: PageRange) {
    let mut books = process.books.lock();
    for (part, area) in books.within(range) {
        if let Area::Memory(memory) = area {
            books.set(part, Area::Memory(Memory { locked: false, ..memory }));
        }
    }
}

/// The managed pages that a call is about; None when it is about none.
fn managed(address: usize, bytes: usize) -> Result<Option<(&'static Process, PageRange)>, Errno> {
    let Some(process) = process::current() else { return Ok(None) };
    let start = address / PAGE_BYTES * PAGE_BYTES;
    let Some(end) =
        address.checked_add(bytes).and_then(|end| end.checked_next_multiple_of(PAGE_BYTES))
    else {
        return Ok(None);
    };
    match process.within_arena(start, end - start) {
        None => Ok(None),
        Some(inside) if inside == (start, end) => {
            Ok(Some((process, process.pages_between(start, end))))
        }
        Some(_) => Err(ENOMEM),
    }
}
