//! A fault served on the thread that wants its page: by signal the one that faulted, for another process the one that asks for it.
use crate::base::index::PageIndex;
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::waits::{Wait, Waited};
use crate::sys::clock;
use crate::sys::uffd::Access;

impl Core {
    /// Serves a fault that came `since`, in nanoseconds of the clock, inside the gate, and waits for its read; safe in a signal handler. A page that another thread owns (`Step::Busy`) is
    /// the caller's to wait for, outside of the gate.
    pub(crate) fn serve_here(&self, page: PageIndex, access: Access, since: u64) -> Step {
        self.note_density(since);
        let step = match self.handle_fault(page, access, self.node_here()) {
            Step::Read(job) => {
                let waited = Waited::Page(page);
                let wait = Wait { waited, thread: clock::thread_id(), since_ns: since };
                self.note_read_waits(&job, wait);
                self.read_now(job);
                Step::Done
            }
            other => other,
        };
        if !matches!(step, Step::Busy) {
            self.counters.latency.record(clock::now_ns() - since);
        }
        step
    }
}
