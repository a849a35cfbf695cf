//! A gate that every thread passes that changes pages, and that fork closes: when it is closed and empty, no
//! page is in transition and no request in flight, so a copy of all tables is an exact snapshot.
//!
//! Being inside is a guard ([`Inside`], [`InFlight`] for a request): it leaves on every way out, a panic included.
use crate::state::core::Core;
use crate::sys::futex;
use crate::sys::signal::Blocked;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

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

/// A request in flight: as long as it is, fork waits for it as for a thread inside.
#[must_use = "dropping it leaves the gate"]
pub struct InFlight(Arc<Core>);

impl InFlight {
    /// One more inside, beside the calling thread, which is.
    ///
    /// # Panics
    /// When no thread is inside.
    pub fn new(core: &Arc<Core>) -> Self {
        let before = core.gate.state.fetch_add(1, Ordering::Relaxed);
        assert!(before & !CLOSED > 0, "only a thread that is inside brings a request in");
        Self(core.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.gate.leave();
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
            futex::wait(&self.state, self.state.load(Ordering::Relaxed) | CLOSED);
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

    fn leave(&self) {
        // Release pairs with the acquire in `close`: what was done inside is visible to the thread that closed.
        let before = self.state.fetch_sub(1, Ordering::Release);
        assert!(before & !CLOSED > 0, "only a thread that is inside leaves");
        if before == CLOSED + 1 {
            futex::wake_all(&self.state);
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
            futex::wait(&self.state, before);
        }
        loop {
            let seen = self.state.load(Ordering::Acquire);
            if seen == CLOSED {
                return Some(Closed(self));
            }
            if !goes_on() {
                self.state.fetch_and(!CLOSED, Ordering::Release);
                futex::wake_all(&self.state);
                return None;
            }
            futex::wait_for(&self.state, seen, LOOK_NS);
        }
    }

    /// Opens the gate, and wakes the threads that wait for that.
    pub fn open(&self) {
        self.state.store(0, Ordering::Release);
        futex::wake_all(&self.state);
    }
}

impl Core {
    /// For a thread that is not inside, and takes locks: a fork meanwhile would copy locks that no thread of the child
    /// gives back.
    pub(crate) fn inside_gate<R>(&self, act: impl FnOnce() -> R) -> R {
        let _blocked = Blocked::new();
        let _inside = self.gate.enter();
        act()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn while_the_gate_is_closed_nobody_is_inside() {
        let gate = Gate::default();
        let (inside, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        let _inside = gate.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                    }
                });
            }
            for _ in 0..200 {
                gate.close();
                seen.fetch_add(inside.load(Ordering::SeqCst), Ordering::SeqCst);
                gate.open();
            }
        });
        assert_eq!(seen.into_inner(), 0);
    }

    #[test]
    fn a_thread_that_gives_up_closing_leaves_the_gate_open() {
        let gate = Gate::default();
        let inside = gate.enter();
        assert!(gate.close_while(|| false).is_none());
        assert!(!gate.is_closed() && gate.try_enter().is_some());
        drop(inside);
        let closed = gate.close_while(|| false);
        assert!(closed.is_some() && gate.try_enter().is_none(), "nobody has to be waited for");
        drop(closed);
        assert!(gate.try_enter().is_some());
    }

    #[test]
    fn a_panic_inside_leaves_the_gate() {
        let gate = Gate::default();
        let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let _inside = gate.enter();
            std::panic::resume_unwind(Box::new("a panic that says nothing"));
        }));
        assert!(outcome.is_err());
        assert!(gate.close_while(|| false).is_some(), "nobody is inside");
    }
}
