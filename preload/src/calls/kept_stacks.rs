//! Stacks, and words that tell the ends of threads, which the program has put into managed memory: they stay in RAM.
//!
//! A stack that is missing cannot take the signal that would bring it in, and of a thread that is ending userfaultfd serves
//! no fault. Each is in a list, and has a pin of its own under the engine; both go with the memory.
use super::held;
use crate::abi::raw::Span;
use crate::state::process::{self, Phase, Process};
use userswap::internals::PageRange;
use userswap::internals::lock::Lock;
use userswap::internals::signal::Blocked;

static KEPT: Lock<Vec<PageRange>> = Lock::new(Vec::new());

/// Before fork: no other thread has the list then.
pub fn hold() {
    KEPT.hold();
}

/// After fork, on both sides.
pub fn release() {
    KEPT.release();
}

/// The stacks that have been kept, each with a pin as far as there was room; with signals blocked.
pub fn all() -> Vec<PageRange> {
    KEPT.lock().clone()
}

/// Before the engine has the arena: stacks in it, and words that tell the ends of threads, which must not leave. A stack that is
/// missing cannot take the signal that would bring it in.
pub fn kept(process: &Process) -> Vec<PageRange> {
    let mut stacks = KEPT.lock();
    // The program may have given the memory back since, or protected the lower end. The newest come first, as the most
    // likely to be in use.
    *stacks = stacks.iter().rev().filter_map(|range| held::readable_end(process, *range)).collect();
    stacks.iter().for_each(|range| held::fill(process.span_of(*range)));
    stacks.clone()
}

/// What that was kept before is not wanted any more.
#[derive(Clone, Copy)]
pub enum Replaced {
    /// The same pages: others of whose they are are not known.
    Same,
    /// All within them.
    Within,
    /// All that is on this memory, which a thread has for itself.
    Overlapping(Span),
}

impl Replaced {
    fn has(self, process: &Process, range: PageRange, before: &PageRange) -> bool {
        let is_in = |range: PageRange| range.first <= before.first && before.end() <= range.end();
        match self {
            Self::Same => range == *before,
            Self::Within => is_in(range),
            Self::Overlapping(span) => process
                .within_arena(span)
                .map(|inside| process.pages_between(inside))
                .is_some_and(|all| before.first < all.end() && all.first < before.end()),
        }
    }
}

/// Remembers, and under the engine pins, what must not leave.
pub fn keep(span: Span, replaced: Replaced) {
    let Some(process) = process::current() else { return };
    let Some(inside) = process.within_arena(span) else { return };
    let _blocked = Blocked::new();
    // An engine that is about to start finds it in the list, or has pinned what was there and is here.
    let phase = process.phase();
    let Some(range) = held::readable_end(process, process.pages_between(inside)) else { return };
    // Before others there lose theirs: of one page two threads may have words.
    if let Phase::Engaged(engine) = &phase
        && engine.core().pin_range(range).is_err()
    {
        // One that cannot stay is brought in by luck only, and no caller could be told.
        return;
    }
    let mut kept = KEPT.lock();
    let is_replaced = |other: &mut PageRange| replaced.has(process, range, other);
    let before: Vec<PageRange> = kept.extract_if(.., is_replaced).collect();
    kept.push(range);
    if let Phase::Engaged(engine) = &phase {
        // Before the list is another's: one that goes with its memory has no pin to lose.
        before.iter().for_each(|other| engine.core().unpin_range(*other));
    }
}

/// Before a range loses its content, and its pins with that: what was kept there is not kept any more. Signals are blocked.
pub fn forget(range: PageRange) {
    let mut kept = KEPT.lock();
    if !kept.iter().any(|other| overlaps(*other, range)) {
        return;
    }
    let parts: Vec<PageRange> = kept.drain(..).flat_map(|other| without(other, range)).collect();
    *kept = parts;
}

fn overlaps(one: PageRange, other: PageRange) -> bool {
    one.first < other.end() && other.first < one.end()
}

/// What is left of a range without another: a part before it and a part behind it.
fn without(whole: PageRange, gone: PageRange) -> impl Iterator<Item = PageRange> {
    let between = |first: u32, end: u32| PageRange { first, count: end.saturating_sub(first) };
    let before = between(whole.first, whole.end().min(gone.first));
    let behind = between(whole.first.max(gone.end()), whole.end());
    [before, behind].into_iter().filter(|part| part.count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_another_is_what_lies_before_and_behind_it() {
        let range = |first, end| PageRange { first, count: end - first };
        let left = |gone| without(range(10, 20), gone).map(|part| (part.first, part.end()));
        let cases = [
            (range(0, 10), vec![(10, 20)]),
            (range(20, 30), vec![(10, 20)]),
            (range(10, 20), vec![]),
            (range(5, 25), vec![]),
            (range(5, 12), vec![(12, 20)]),
            (range(18, 25), vec![(10, 18)]),
            (range(13, 15), vec![(10, 13), (15, 20)]),
        ];
        for (gone, expected) in cases {
            assert_eq!(left(gone).collect::<Vec<_>>(), expected, "without {gone:?}");
        }
    }
}
