//! mprotect on managed memory: the kernel changes the pages, the table of areas remembers it.
use super::{engagement, ranges, relocated};
use crate::abi::raw::{self, Errno, Span};
use crate::state::areas::{Area, Memory};
use crate::state::process::{Process, Request};
use libc::{ENOMEM, PROT_NONE};
use userswap::internals::PageRange;
use userswap::internals::signal::Blocked;

/// What a call says about the protection key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Key {
    /// Nothing: the memory keeps the one it has.
    Kept,
    /// This one.
    Given(i32),
}

impl Key {
    fn protect(self, span: Span, protection: i32) -> Result<usize, Errno> {
        match self {
            Self::Kept => raw::protect(span, protection),
            Self::Given(key) => raw::protect_keyed(span, protection, key),
        }
    }
}

/// mprotect and pkey_mprotect.
///
/// # Errors
/// The kernel's; ENOMEM for a range with holes, whose part before the hole is changed.
pub fn protect(span: Span, protection: i32, key: Key) -> Result<usize, Errno> {
    let Some(request) = Request::new(span) else {
        return relocated::protect(|| key.protect(span, protection));
    };
    if !request.is_aligned() || !request.is_whole() {
        // Ranges across the arena's edge: the kernel's answer, and nothing of ours.
        return request.process.change_protection(|| key.protect(span, protection));
    }
    let outcome = protect_inside(request.process, request.pages(), protection, key);
    engagement::engage_if_needed(request.process);
    outcome.map(|()| 0)
}

fn protect_inside(
    process: &Process,
    range: PageRange,
    protection: i32,
    key: Key,
) -> Result<(), Errno> {
    let _blocked = Blocked::new();
    let _phase = process.phase();
    let mut next = range.first;
    for (part, area) in process.areas_within(range) {
        if part.first != next {
            return Err(ENOMEM);
        }
        process.change_protection(|| key.protect(process.span_of(part), protection))?;
        if let Area::Memory(Memory { opened: false, .. }) = area
            && protection != PROT_NONE
        {
            ranges::add_to_dump(process, part);
        }
        // Not what it was a moment ago: another thread may have locked it.
        process.areas.lock().update(part, |area| match area {
            Area::Memory(memory) => {
                let keyed = match key {
                    Key::Kept => memory.keyed,
                    Key::Given(key) => key != 0,
                };
                Area::Memory(Memory { keyed, ..memory.protected(protection) })
            }
            Area::Heap { locked, .. } => Area::Heap { protection, locked },
            Area::Foreign => Area::Foreign,
        });
        next = part.end();
    }
    if next == range.end() { Ok(()) } else { Err(ENOMEM) }
}
