//! A gate that everybody passes who changes pages, and that fork closes: when it is closed and empty, no
//! page is in transition and no request in flight, so a copy of all books is an exact snapshot.
use crate::state::core::Core;
use crate::sys::futex;
use crate::sys::signal::Blocked;
use std::sync::atomic::{AtomicU32, Ordering};

const CLOSED: u32 = 1 << 31;

/// How often who closes the gate asks whether it is still to be closed.
const LOOK_NS: u64 = 10_000_000;

/// The gate; many may be inside, nobody comes in while it is closed.
#[derive(Debug, Default)]
pub struct Gate {
    state: AtomicU32,
}

impl Gate {
    /// Comes in, waiting while the gate is closed.
    pub fn enter(&self) {
        while !self.try_enter() {
            futex::wait(&self.state, self.state.load(Ordering::Relaxed) | CLOSED);
        }
    }

    /// Comes in if the gate is open.
    pub fn try_enter(&self) -> bool {
        let mut seen = self.state.load(Ordering::Relaxed);
        while seen & CLOSED == 0 {
            // Acquire pairs with the release in `open`: what was changed behind the closed gate is visible.
            match self.state.compare_exchange_weak(
                seen,
                seen + 1,
                Ordering::Acquire,
                Ordering::Relaxed,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// One more inside; only for who is inside.
    pub fn enter_again(&self) {
        let before = self.state.fetch_add(1, Ordering::Relaxed);
        assert!(before & !CLOSED > 0, "only who is inside brings another in");
    }

    /// Goes out.
    pub fn leave(&self) {
        // Release pairs with the acquire in `close`: what was done inside is visible to who closed.
        let before = self.state.fetch_sub(1, Ordering::Release);
        assert!(before & !CLOSED > 0, "nobody leaves who is not inside");
        if before == CLOSED + 1 {
            futex::wake_all(&self.state);
        }
    }

    /// Whether somebody waits for everybody to leave.
    pub fn is_closed(&self) -> bool {
        self.state.load(Ordering::Relaxed) & CLOSED != 0
    }

    /// Closes the gate, after whoever else has it closed, and waits until nobody is inside.
    pub fn close(&self) {
        while !self.close_while(|| true) {}
    }

    /// As [`Self::close`]; but when `goes_on` says no while somebody is still inside, the gate is open again, and
    /// this false.
    pub fn close_while(&self, goes_on: impl Fn() -> bool) -> bool {
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
                return true;
            }
            if !goes_on() {
                self.state.fetch_and(!CLOSED, Ordering::Release);
                futex::wake_all(&self.state);
                return false;
            }
            futex::wait_for(&self.state, seen, LOOK_NS);
        }
    }

    /// Opens the gate again.
    pub fn open(&self) {
        self.state.store(0, Ordering::Release);
        futex::wake_all(&self.state);
    }
}

impl Core {
    /// For who is not inside, and takes locks: a fork meanwhile would copy locks that nobody in the child gives
    /// back.
    pub(crate) fn inside_gate<R>(&self, act: impl FnOnce() -> R) -> R {
        let _blocked = Blocked::new();
        self.gate.enter();
        let result = act();
        self.gate.leave();
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicU64;

    #[test]
    fn behind_a_closed_gate_nobody_is_inside() {
        let gate = Gate::default();
        let (inside, seen) = (AtomicU64::new(0), AtomicU64::new(0));
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        gate.enter();
                        inside.fetch_add(1, Ordering::SeqCst);
                        inside.fetch_sub(1, Ordering::SeqCst);
                        gate.leave();
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
    fn who_gives_up_closing_leaves_the_gate_open() {
        let gate = Gate::default();
        gate.enter();
        assert!(!gate.close_while(|| false));
        assert!(!gate.is_closed() && gate.try_enter());
        gate.leave();
        gate.leave();
        assert!(gate.close_while(|| false) && !gate.try_enter(), "nobody has to be waited for");
        gate.open();
    }
}
