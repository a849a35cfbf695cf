//! Memory of calls that began before the engine did.
//!
//! A thread can wait in the kernel for minutes: on a condition variable in the program's heap, for a message
//! into a buffer there. While the kernel has the arena nothing has to be pinned, but the call may still be
//! waiting when the engine takes over, and fail then. So a call notes its memory, in a few atomic operations
//! and without a lock, and the engagement pins what is noted.
use crate::state::process::Process;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;
use userswap::Engine;
use userswap::internals::PageRange;
use userswap::internals::signal::Uncancelled;

/// Spans of memory that can be noted at once; a call beyond them is on its own if the engine starts meanwhile.
const NOTES_MAX: usize = 2048;
/// Set by the engagement in a note that it has pinned; the call that made the note takes the pin off.
const PINNED: u64 = 1 << 63;

/// First page and number of pages; zero is free.
static NOTES: [AtomicU64; NOTES_MAX] = [const { AtomicU64::new(0) }; NOTES_MAX];
/// How often a thread looks whether there is an engine yet.
const LOOK_EVERY: Duration = Duration::from_micros(50);
/// The engine is about to take the arena over, and reads the notes.
static IS_READ: AtomicBool = AtomicBool::new(false);

/// What a call has noted.
#[derive(Clone, Copy)]
pub struct Note(usize);

fn packed(range: PageRange) -> u64 {
    u64::from(range.count) << 32 | u64::from(range.first)
}

fn unpacked(note: u64) -> PageRange {
    PageRange { first: note as u32, count: ((note & !PINNED) >> 32) as u32 }
}

/// Notes pages, while the kernel has the arena; None once the engine is taking it over.
pub fn note(process: &Process, range: PageRange) -> Option<Note> {
    // Threads have stacks apart from each other: each begins to look elsewhere.
    let start = (&raw const range).addr().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    for step in 0..NOTES_MAX {
        let index = (start + step) % NOTES_MAX;
        // SeqCst, with the load below and those in `read`: either the engagement sees the note, or the call
        // sees the engagement.
        let free =
            NOTES[index].compare_exchange(0, packed(range), Ordering::SeqCst, Ordering::Relaxed);
        if free.is_ok() {
            if !IS_READ.load(Ordering::SeqCst) {
                return Some(Note(index));
            }
            withdraw(process, Note(index));
            break;
        }
    }
    None
}

/// The call has ended; a pin that the engagement took for it is taken off.
pub fn withdraw(process: &Process, Note(index): Note) {
    // Pairs with the exchange in `hand_over`.
    let noted = NOTES[index].swap(0, Ordering::AcqRel);
    if noted & PINNED != 0 {
        engine(process).core().unpin_range(unpacked(noted));
    }
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
    let (noted, slot) = (packed(range), &NOTES[index]);
    let is_still =
        slot.compare_exchange(noted, noted | PINNED, Ordering::AcqRel, Ordering::Relaxed);
    if is_still.is_err() {
        engine.core().unpin_range(range);
    }
}

/// In the child of a fork, which has its engine if the parent had one: the other threads' calls are their parent's.
pub fn forget(engine: Option<&Engine>) {
    for slot in &NOTES {
        let noted = slot.swap(0, Ordering::Relaxed);
        if let (Some(engine), true) = (engine, noted & PINNED != 0) {
            engine.core().unpin_range(unpacked(noted));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_says_which_pages_it_is_about_also_when_it_is_pinned() {
        let range = PageRange { first: u32::MAX, count: 258 };
        for note in [packed(range), packed(range) | PINNED] {
            let found = unpacked(note);
            assert_eq!((found.first, found.count), (range.first, range.count));
        }
    }
}
