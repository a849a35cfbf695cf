//! Fault delivery by signal: SIGBUS in the faulting thread finds the page's engine and serves the fault there.
//!
//! All of it runs in a signal handler, on whatever stack the program gave: nothing is allocated, and a read is waited
//! for where it was started. Memory of no engine, and lost pages, are left to the program's own handler.
use crate::base::choice::FaultMode;
use crate::base::error::Error;
use crate::base::index::PageIndex;
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::sys::registry::Registry;
use crate::sys::signal::Verdict;
use crate::sys::uffd::Access;
use crate::sys::{PAGE_BYTES, clock, signal};
use std::sync::Arc;

/// Engines a process can have in `signal` mode.
const ENGINES_MAX: usize = 8;

static ENGINES: Registry<Core, ENGINES_MAX> = Registry::new();

/// Makes an engine's faults reach it, if it wants them by signal.
///
/// # Errors
/// The process has as many such engines as a handler can look through.
pub fn enroll(core: &Arc<Core>) -> Result<(), Error> {
    if core.tuning.fault == FaultMode::Signal {
        if !ENGINES.enroll(core) {
            return Err(Error::TooManyEngines(ENGINES_MAX));
        }
        signal::install_sigbus(on_fault);
    }
    Ok(())
}

/// No fault reaches the engine any more; waits for those under way.
pub fn strike(core: &Arc<Core>) {
    ENGINES.strike(core);
}

/// After fork, in the child: threads in the middle of a fault stayed with the parent.
pub fn forget_readers() {
    ENGINES.forget_readers();
}

/// On the faulting thread, with all signals blocked.
fn on_fault(address: usize) -> Verdict {
    ENGINES
        .find(|core| core.arena.contains(address), |core| serve(core, address))
        .unwrap_or(Verdict::Foreign)
}

fn serve(core: &Core, address: usize) -> Verdict {
    let since = clock::now_ns();
    let page = core.arena.page_of(address & !(PAGE_BYTES - 1));
    let inside = core.gate.enter();
    // A signal does not say what the thread was about to do.
    let step = core.serve_here(page, Access::Write, since);
    if let Step::Busy = step {
        drop(inside);
        core.wait_owned_watched(page);
        return Verdict::Served;
    }
    let is_over = match core.pages.state(page) {
        PageState::Lost => true,
        PageState::Untouched => is_beyond_a_file(core, page),
        _ => false,
    };
    drop(inside);
    if is_over || matches!(step, Step::Foreign) { Verdict::Foreign } else { Verdict::Served }
}

/// Whether the program has mapped something of the kernel's at a page that cannot be read: past the end of a file. What
/// can be read was mapped since the signal was raised, and the thread goes on there.
fn is_beyond_a_file(core: &Core, page: PageIndex) -> bool {
    let byte = 0u8;
    let to = (&raw const byte).addr();
    core.arena.is_foreign(page) && core.own_memory.read(core.page_address(page), to, 1).is_err()
}
