//! A gate that every thread passes that changes pages, and that fork closes: when it is closed and empty, no
//! page is in transition and no request in flight, so a copy of all tables is an exact snapshot.
//!
//! Being inside is a guard ([`Inside`], [`InFlight`](super::in_flight::InFlight) for a request): it leaves on every way out, a
//! panic included. This protocol is model-checked (`tests/models/inside.rs`).
use crate::sys::sync::{AtomicU32, Ordering, sleep, wait, wake_all};

const CLOSED: u32 = 1 << 31;

/// How often the thread that closes the gate asks whether it is still to be closed.
const LOOK_NS: u64 = 10_000_000;

/// The gate; many threads may be inside, none comes in while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU32,
}

/// Being inside; dropping it leaves.
#[derive(Debug)]
#[must_use = "dropping it leaves the gate"]
pub struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.leave();
    }
}

/// A gate that is closed and empty; dropping it opens the gate.
#[derive(Debug)]
#[must_use = "dropping it opens the gate"]
pub struct Closed<'a>(&'a Gate);

impl Drop for Closed<'_> {
    fn drop(&mut self) {
        self.0.open();
    }
}

impl Gate {
    /// A gate that is closed until [`Self::open`].
    pub fn closed() -> Self {
        Self { state: AtomicU32::new(CLOSED) }
    }

    /// Comes in, waiting while the gate is closed.
    pub fn enter(&self) -> Inside<'_> {
        loop {
            if let Some(inside) = self.try_enter() {
                return inside;
            }
            wait(&self.state, self.state.load(Ordering::Relaxed) | CLOSED);
        }
    }

    /// Comes in if the gate is open.
    pub fn try_enter(&self) -> Option<Inside<'_>> {
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & CLOSED == 0 {
            // Acquire pairs with the release in `open`: what was changed while it was closed is visible.
            match self.state.compare_exchange_weak(
                seen,
                seen + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return Some(Inside(self)),
                Err(now) => seen = now,
            }
        }
        None
    }

    /// One more inside, beside the calling thread, which is; whoever has it leaves.
    ///
    /// # Panics
    /// When no thread is inside.
    pub fn bring_in(&self) {
        let before = self.state.fetch_add(1, Ordering::Relaxed);
        assert!(before & !CLOSED > 0, "only a thread that is inside brings a request in");
    }

    /// One less inside.
    ///
    /// # Panics
    /// When no thread is inside.
    pub fn leave(&self) {
        // Release pairs with the acquire in `close`: what was done inside is visible to the thread that closed.
        let before = self.state.fetch_sub(1, Ordering::Release);
        assert!(before & !CLOSED > 0, "only a thread that is inside leaves");
        if before == CLOSED + 1 {
            wake_all(&self.state);
        }
    }

    /// Whether a thread has closed it, or waits for the others to leave.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes the gate, after any other thread that has it closed, and waits until it is empty. It stays closed until
    /// [`Self::open`]: across a fork no guard could be dropped in both processes.
    pub fn close(&self) {
        let closed = self.close_while(|| true).expect("it goes on until the gate is closed");
        std::mem::forget(closed);
    }

    /// As [`Self::close`], with a guard that opens the gate; but when `goes_on` says no while a thread is still
    /// inside, the gate is open again, and this None.
    pub fn close_while(&self, goes_on: impl Fn() -> bool) -> Option<Closed<'_>> {
        loop {
            let before = self.state.fetch_or(CLOSED, Ordering::Acquire);
            if before & CLOSED == 0 {
                break;
            }
            wait(&self.state, before);
        }
        loop {
            let seen = self.state.load(Ordering::Acquire);
            if seen == CLOSED {
                return Some(Closed(self));
            }
            if !goes_on() {
                self.state.fetch_and(!CLOSED, Ordering::Release);
                wake_all(&self.state);
                return None;
            }
            sleep(&self.state, seen, LOOK_NS);
        }
    }

    /// Opens the gate, and wakes the threads that wait for that.
    pub fn open(&self) {
        // Nobody is inside. An exchange all the same: of a store among exchanges the model checker does not know the order.
        self.state.swap(0, Ordering::Release);
        wake_all(&self.state);
    }
}
