//! The background reclaimer: a thread per node that keeps pages available, so that no fault has to wait.
//!
//! Woken when a node falls to its low watermark, it takes batches out and keeps several writes in flight
//! until what is available and what is being written together pass the high one.
use crate::core::Core;
use crate::counters::count;
use crate::error::Error;
use crate::node::Node;
use crate::page::NodeId;
use crate::queue::{Completion, Queue};
use crate::reclaim::{BATCH, Scratch};
use crate::sys::fd;
use crate::sys::numa;
use crate::sys::request::Direction;
use crate::write_back::WriteOp;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Writes in flight: eight of a mebibyte saturate a fast disk and keep 2 % of a 512 MiB budget busy.
const DEPTH: usize = 8;
/// Without any progress the reclaimer rests this long, or until it is woken.
const REST_MS: i32 = 10;
/// As long as no device has room, only clean pages and pages of zeros can leave: no hurry.
const REST_FULL_MS: i32 = 100;

/// The thread's own data.
struct Kswapd {
    core: Arc<Core>,
    node: NodeId,
    queue: Queue,
    writes: Vec<Box<WriteOp>>,
    idle: Vec<usize>,
    scratch: Box<Scratch>,
    /// The set of devices that the queue keeps open.
    changes_seen: u32,
}

/// Starts the reclaimer of one of an engine's nodes, on that node's CPUs.
///
/// # Errors
/// No thread or no queue to be had.
pub fn start(core: Arc<Core>, node: NodeId) -> Result<std::thread::JoinHandle<()>, Error> {
    let queue = Queue::new(core.tuning.io, DEPTH as u32).map_err(Error::Thread)?;
    core.queue_fds.lock().push(queue.as_raw_fd());
    let mut kswapd = Kswapd {
        core,
        node,
        queue,
        writes: (0..DEPTH).map(|_| Box::new(WriteOp::new())).collect(),
        idle: (0..DEPTH).collect(),
        scratch: Box::new(Scratch::new()),
        changes_seen: 0,
    };
    let thread = std::thread::Builder::new().name(format!("userswapd{}", node.0));
    thread.spawn(move || kswapd.run()).map_err(Error::Thread)
}

impl Kswapd {
    fn run(&mut self) {
        if self.core.nodes.len() > 1 {
            numa::run_on(&self.core.topology.nodes()[self.node.0 as usize].cpus);
        }
        while !self.core.is_stopping() {
            self.take_completions();
            self.keep_devices();
            let core = self.core.clone();
            match self.reclaim(core.node(self.node)) {
                Pass::Progress => {}
                outcome => self.sleep(outcome),
            }
        }
        while self.queue.in_flight() > 0 {
            self.queue.wait();
            self.take_completions();
        }
    }

    /// The ring holds the devices' last references: see `Queue::keep_open`.
    fn keep_devices(&mut self) {
        // Behind the gate no descriptor is closed.
        if !self.core.gate.try_enter() {
            return;
        }
        let changes = self.core.devices.changes.load(Ordering::Acquire);
        if std::mem::replace(&mut self.changes_seen, changes) != changes {
            let files = self.core.devices.list().map(|device| device.descriptor());
            self.queue.keep_open(&files.collect::<Vec<_>>());
        }
        self.core.gate.leave();
    }

    /// One batch, if the node needs it and a write can be started.
    fn reclaim(&mut self, node: &Node) -> Pass {
        // The gate first: no lock is taken outside it, or a fork could find it held by nobody.
        if self.idle.is_empty() || !self.core.gate.try_enter() {
            return Pass::Nothing;
        }
        if !wants_reclaim(node) {
            self.core.gate.leave();
            return Pass::Nothing;
        }
        let reclaimed = self.core.take_batch(node, BATCH, &mut self.scratch);
        count(&self.core.counters.pgscan_kswapd, u64::from(reclaimed.scanned));
        count(&self.core.counters.pgsteal_kswapd, u64::from(reclaimed.taken));
        self.write(node);
        self.core.repay(node);
        self.core.gate.leave();
        let useful = reclaimed.taken > 0 && !self.core.devices_full.load(Ordering::Relaxed);
        if useful { Pass::Progress } else { Pass::Stuck }
    }

    /// Starts writes for all dirty pages of the batch; what finds no idle write waits for one.
    fn write(&mut self, node: &Node) {
        let mut done = 0;
        while done < self.scratch.victims().len() {
            let Some(place) = self.idle.pop() else {
                self.queue.wait();
                self.take_completions();
                continue;
            };
            let write = &mut self.writes[place];
            let prepared =
                self.core.prepare_write(node, node.id, &self.scratch.victims()[done..], write);
            if prepared == 0 {
                self.idle.push(place);
                self.core.put_back(node, &self.scratch.victims()[done..]);
                return;
            }
            done += prepared;
            self.start_write(place);
        }
    }

    fn start_write(&mut self, place: usize) {
        let write = &self.writes[place];
        let (slot, bytes) = (write.slot(), write.pieces.bytes());
        let request = self.core.devices.request(Direction::Write, slot, bytes, self.node);
        // Fork waits until the request has finished: it counts as being inside the gate.
        self.core.gate.enter_again();
        self.queue.start(request, &write.pieces, place as u64);
    }

    fn take_completions(&mut self) {
        while let Some(Completion { token, outcome }) = self.queue.finished() {
            let write = &self.writes[token as usize];
            let node = self.core.node_of_write(write);
            self.core.finish_write(node, write, outcome);
            self.core.gate.leave();
            self.idle.push(token as usize);
        }
    }

    /// Waits for a completion or for being woken; after a pass without success not for long.
    fn sleep(&mut self, outcome: Pass) {
        let core = &self.core;
        let node = core.node(self.node);
        node.reclaim_awake.store(false, Ordering::SeqCst);
        let open = core.gate.try_enter();
        // Whoever found the node low before that store did not signal: look again.
        let missed = open && !self.idle.is_empty() && wants_reclaim(node);
        if open {
            core.gate.leave();
        }
        if outcome == Pass::Stuck || !missed {
            let resting = outcome == Pass::Stuck || !open;
            let rest =
                if core.devices_full.load(Ordering::Relaxed) { REST_FULL_MS } else { REST_MS };
            let timeout = if resting { rest } else { -1 };
            fd::poll(&[node.reclaim_wanted.as_raw_fd(), self.queue.as_raw_fd(), -1], timeout);
            node.reclaim_wanted.clear();
        }
        node.reclaim_awake.store(true, Ordering::SeqCst);
    }
}

/// How a pass over a node ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pass {
    /// There was nothing to do, or it could not begin.
    Nothing,
    /// It took nothing out, or no device had room.
    Stuck,
    /// It took pages out.
    Progress,
}

/// Whether the node, once all writes under way have finished, would still not be above its high mark.
fn wants_reclaim(node: &Node) -> bool {
    let state = node.lock();
    state.debt > 0 || state.available() + state.writing <= state.watermarks.high
}

impl Core {
    /// The node whose pages a write carries.
    pub fn node_of_write(&self, write: &WriteOp) -> &Node {
        self.node_of_frame(write.first_frame())
    }
}
