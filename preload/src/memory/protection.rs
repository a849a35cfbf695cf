//! mprotect on managed memory: the kernel changes the pages, the table of areas remembers it.
use super::engagement;
use crate::abi::raw::{self, Errno, Span};
use crate::state::areas::Area;
use crate::state::process::{Process, Request};
use libc::ENOMEM;
use userswap::internals::PageRange;
use userswap::internals::signal::Blocked;

/// mprotect.
///
/// # Errors
/// The kernel's; ENOMEM for a range with holes, whose part before the hole is changed.
pub fn protect(span: Span, protection: i32) -> Result<usize, Errno> {
    let Some(request) = Request::new(span) else { return raw::protect(span, protection) };
    let known = libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC;
    if protection & !known != 0 || !request.is_aligned() || !request.is_whole() {
        // Unknown bits and ranges across the arena's edge: the kernel's answer, and nothing of ours.
        return raw::protect(span, protection);
    }
    let outcome = protect_inside(request.process, request.pages(), protection);
    engagement::engage_if_needed(request.process);
    outcome.map(|()| 0)
}

fn protect_inside(process: &Process, range: PageRange, protection: i32) -> Result<(), Errno> {
    let _blocked = Blocked::new();
    let _phase = process.phase();
    let mut next = range.first;
    for (part, area) in process.areas_within(range) {
        if part.first != next {
            return Err(ENOMEM);
        }
        raw::protect(process.span_of(part), protection)?;
        if let Area::Memory(memory) = area {
            process.areas.lock().set(part, Area::Memory(memory.protected(protection)));
        }
        next = part.end();
    }
    if next == range.end() { Ok(()) } else { Err(ENOMEM) }
}
