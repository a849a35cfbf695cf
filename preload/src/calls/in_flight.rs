//! Memory of calls that are under way: of those that began before the engine did, and what is pinned for others.
//!
//! A thread can wait in the kernel for minutes: on a condition variable in the program's heap, for a message
//! into a buffer there. While the kernel has the arena nothing has to be pinned, but the call may still be
//! waiting when the engine takes over, and fail then. So a call notes its memory, in a few atomic operations
//! and without a lock, and the engagement pins what is noted.
//!
//! Memory that is given back meanwhile loses its pins with its content, and may be somebody else's, with a pin of its own, when the
//! call ends. So what is pinned is noted as well, and less of it once a part is gone.
use super::held;
use crate::state::process::Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use userswap::Engine;
use userswap::internals::PageRange;
use userswap::internals::signal::{Blocked, Uncancelled};

/// Spans of memory that can be noted at once; a call beyond them is on its own if the engine starts meanwhile.
const NOTES_MAX: usize = 2048;
/// Set by the engagement in a note that it has pinned; the call that made the note takes the pin off.
const PINNED: u64 = 1 << 63;
/// The pin is being taken off.
const RELEASING: u64 = 1 << 62;

/// First page and number of pages; zero is free.
static NOTES: [AtomicU64; NOTES_MAX] = [const { AtomicU64::new(0) }; NOTES_MAX];
/// How often a thread looks whether there is an engine yet.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// Some have been pinned.
static ARE_PINNED: AtomicBool = AtomicBool::new(false);
/// The engine is about to take the arena over, and reads the notes.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// What a call has noted.
#[derive(Clone, Copy)]
pub struct Note(usize);

fn packed(range: PageRange) -> u64 {
    u64::from(range.count) << 32 | u64::from(range.first)
}

fn unpacked(note: u64) -> PageRange {
    PageRange { first: note as u32, count: ((note & !(PINNED | RELEASING)) >> 32) as u32 }
}

/// Finds room for a note among so many places: None where they are taken.
fn insert(note: u64, places: usize) -> Option<Note> {
    // Threads have stacks apart from each other: each begins to look elsewhere.
    let start = (&raw const note).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    (0..places).map(|step| (start + step) % NOTES_MAX).map(Note).find(|Note(index)| {
        // SeqCst, with the loads in `note` and `read`: either the engagement sees the note, or the call sees the engagement.
        NOTES[*index].compare_exchange(0, note, Ordering::SeqCst, Ordering::Relaxed).is_ok()
    })
}

/// Places that are looked at for what is pinned anyhow: calls that a handler has left by a jump keep theirs for ever.
const PLACES: usize = 64;

/// Notes what has been pinned.
pub fn note_pinned(range: PageRange) -> Option<Note> {
    if !ARE_PINNED.load(Ordering::Relaxed) {
        ARE_PINNED.store(true, Ordering::Release);
    }
    insert(packed(range) | PINNED, PLACES)
}

/// Notes pages, while the kernel has the arena; None once the engine is taking it over.
pub fn note(process: &Process, range: PageRange) -> Option<Note> {
    let note = insert(packed(range), NOTES_MAX)?;
    if !IS_READ.load(Ordering::SeqCst) {
        return Some(note);
    }
    withdraw(process, note);
    None
}

