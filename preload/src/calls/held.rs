//! Memory that a system call will touch, kept in RAM until the call is done.
//!
//! With faults by signal, or without the right to have the kernel's faults served, a system call fails with
//! EFAULT on a missing page. What a call will touch is therefore brought in and pinned beforehand: a call
//! that has begun may have taken a message off a socket that it then cannot deliver.
//!
//! Where the kernel's faults are served, each call costs one predictable branch.
use super::in_flight::{self, Note};
use super::trap;
use crate::abi::raw::{self, Span};
use crate::state::process::{self, Process};
use libc::{c_char, c_void};
use std::cell::Cell;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::FaultMode;
use userswap::internals::pages;
use userswap::internals::signal::Blocked;
use userswap::internals::{Core, Options, Rights};
use userswap::internals::{PAGE_BYTES, PageRange};

/// Whether system calls fail on missing pages, or must keep pages from leaving.
pub static NEEDED: AtomicBool = AtomicBool::new(false);

/// Spans that most calls do with.
const SPANS_INLINE: usize = 6;
/// What this library takes of a thread's stack below a call that keeps memory.
const STACK_BYTES: usize = 4096;
/// The same above it, where the function is that was called: not much, as a neighbour's memory may begin there.
const FRAME_BYTES: usize = 1024;
/// Bytes that may be pinned for one call: a tenth of the smallest budget.
pub const PIECE_BYTES: usize = 1 << 20;
/// The same for messages, of which none may be cut: more than the longest datagram between processes (4 MiB and 64 KiB).
pub const MESSAGE_BYTES: usize = 5 << 20;

