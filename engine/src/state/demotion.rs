//! What the thread sleeps on that moves pages on to the next tier (`demotion/`).
use crate::state::core::Core;
use crate::sys::futex;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

/// Wishes that pages move on.
#[derive(Debug, Default)]
pub struct Demotion {
    /// Counts them; the thread sleeps on it.
    wishes: AtomicU32,
    /// It sleeps until there is one.
    is_asleep: AtomicBool,
}

impl Demotion {
    /// Wishes so far, of which one that comes later ends a sleep.
    pub fn wishes(&self) -> u32 {
        self.wishes.load(Ordering::SeqCst)
    }

    /// Sleeps until there is a wish that is not among those seen.
    pub fn sleep(&self, seen: u32) {
        // All SeqCst: of a sleep that begins and a wish that is made, one sees the other.
        self.is_asleep.store(true, Ordering::SeqCst);
        futex::wait(&self.wishes, seen);
        self.is_asleep.store(false, Ordering::SeqCst);
    }

    /// Rests, for as long as it takes to be told to end or for so many nanoseconds.
    pub fn rest(&self, seen: u32, nanoseconds: u64) {
        futex::wait_for(&self.wishes, seen, nanoseconds);
    }

    /// Pages should move on; safe in a signal handler.
    pub fn wish(&self) {
        self.wishes.fetch_add(1, Ordering::SeqCst);
        if self.is_asleep.swap(false, Ordering::SeqCst) {
            futex::wake_all(&self.wishes);
        }
    }

    /// Ends a sleep, and a rest.
    pub fn wake(&self) {
        self.wishes.fetch_add(1, Ordering::SeqCst);
        futex::wake_all(&self.wishes);
    }
}

impl Core {
    /// Pages were written: others should move on if room has become short, on this device or on one in front of it that takes
    /// no more.
    pub(crate) fn note_filled(&self) {
        if self.devices.is_any_short() {
            self.demotion.wish();
        }
    }
}