/// The call has ended; a pin that was taken for it is taken off.
pub fn withdraw(process: &Process, Note(index): Note) {
    let slot = &NOTES[index];
    // Acquire pairs with the exchange in `hand_over`.
    let note = slot.load(Ordering::Acquire);
    let is_free = || slot.compare_exchange(note, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok();
    if note & PINNED == 0 && is_free() {
        return;
    }
    // A handler that gives memory back would wait for this.
    let _blocked = Blocked::new();
    slot.fetch_or(RELEASING, Ordering::AcqRel);
    // Nobody changes a note that says so.
    engine(process).core().unpin_range(unpacked(slot.load(Ordering::Relaxed)));
    // Release: who waited for it sees the pins gone.
    slot.store(0, Ordering::Release);
}

/// Before a range loses its content, and its pins with that: what is noted of it is not noted any more. Signals are blocked.
pub fn trim(engine: &Engine, range: PageRange) {
    if !ARE_PINNED.load(Ordering::Acquire) {
        return;
    }
    for slot in &NOTES {
        loop {
            let note = slot.load(Ordering::Acquire);
            let pages = unpacked(note);
            let is_concerned = pages.first < range.end() && range.first < pages.end();
            if note & PINNED == 0 || !is_concerned {
                break;
            }
            if note & RELEASING != 0 {
                std::thread::sleep(LOOK_EVERY);
                continue;
            }
            let [before, behind] = parts_without(pages, range);
            let left = if before.count >= behind.count { before } else { behind };
            let less = packed(left) | PINNED;
            if slot.compare_exchange(note, less, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
                // Of two parts the call keeps the longer one: it may end early.
                let other = if left == before { behind } else { before };
                engine.core().unpin_range(other);
                break;
            }
        }
    }
}

/// What is left of a range without another: a part before it and a part behind it, which may be empty.
pub fn parts_without(whole: PageRange, gone: PageRange) -> [PageRange; 2] {
    let between = |first: u32, end: u32| PageRange { first, count: end.saturating_sub(first) };
    let before = between(whole.first, whole.end().min(gone.first));
    let behind = between(whole.first.max(gone.end()), whole.end());
    [before, behind]
}

/// The engine, once it has the arena: it is on its way. The thread that engages has all signals blocked.
fn engine(process: &Process) -> &Engine {
    loop {
        match process.engine() {
            Some(engine) => return engine,
            // Not a yield: to a thread of real-time priority the one that engages may be nothing.
            None => {
                let _uncancelled = Uncancelled::new();
                std::thread::sleep(LOOK_EVERY);
            }
        }
    }
}

/// Waits for the engine, if the engagement has begun to read the notes.
pub fn await_engine(process: &Process) -> Option<&Engine> {
    IS_READ.load(Ordering::SeqCst).then(|| engine(process))
}

/// While engaging, before the engine has the arena: all that is noted. From here on, calls wait for the engine, which pins
/// their memory.
pub fn read() -> impl Iterator<Item = (Note, PageRange)> {
    IS_READ.store(true, Ordering::SeqCst);
    let noted = |(index, slot): (usize, &AtomicU64)| match slot.load(Ordering::SeqCst) {
        0 => None,
        note => Some((Note(index), unpacked(note))),
    };
    NOTES.iter().enumerate().filter_map(noted)
}

/// A noted range has been pinned: the call takes the pin off as it ends, and if it has ended, this does.
pub fn hand_over(engine: &Engine, Note(index): Note, range: PageRange) {
    ARE_PINNED.store(true, Ordering::Release);
    let (noted, slot) = (packed(range), &NOTES[index]);
    let is_still =
        slot.compare_exchange(noted, noted | PINNED, Ordering::AcqRel, Ordering::Relaxed);
    if is_still.is_err() {
        engine.core().unpin_range(range);
    }
}

/// In the child of a fork, which has its engine if the parent had one: the other threads' calls are their parent's. A call that
/// this thread is in the middle of goes on, and its notes are not told from theirs: all stay, but for those that were just being
/// taken off, which are nobody's here.
pub fn forget(engine: Option<&Engine>) {
    let stay = held::is_in_call();
    for slot in &NOTES {
        if stay && slot.load(Ordering::Relaxed) & RELEASING == 0 {
            continue;
        }
        let noted = slot.swap(0, Ordering::Relaxed);
        // One that is being taken off may be off already; none stays without a reason.
        if let (Some(engine), PINNED) = (engine, noted & (PINNED | RELEASING)) {
            engine.core().unpin_range(unpacked(noted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_without_another_is_what_lies_before_and_behind_it() {
        let range = |first, end| PageRange { first, count: end - first };
        let left = |gone| {
            let parts = parts_without(range(10, 20), gone).into_iter();
            parts.filter(|part| part.count > 0).map(|part| (part.first, part.end()))
        };
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

    #[test]
    fn a_note_says_which_pages_it_is_about_also_when_it_is_pinned() {
        let range = PageRange { first: u32::MAX, count: 258 };
        for note in [packed(range), packed(range) | PINNED, packed(range) | PINNED | RELEASING] {
            let found = unpacked(note);
            assert_eq!((found.first, found.count), (range.first, range.count));
        }
    }
}
