//! More servers, for as long as one does not keep up: each takes a message at a time and serves it, waiting for its read.
//!
//! The server wakes them, when `policy::servers` says so. One that has found no message for a while sleeps again. They go the way of
//! signal mode: reading ahead, and reads that nobody waits for here, are the server's alone.
use crate::base::choice::FaultMode;
use crate::base::counters::count;
use crate::fault::handle::Step;
use crate::fault::messages::Messages;
use crate::state::core::Core;
use crate::state::waits::{Wait, Waited};
use crate::sys::thread::Thread;
use crate::sys::uffd::Fault;
use crate::sys::{clock, fd};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// How long a helper looks for messages before it sleeps, in milliseconds.
const PATIENCE_MS: i32 = 5;

struct Helping {
    core: Arc<Core>,
    number: usize,
    messages: Messages,
}

impl Helping {
    fn run(&mut self) {
        let core = self.core.clone();
        let helper = &core.threads.helpers[self.number];
        loop {
            fd::poll(&[helper.wanted.as_raw_fd(), -1, -1], -1);
            helper.wanted.clear();
            // What is set before a signal is seen after it.
            if core.are_servers_stopping() {
                return;
            }
            self.help();
            helper.awake.store(false, Ordering::Relaxed);
        }
    }

    /// Serves messages until there has been none for a while.
    fn help(&mut self) {
        let core = self.core.clone();
        let mut fault = [Fault::default()];
        while !core.are_servers_stopping() {
            if core.uffd.read(&mut fault) > 0 {
                self.serve(fault[0]);
                continue;
            }
            let [has_faults, ..] = fd::poll(&[core.uffd.as_raw_fd(), -1, -1], PATIENCE_MS);
            if !has_faults {
                return;
            }
        }
    }

    fn serve(&mut self, fault: Fault) {
        let core = self.core.clone();
        let since = clock::now_ns();
        let _inside = core.gate.enter();
        count(&core.counters.pgfault_helped, 1);
        core.note_density(since);
        let near = self.messages.node_of(&core, fault.thread);
        let page = core.arena.page_of(fault.address);
        let wait = Wait { waited: Waited::Page(page), thread: fault.thread, since_ns: since };
        match core.handle_fault(page, fault.access, core.node(near)) {
            Step::Done => core.counters.latency.record(clock::now_ns() - since),
            Step::Busy => core.note_fault_waits(wait),
            Step::Read(job) => {
                core.note_read_waits(&job, wait);
                core.read_now(job);
                core.counters.latency.record(clock::now_ns() - since);
            }
            Step::Foreign => self.messages.refuse(&core, fault),
        }
    }
}

/// Starts an engine's helpers, which sleep: as many as the system has threads for.
pub fn start(core: &Arc<Core>) -> Vec<Thread> {
    if core.tuning.fault != FaultMode::Thread {
        return Vec::new();
    }
    // A forked child has the flags of its parent's.
    core.threads.helpers.iter().for_each(|helper| helper.awake.store(false, Ordering::Relaxed));
    let start = |number: usize| {
        let mut helping = Helping { core: core.clone(), number, messages: Messages::default() };
        Thread::spawn("userswap-fault+", move || helping.run()).ok()
    };
    let helpers: Vec<Thread> = (0..core.threads.helpers.len()).map_while(start).collect();
    core.threads.has_helpers(helpers.len());
    helpers
}
