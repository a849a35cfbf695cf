//! Fault delivery by signal: SIGBUS in the faulting thread finds its engine and serves the fault there.
use crate::core::Core;
use crate::fault::Step;
use crate::options::FaultMode;
use crate::sys::lock::Lock;
use crate::sys::signal::{self, Verdict};
use crate::sys::{PAGE_BYTES, clock};
use std::sync::Arc;

/// Engines a process can have in `signal` mode.
const ENGINES_MAX: usize = 8;

static ENGINES: Lock<[Option<Arc<Core>>; ENGINES_MAX]> = Lock::new([const { None }; ENGINES_MAX]);

/// Makes an engine's faults reach it, if it wants them by signal.
///
/// # Panics
/// When the process has too many engines.
pub fn enroll(core: &Arc<Core>) {
    if core.tuning.fault != FaultMode::Signal {
        return;
    }
    let _blocked = signal::Blocked::new();
    let mut engines = ENGINES.lock();
    let place = engines.iter_mut().find(|place| place.is_none());
    *place.expect("at most eight engines with signal delivery") = Some(core.clone());
    drop(engines);
    signal::install_sigbus(on_fault);
}

/// Takes an engine off the list.
pub fn strike(core: &Arc<Core>) {
    let _blocked = signal::Blocked::new();
    let mut engines = ENGINES.lock();
    for place in engines.iter_mut() {
        if place.as_ref().is_some_and(|listed| Arc::ptr_eq(listed, core)) {
            *place = None;
        }
    }
}

/// Forgets all engines: after fork, in the child.
pub fn forget_all() {
    for place in ENGINES.lock().iter_mut() {
        // The parent's engine is not ours to drop: its threads do not exist here.
        std::mem::forget(place.take());
    }
}

fn engine_of(address: usize) -> Option<Arc<Core>> {
    let engines = ENGINES.lock();
    engines.iter().flatten().find(|core| core.arena.contains(address)).cloned()
}

/// On the faulting thread, with all signals blocked.
fn on_fault(address: usize) -> Verdict {
    let Some(core) = engine_of(address) else { return Verdict::Foreign };
    let since = clock::now_ns();
    let page = core.arena.page_of(address & !(PAGE_BYTES - 1));
    core.gate.enter();
    let step = core.handle_fault(page);
    let verdict = match step {
        Step::Done => Verdict::Served,
        Step::Read(job) => {
            core.read_now(job);
            Verdict::Served
        }
        Step::Busy => {
            core.gate.leave();
            core.pages.wait_owned(page);
            return Verdict::Served;
        }
        Step::Foreign => Verdict::Foreign,
    };
    core.gate.leave();
    core.counters.latency.record(clock::now_ns() - since);
    if core.pages.state(page) == crate::page::PageState::Lost { Verdict::Foreign } else { verdict }
}
