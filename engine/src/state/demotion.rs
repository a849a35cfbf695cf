//! What the thread sleeps on that moves pages on to the next tier (`demotion/`), and what it is told.
use crate::device::compress::Compress;
use crate::state::core::Core;
use crate::sys::futex;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// Wishes that pages move on.
#[derive(Debug, Default)]
pub struct Demotion {
    /// Counts them; the thread sleeps on it.
    wishes: AtomicU32,
    /// It sleeps until there is one.
    is_asleep: AtomicBool,
    /// How much memory compressed pages may take in front of all devices, in bytes, or [`AUTO`].
    compress: AtomicU64,
    /// Pages that have moved on from compressed memory.
    moved_on: AtomicU64,
}

/// As much as it brings.
const AUTO: u64 = u64::MAX;

/// The thread that decides about compressed memory is told after so many pages.
const TELL_PAGES: u64 = 512;

impl Demotion {
    /// With what compressed pages may take to begin with.
    pub fn new(compress: Option<Compress>) -> Self {
        let demotion = Self::default();
        compress.into_iter().for_each(|compress| demotion.set_compress(compress));
        demotion
    }

    /// What compressed pages may take.
    pub fn compress(&self) -> Compress {
        match self.compress.load(Ordering::Relaxed) {
            AUTO => Compress::Auto,
            bytes => Compress::Most(bytes),
        }
    }

    /// Sets it.
    pub fn set_compress(&self, compress: Compress) {
        let bytes = match compress {
            Compress::Auto => AUTO,
            Compress::Most(bytes) => bytes.min(AUTO - 1),
        };
        self.compress.store(bytes, Ordering::Relaxed);
    }

    /// So many more have moved on from compressed memory.
    pub fn note_moved_on(&self, pages: u64) {
        self.moved_on.fetch_add(pages, Ordering::Relaxed);
    }

    /// How many that are.
    pub fn moved_on(&self) -> u64 {
        self.moved_on.load(Ordering::Relaxed)
    }

    /// Whether that is left to the engine; without compressed memory it says nothing.
    pub fn follows(&self) -> bool {
        self.compress.load(Ordering::Relaxed) == AUTO
    }

    /// One of so many pages, counted, wakes the thread that decides about compressed memory.
    pub fn tell(&self, counted: u64, pages: u64) {
        if self.follows() && counted % TELL_PAGES < pages {
            self.wish();
        }
    }

    /// Wishes so far, of which one that comes later ends a sleep.
    pub fn wishes(&self) -> u32 {
        self.wishes.load(Ordering::SeqCst)
    }

    /// Sleeps until there is a wish that is not among those seen, or for so many nanoseconds.
    pub fn sleep(&self, seen: u32, nanoseconds: Option<u64>) {
        // All SeqCst: of a sleep that begins and a wish that is made, one sees the other.
        self.is_asleep.store(true, Ordering::SeqCst);
        match nanoseconds {
            Some(nanoseconds) => futex::wait_for(&self.wishes, seen, nanoseconds),
            None => futex::wait(&self.wishes, seen),
        }
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
