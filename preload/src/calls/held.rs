//! Memory that a system call will touch, kept in RAM until the call is done.
//!
//! With faults by signal, or without the right to have the kernel's faults served, a system call fails with
//! EFAULT on a missing page. What a call will touch is therefore brought in and pinned beforehand: a call
//! that has begun may have taken a message off a socket that it then cannot deliver.
//!
//! Where the kernel's faults are served, each call costs one predictable branch.
use crate::abi::raw::{self, Span};
use crate::state::areas::{self, Area};
use crate::state::process::{self, Process};
use libc::{c_char, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;
use userswap::FaultMode;
use userswap::internals::PAGE_BYTES;
use userswap::internals::PageRange;
use userswap::internals::signal::Blocked;
use userswap::internals::{Options, Rights};

static NEEDED: AtomicBool = AtomicBool::new(false);

/// Spans one call can name.
const SPANS_MAX: usize = 6;
/// Bytes that may be pinned for one call: a tenth of the smallest budget.
pub const PIECE_BYTES: usize = 1 << 20;

/// Once the engine runs, and in a forked child, which may have lost rights: finds out whether any of this is needed.
pub fn prepare(engine: &Engine, options: &Options) {
    let is_served = engine.core().uffd.rights() == Rights::Kernel;
    // Where pages are copied, a page that a device writes to (O_DIRECT) must be kept from leaving: unlike
    // MOVE, a copy does not notice.
    let is_copied = engine.core().path == userswap::internals::Path::Copy;
    let needed = options.fault == FaultMode::Signal || !is_served || is_copied;
    NEEDED.store(needed, Ordering::Release);
}

/// Whether system calls fail on missing pages, or must keep pages from leaving.
#[inline]
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Whether a buffer may be missing when the kernel wants it.
#[inline]
pub fn is_concerned(buffer: *const c_void) -> bool {
    is_needed() && process::is_managed(buffer as usize)
}

/// Memory kept in RAM until dropped.
pub struct Held {
    ranges: [Option<PageRange>; SPANS_MAX],
}

impl Held {
    /// Brings memory in, as far as it is managed and small enough, and keeps it.
    pub fn new(spans: &[Span]) -> Self {
        let mut held = Self { ranges: [None; SPANS_MAX] };
        let Some(process) = process::current() else { return held };
        for (range, span) in held.ranges.iter_mut().zip(spans) {
            *range = hold(process, *span);
        }
        held
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let Some(engine) = process::current().and_then(Process::engine) else { return };
        let errno = raw::errno();
        for range in self.ranges.iter().flatten() {
            let _blocked = Blocked::new();
            engine.core().unpin_range(*range);
        }
        raw::set_errno(errno);
    }
}

/// Brings memory in and pins it, if it is managed and the program could read it.
pub fn hold(process: &Process, span: Span) -> Option<PageRange> {
    if span.bytes == 0 || !process::is_managed(span.address) {
        return None;
    }
    let engine = process.engine()?;
    let bytes = span.bytes.min(PIECE_BYTES);
    let range = process.pages_between(process.within_arena(Span { bytes, ..span })?);
    let _blocked = Blocked::new();
    // What the program itself could not touch is the kernel's to refuse.
    let mut parts = process.areas_within(range);
    parts.retain(|(_, area)| is_readable(*area));
    if !areas::is_covered(range, &parts) {
        return None;
    }
    engine.core().pin_range(range).ok().map(|()| range)
}

fn is_readable(area: Area) -> bool {
    match area {
        Area::Memory(memory) => memory.protection & libc::PROT_READ != 0,
        Area::Heap => true,
        Area::Foreign => false,
    }
}

/// A C string and the zero at its end; nothing, unless it is managed.
pub fn text(text: *const c_char) -> Span {
    if text.is_null() || !process::is_managed(text as usize) {
        return Span { address: 0, bytes: 0 };
    }
    // SAFETY: the program passes a C string.
    Span::of(text, unsafe { libc::strlen(text) } + 1)
}

/// As many values as a pointer points to.
pub fn values<T>(first: *const T, count: usize) -> Span {
    Span::of(first, count.saturating_mul(size_of::<T>()))
}

/// What a call of unknown reach may touch: up to the end of the page.
pub fn around(address: usize) -> Span {
    Span { address, bytes: PAGE_BYTES - address % PAGE_BYTES }
}
