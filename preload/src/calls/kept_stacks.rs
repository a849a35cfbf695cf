//! Stacks, and words that tell the ends of threads, which the program has put into managed memory: they stay in RAM.
//!
//! A stack that is missing cannot take the signal that would bring it in, and of a thread that is ending userfaultfd serves
//! no fault. Each is in a list, and has a pin of its own under the engine; both go with the memory.
use super::held;
use super::in_flight::parts_without;
use crate::abi::raw::Span;
use crate::state::process::{self, Phase, Process};
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

/// The program's, and the pages that it is in.
#[derive(Clone, Copy)]
struct Kept {
    bytes: Span,
    pages: PageRange,
}

static KEPT: Lock<Vec<Kept>> = Lock::new(Vec::new());

/// Before fork: no other thread has the list then.
pub fn hold() {
    KEPT.hold();
}

/// After fork, on both sides.
pub fn release() {
    KEPT.release();
}

/// In the child of a fork: of its parent's threads it has the one that asks, which is on a stack and has a signal stack.
pub fn renew(process: &Process, signal_stack: Span) {
    let here = 0u8;
    // SAFETY: has no conditions.
    let thread = unsafe { libc::pthread_self() } as usize;
    let own = [Span::of(&raw const here, 1), Span { address: thread, bytes: 1 }, signal_stack];
    let own =
        own.map(|span| process.within_arena(span).map(|inside| process.pages_between(inside)));
    let is_own = |kept: &Kept| own.iter().flatten().any(|pages| overlaps(kept.pages, *pages));
    KEPT.lock().retain(is_own);
}

/// The pages that have been kept, each with a pin for each time; with signals blocked.
pub fn all() -> Vec<PageRange> {
    KEPT.lock().iter().map(|kept| kept.pages).collect()
}

/// Before the engine has the arena: stacks in it, and words that tell the ends of threads, which must not leave. A stack that is
/// missing cannot take the signal that would bring it in.
pub fn kept(process: &Process) -> Vec<PageRange> {
    let mut list = KEPT.lock();
    // The program may have protected the lower end since. The newest come first, as the most likely to be in use.
    let readable = |kept: &Kept| {
        held::readable_end(process, kept.pages).map(|pages| Kept { pages, bytes: kept.bytes })
    };
    *list = list.iter().rev().filter_map(readable).collect();
    let pages: Vec<PageRange> = list.iter().map(|kept| kept.pages).collect();
    pages.iter().for_each(|range| held::fill(process.span_of(*range)));
    pages
}

/// There was no room for a pin of one: it has none that could be taken off.
pub fn forget_unpinned(pages: PageRange) {
    let mut list = KEPT.lock();
    if let Some(index) = list.iter().position(|kept| kept.pages == pages) {
        list.swap_remove(index);
    }
}

/// What that was kept before is not wanted any more.
#[derive(Clone, Copy)]
pub enum Replaced {
    /// The same pages: others of whose they are are not known.
    Same,
    /// All within them.
    Within,
    /// All that is on this memory, which a thread has for itself; a neighbour may be on a page of it.
    Overlapping(Span),
}

impl Replaced {
    fn has(self, pages: PageRange, before: &Kept) -> bool {
        let end = |span: Span| span.address.saturating_add(span.bytes);
        match self {
            Self::Same => pages == before.pages,
            Self::Within => pages.first <= before.pages.first && before.pages.end() <= pages.end(),
            Self::Overlapping(span) => {
                before.bytes.address < end(span) && span.address < end(before.bytes)
            }
        }
    }
}

/// Remembers, and under the engine pins, what must not leave.
pub fn keep(bytes: Span, replaced: Replaced) {
    let Some(process) = process::current() else { return };
    let Some(inside) = process.within_arena(bytes) else { return };
    let _blocked = Blocked::new();
    // An engine that is about to start finds it in the list, or has pinned what was there and is here.
    let phase = process.phase();
    let Some(pages) = held::readable_end(process, process.pages_between(inside)) else { return };
    // Before others there lose theirs: of one page two threads may have words.
    if let Phase::Engaged(engine) = &phase
        && engine.core().pin_range(pages).is_err()
    {
        // One that cannot stay is brought in by luck only, and no caller could be told.
        return;
    }
    let mut list = KEPT.lock();
    let before: Vec<Kept> = list.extract_if(.., |other| replaced.has(pages, other)).collect();
    list.push(Kept { bytes, pages });
    if let Phase::Engaged(engine) = &phase {
        // Before the list is another's: one that goes with its memory has no pin to lose.
        before.iter().for_each(|other| engine.core().unpin_range(other.pages));
    }
}

/// Before a range loses its content, and its pins with that: what was kept there is not kept any more. Signals are blocked.
pub fn forget(range: PageRange) {
    let mut list = KEPT.lock();
    if !list.iter().any(|kept| overlaps(kept.pages, range)) {
        return;
    }
    let left = |kept: Kept| parts_without(kept.pages, range).map(|pages| Kept { pages, ..kept });
    let parts = list.drain(..).flat_map(left).filter(|kept| kept.pages.count > 0).collect();
    *list = parts;
}

fn overlaps(one: PageRange, other: PageRange) -> bool {
    one.first < other.end() && other.first < one.end()
}