thread_local! {
    static IS_FORKING: Cell<bool> = const { Cell::new(false) };
    /// Calls that this thread is in: more than one when a handler makes some.
    static IN_CALLS: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is in a call for which memory is kept: a handler forks in the middle of it.
pub fn is_in_call() -> bool {
    IN_CALLS.get() > 0
}

/// While this thread forks it holds the tables, and calls are the engine's and the C library's: they have no other
/// managed memory than the stack, which is kept.
pub fn set_forking(is_forking: bool) {
    IS_FORKING.set(is_forking);
}

/// Before the program's code runs: finds out whether any of this will be needed.
pub fn start(options: &Options) {
    let is_served = || userswap::probe().is_ok_and(|support| support.kernel_faults);
    let is_needed = options.fault == FaultMode::Signal || !is_served();
    NEEDED.store(is_needed, Ordering::Relaxed);
}

/// While engaging, and in a forked child, which may have lost rights; with the native phase held.
pub fn prepare(process: &Process, core: &Core) {
    let is_served = core.uffd.rights() == Rights::Kernel;
    // Where pages are copied, a page that a device writes to (O_DIRECT) must be kept from leaving: unlike
    // MOVE, a copy does not notice.
    let is_copied = core.path == userswap::internals::Path::Copy;
    let is_needed = process.options.fault == FaultMode::Signal || !is_served || is_copied;
    NEEDED.store(is_needed, Ordering::Relaxed);
}

/// While engaging: memory of calls that are under way, which is there then, as far as it is to stay. From here on, calls
/// wait for the engine.
pub fn noted(process: &Process) -> Vec<(Note, PageRange)> {
    let is_there = |range| readable_pages(process, process.span_of(range)).is_some();
    let noted: Vec<_> = in_flight::read().filter(|(_, range)| is_there(*range)).collect();
    let mut room = process.options.ram_bytes / 2;
    for (_, range) in &noted {
        let span = process.span_of(*range);
        room = room.saturating_sub(span.bytes as u64);
        if room > 0 {
            fill(span);
        }
    }
    noted
}

/// Before the engine has the arena: has the kernel bring in what the program has not touched yet. Kernels before 5.14
/// refuse, and so does what can only be read: it is missing then.
pub fn fill(span: Span) {
    let _ = raw::advise(span, libc::MADV_POPULATE_WRITE);
}

/// The end of a range from the first page on that the program can read through to its last; None if it cannot read that.
pub fn readable_end(process: &Process, range: PageRange) -> Option<PageRange> {
    let mut first = range.end();
    for (part, area) in process.areas.lock().parts_within(range).rev() {
        if part.end() != first || !area.is_readable() {
            break;
        }
        first = part.first;
    }
    (first < range.end()).then(|| PageRange { first, count: range.end() - first })
}

/// Bytes that are written as a whole although they may be cut, more than [`PIECE_BYTES`] where the budget is larger than 32 MiB:
/// two dozen threads still find room for their pins.
pub fn whole_max() -> usize {
    /// So many notes are made at once before the engine starts, one for each piece.
    const MOST: u64 = 64 << 20;
    process::current().map_or(0, |process| (process.options.ram_bytes / 32).min(MOST) as usize)
}

/// Whether system calls fail on missing pages.
#[inline]
pub fn is_needed() -> bool {
    NEEDED.load(Ordering::Relaxed)
}

/// Whether a buffer may be missing when the kernel wants it.
#[inline]
pub fn is_concerned(buffer: *const c_void) -> bool {
    is_needed() && process::is_managed(buffer as usize)
}

/// How some pages are kept.
#[derive(Clone, Copy)]
enum Kept {
    /// There was no room for a note.
    Pinned(PageRange),
    /// Pinned, or the kernel has them: they are pinned then if the engine takes over meanwhile.
    Noted(Note),
}

/// Memory kept in RAM until dropped.
pub struct Held {
    first: [Option<Kept>; SPANS_INLINE],
    /// Of long lists.
    more: Vec<Kept>,
    /// Bytes that may still be kept.
    room: usize,
    /// It is counted as this thread's.
    is_counted: bool,
    /// Pins had no room for some of what was asked for.
    is_short: bool,
}

impl Held {
    /// Nothing yet.
    pub const fn none() -> Self {
        let first = [None; SPANS_INLINE];
        Self { first, more: Vec::new(), room: PIECE_BYTES, is_counted: false, is_short: false }
    }

    /// Brings memory in, as far as it is managed and small enough, and keeps it.
    pub fn new(spans: &[Span]) -> Self {
        let mut held = Self::none();
        spans.iter().for_each(|span| held.add(*span));
        held
    }

    /// The same for more memory. What one call names is kept up to a limit: a call that finds the rest missing
    /// ends there, with a short count.
    pub fn add(&mut self, span: Span) {
        if !process::is_managed(span.address) || IS_FORKING.get() {
            return;
        }
        // Whoever waits for a lock meanwhile is told so by errno, of which functions that only lock know nothing.
        let errno = raw::errno();
        trap::follow();
        if self.first[0].is_none() {
            IN_CALLS.set(IN_CALLS.get() + u32::from(!self.is_counted));
            self.is_counted = true;
            let room = self.room;
            self.keep_stack();
            self.room = room;
        }
        self.add_whole(Span { bytes: span.bytes.min(self.room), ..span });
        raw::set_errno(errno);
    }

    /// A stack of the program's own making: this library calls the kernel from it as well.
    fn keep_stack(&mut self) {
        let here = (&raw const self).addr();
        if !process::is_managed(here) {
            return;
        }
        let below = Span { address: here - STACK_BYTES, bytes: STACK_BYTES };
        let above = Span { address: here, bytes: FRAME_BYTES };
        let both = Span { bytes: STACK_BYTES + FRAME_BYTES, ..below };
        // One of them may be the guard of this stack or of its neighbour.
        let _ = self.keep(both) || self.keep(below) || self.keep(above);
    }

    /// Whether pins had no room for some of it, which may leave again.
    pub fn is_short(&self) -> bool {
        self.is_short
    }

    /// Makes room for so many bytes.
    pub fn widen(&mut self, bytes: usize) {
        self.room = bytes;
    }

    /// The same for all of it, without this thread's stack: the call is another thread's. Whether there was room.
    pub fn add_whole(&mut self, span: Span) -> bool {
        if !process::is_managed(span.address) {
            return true;
        }
        (0..span.bytes).step_by(PIECE_BYTES).all(|at| {
            let bytes = PIECE_BYTES.min(span.bytes - at);
            self.keep(Span { address: span.address + at, bytes })
        })
    }

    /// False if it cannot be.
    fn keep(&mut self, span: Span) -> bool {
        let kept = process::current().and_then(|process| keep(process, span));
        let Some(kept) = kept else {
            self.is_short |= span.bytes > 0 && Self::is_readable(span);
            return false;
        };
        self.room = self.room.saturating_sub(span.bytes);
        match self.first.iter_mut().find(|kept| kept.is_none()) {
            Some(free) => *free = Some(kept),
            None => {
                let _blocked = Blocked::new();
                self.more.push(kept);
            }
        }
        true
    }

    /// Whether managed memory is there for the program to read.
    pub fn is_readable(span: Span) -> bool {
        let Some(process) = process::current() else { return false };
        let _blocked = Blocked::new();
        readable_pages(process, span).is_some()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.let_go();
        IN_CALLS.set(IN_CALLS.get() - u32::from(self.is_counted));
    }
}

impl Held {
    fn let_go(&mut self) {
        if self.first[0].is_none() {
            return;
        }
        let Some(process) = process::current() else { return };
        let errno = raw::errno();
        // The stack was the first and is the last.
        for kept in self.more.iter().chain(self.first.iter().rev().flatten()) {
            release(process, *kept);
        }
        if self.more.capacity() > 0 {
            // A handler may be inside the same heap.
            let _blocked = Blocked::new();
            self.more = Vec::new();
        }
        raw::set_errno(errno);
    }
}

fn keep(process: &Process, span: Span) -> Option<Kept> {
    if process.engine().is_none() {
        if span.bytes == 0 {
            return None;
        }
        let range = process.pages_between(process.within_arena(span)?);
        if let Some(note) = in_flight::note(process, range) {
            return Some(Kept::Noted(note));
        }
        in_flight::await_engine(process)?;
    }
    let range = hold(process, span)?;
    Some(in_flight::note_pinned(range).map_or(Kept::Pinned(range), Kept::Noted))
}

fn release(process: &Process, kept: Kept) {
    match kept {
        Kept::Noted(note) => in_flight::withdraw(process, note),
        Kept::Pinned(range) => {
            let Some(engine) = process.engine() else { return };
            let _blocked = Blocked::new();
            engine.core().unpin_range(range);
        }
    }
}

/// Brings memory in and pins it, if it is managed and the program could read it.
pub fn hold(process: &Process, span: Span) -> Option<PageRange> {
    let _blocked = Blocked::new();
    let (core, range) = holdable(process, span)?;
    if core.pin_range(range).is_err() {
        // There is no room for more pins: most likely it is still there when the call comes to it.
        pages::touch(core.page_address(range.first), range.count as usize);
        return None;
    }
    Some(range)
}

/// The same for a fork, whether there is room for more pins or not.
pub fn hold_for_fork(process: &Process, span: Span) -> Option<PageRange> {
    let _blocked = Blocked::new();
    let (core, range) = holdable(process, span)?;
    core.pin_beyond(range);
    Some(range)
}

fn holdable(process: &Process, span: Span) -> Option<(&Core, PageRange)> {
    if span.bytes == 0 || !process::is_managed(span.address) {
        return None;
    }
    let core = process.engine()?.core();
    let range = readable_start(process, Span { bytes: span.bytes.min(PIECE_BYTES), ..span })?;
    Some((core, range))
}

/// The first pages of a span, up to one that the program cannot read: a call may end before it comes there. None if that is the
/// first.
fn readable_start(process: &Process, span: Span) -> Option<PageRange> {
    let all = process.pages_between(process.within_arena(span)?);
    let mut start = PageRange { first: all.first, count: 0 };
    // In a handler there may be no asking for memory.
    for (part, area) in process.areas.lock().parts_within(all) {
        if part.first != start.end() || !area.is_readable() {
            break;
        }
        start.count += part.count;
    }
    (start.count > 0).then_some(start)
}

/// The pages of a span. What the program itself could not touch is the kernel's to refuse.
pub fn readable_pages(process: &Process, span: Span) -> Option<PageRange> {
    let range = process.pages_between(process.within_arena(span)?);
    let areas = process.areas.lock();
    let readable = areas.parts_within(range).filter(|(_, area)| area.is_readable());
    (readable.map(|(part, _)| part.count).sum::<u32>() == range.count).then_some(range)
}

/// A C string and the zero at its end, or as much of it as the program could read; nothing, unless it is managed.
pub fn text(text: *const c_char) -> Span {
    let mut span = Span { address: text as usize, bytes: 0 };
    if text.is_null() || !process::is_managed(span.address) {
        return Span { address: 0, bytes: 0 };
    }
    loop {
        let address = span.address + span.bytes;
        let part = Span { address, bytes: PAGE_BYTES - address % PAGE_BYTES };
        if !Held::is_readable(part) {
            return span;
        }
        // SAFETY: the program passes a C string, which goes on to there, and can be read so far.
        let length = unsafe { libc::strnlen(text.wrapping_add(span.bytes), part.bytes) };
        span.bytes += part.bytes.min(length + 1);
        if length < part.bytes {
            return span;
        }
    }
}

/// As many values as a pointer points to.
pub fn values<T>(first: *const T, count: usize) -> Span {
    Span::of(first, count.saturating_mul(size_of::<T>()))
}
