//! mprotect on managed memory: the kernel changes the pages, the books remember it.
use crate::abi::raw::{self, Errno, PAGE_BYTES};
use crate::memory::engagement;
use crate::state::areas::Area;
use crate::state::process::{self, Process};
use libc::ENOMEM;
use userswap::arena::PageRange;
use userswap::sys::signal::Blocked;

/// mprotect.
///
/// # Errors
/// The kernel's; ENOMEM for a range with holes, whose part before the hole is changed.
pub fn protect(address: usize, bytes: usize, protection: i32) -> Result<usize, Errno> {
    let known = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    let inside = process::current().and_then(|process| {
        let rounded = bytes.checked_next_multiple_of(PAGE_BYTES)?;
        process.within_arena(address, rounded).map(|inside| (process, inside, rounded))
    });
    let Some((process, (start, end), rounded)) = inside else {
        return raw::protect(address, bytes, protection);
    };
    if protection & !known != 0 || !address.is_multiple_of(PAGE_BYTES) || rounded != end - start {
        // Unknown bits and ranges across the arena's edge: the kernel's answer, and nothing of ours.
        return raw::protect(address, bytes, protection);
    }
    let outcome = protect_inside(process, process.pages_between(start, end), protection);
    engagement::engage_if_needed(process);
    outcome.map(|()| 0)
}

fn protect_inside(process: &Process, range: PageRange, protection: i32) -> Result<(), Errno> {
    let _blocked = Blocked::new();
    let _phase = process.phase();
    let parts = process.books.lock().within(range);
    let mut next = range.first;
    for (part, area) in parts {
        if part.first != next {
            return Err(ENOMEM);
        }
        let (address, bytes) = process.bytes_of(part);
        raw::protect(address, bytes, protection)?;
        if let Area::Memory(memory) = area {
            let memory = memory.protected(protection);
            process.books.lock().set(part, Area::Memory(memory));
        }
        next = part.end();
    }
    if next == range.end() { Ok(()) } else { Err(ENOMEM) }
}
