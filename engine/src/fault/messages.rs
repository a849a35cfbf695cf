//! What a server knows of those whose messages it reads: on which node each ran, and who faults where nothing is.
use crate::base::index::NodeId;
use crate::state::core::Core;
use crate::sys::uffd::Fault;
use crate::sys::{PAGE_BYTES, clock, numa, signal};
use std::collections::HashMap;

/// How long a faulting thread is believed to stay on its node.
const SEEN_NS: u64 = 10_000_000;

/// Times in a row that a thread must fault in memory of no region before it gets SIGSEGV: the first message may be
/// older than the answer to it, and the thread long gone on.
const FOREIGN_TIMES: u32 = 3;

/// In a row means that no more time lies between two: a thread that still is there faults again at once.
const FOREIGN_NS: u64 = 1_000_000_000;

/// Threads whose node is remembered; with more of them all are forgotten.
const SEEN_MAX: usize = 1024;

/// One server's memory.
#[derive(Default)]
pub(super) struct Messages {
    /// Where threads that fault were seen last, by thread id.
    seen: HashMap<i32, Sighting>,
    /// The last fault outside every region.
    foreign: Foreign,
}

/// Where a thread ran, and when.
struct Sighting {
    node: NodeId,
    at_ns: u64,
}

/// A fault outside every region, and how often it came in a row.
#[derive(Default)]
struct Foreign {
    fault: Fault,
    times: u32,
    at_ns: u64,
}

impl Messages {
    /// Memory that was unmapped or never mapped: what a program expects there is SIGSEGV. Messages are read
    /// in batches, though, and this one may have been answered with another's run: a thread that still is there
    /// faults again when it is woken.
    pub(super) fn refuse(&mut self, core: &Core, fault: Fault) {
        let now = clock::now_ns();
        let last = &self.foreign;
        let is_again = last.fault == fault && now - last.at_ns < FOREIGN_NS;
        let times = if is_again { last.times + 1 } else { 1 };
        self.foreign = Foreign { fault, times, at_ns: now };
        if times >= FOREIGN_TIMES {
            signal::send(fault.thread, libc::SIGSEGV);
        }
        core.uffd.wake(fault.address, PAGE_BYTES);
    }

    /// The node of a thread that faults. A message does not say where it runs, and /proc is slow to ask: the
    /// answer is kept for a scheduler's tick or two.
    pub(super) fn node_of(&mut self, core: &Core, thread: i32) -> NodeId {
        if core.nodes.len() == 1 {
            return NodeId(0);
        }
        let now = clock::now_ns();
        match self.seen.get(&thread) {
            Some(Sighting { node, at_ns }) if now - at_ns < SEEN_NS => return *node,
            _ => {}
        }
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        let cpu = numa::cpu_of_thread(thread).unwrap_or(0);
        let node = core.topology.node_of_cpu(cpu);
        self.seen.insert(thread, Sighting { node, at_ns: now });
        node
    }
}
