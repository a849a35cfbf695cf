//! Requests that are inside the [gate](super::gate) until they have ended, and acts of threads that are there for them alone.
use crate::state::core::Core;
use crate::sys::signal::Blocked;
use std::sync::Arc;

/// A request in flight: as long as it is, fork waits for it as for a thread inside.
#[must_use = "dropping it leaves the gate"]
pub struct InFlight(Arc<Core>);

impl InFlight {
    /// One more inside, beside the calling thread, which is.
    ///
    /// # Panics
    /// When no thread is inside.
    pub fn new(core: &Arc<Core>) -> Self {
        core.gate.bring_in();
        Self(core.clone())
    }
}

impl Drop for InFlight {
    fn drop(&mut self) {
        self.0.gate.leave();
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
    use crate::state::gate::Gate;
    use std::sync::atomic::{AtomicU64, Ordering};

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
