//! A swapoff, carried out by a thread of its own.
//!
//! Only that thread can put the device back into use for a fault that finds no room, and the thread that faults may hold the GIL:
//! so the one must never wait for the other. The thread that asked looks at signals meanwhile, and shows how far it is.
use crate::pool::Pool;
use crate::refusal::raised;
use pyo3::prelude::*;
use std::panic::resume_unwind;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;
use userswap::Error;
use userswap::internals::signal::Blocked;
use userswap::internals::{Proceed, Progress};

/// Time between two looks at signals: shorter than a person notices.
const LOOK_PERIOD: Duration = Duration::from_millis(50);

/// What the two threads tell each other.
#[derive(Default)]
struct Watch {
    pages_left: AtomicU64,
    /// 0 before the first batch.
    pages_total: AtomicU64,
    is_cancelled: AtomicBool,
}

impl Watch {
    /// On the thread that carries it out.
    fn after_batch(&self, now: Progress) -> Proceed {
        // Relaxed: numbers to be shown, and a wish that may be heard a batch later.
        self.pages_left.store(now.pages_left, Ordering::Relaxed);
        self.pages_total.store(now.pages_total, Ordering::Relaxed);
        match self.is_cancelled.load(Ordering::Relaxed) {
            true => Proceed::Cancel,
            false => Proceed::GoOn,
        }
    }

    /// On the thread that asked.
    fn look(&self, py: Python<'_>, progress: Option<&Bound<'_, PyAny>>) -> PyResult<()> {
        let total = self.pages_total.load(Ordering::Relaxed);
        if let Some(progress) = progress
            && total > 0
        {
            progress.call1((self.pages_left.load(Ordering::Relaxed), total))?;
        }
        py.check_signals()
    }
}

/// Empties a device and lets go of it; `progress` is told pages left and pages in all.
///
/// # Errors
/// As of the engine's swapoff; what a signal handler or `progress` raised, which cancel it.
pub fn carry_out(
    py: Python<'_>,
    pool: &Pool,
    path: &Path,
    progress: Option<&Bound<'_, PyAny>>,
) -> PyResult<()> {
    let (watch, mut interrupted) = (Watch::default(), None);
    let outcome = std::thread::scope(|scope| {
        let (under_way, mut end) = channel::<()>();
        let work = || {
            let _under_way = under_way;
            let _blocked = Blocked::new();
            pool.engine.core().swapoff(path, &mut |now| watch.after_batch(now))
        };
        let builder = std::thread::Builder::new().name("userswap-off".into());
        let worker = builder.spawn_scoped(scope, work).map_err(Error::Thread)?;
        let mut wait = || {
            let end = &mut end;
            py.detach(move || end.recv_timeout(LOOK_PERIOD))
        };
        // It ends by being disconnected.
        while wait() == Err(RecvTimeoutError::Timeout) {
            if interrupted.is_none() {
                interrupted = watch.look(py, progress).err();
                watch.is_cancelled.store(interrupted.is_some(), Ordering::Relaxed);
            }
        }
        worker.join().unwrap_or_else(|panic| resume_unwind(panic))
    });
    interrupted.map_or(outcome.map_err(raised), Err)
}
