//! The background reclaimer: a thread per node that keeps pages available, so that no fault has to wait.
//!
//! Woken when a node falls to its low watermark, it unmaps batches and keeps several writes in flight
//! until what is available and what is being written together pass the high one. How hard it looks, and
//! when it gives up, is `policy::reclaim`; a batch is `isolate.rs`'s, a write `writeback.rs`'s.
use crate::base::counters::count;
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::limits::BATCH;
use crate::base::log;
use crate::device::queue::{Completion, Queue};
use crate::reclaim::isolate::{Quota, Reclaimed};
use crate::state::blocks::Blocks;
use crate::state::core::{Core, Path};
use crate::state::in_flight::InFlight;
use crate::state::node::Node;
use crate::state::scratch::{Scratch, WriteOp};
use crate::sys::thread::Thread;
use crate::sys::{PAGE_BYTES, clock, fd, numa, own_table};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::block::{Travel, Way};
use userswap_policy::kernel::contention::{TurnEvent, Unmapper};
use userswap_policy::lru::ListId;
use userswap_policy::reclaim::{Next, Round};

/// Writes in flight: eight of a mebibyte saturate a fast disk and keep 2 % of a 512 MiB budget busy.
const DEPTH: usize = 8;

/// Without any progress the reclaimer rests this long, in milliseconds, or until it is woken.
const REST_MS: i32 = 10;

/// After the high watermark was reached, in milliseconds: woken sooner, it was hit quickly (the kernel's HZ/10).
const BALANCED_MS: i32 = 100;

/// Pages looked at under one hold of the node's lock.
const SCAN_MAX: u32 = 4 * BATCH as u32;

/// As [`REST_MS`], while no device has room: only clean pages and pages of zeros can leave then, so no hurry.
const REST_FULL_MS: i32 = 100;

/// The thread's own data.
struct Kswapd {
    core: Arc<Core>,
    node: NodeId,
    queue: Queue,
    writes: Vec<Box<WriteOp>>,
    /// For each of the writes, whether it is under way.
    in_flight: Vec<Option<InFlight>>,
    idle: Vec<usize>,
    scratch: Box<Scratch>,
    blocks: Blocks,
    round: Option<Round>,
    pass: Pass,
    /// The device changes at which the queue was last told what to keep open.
    changes_seen: u32,
}

impl Kswapd {
    fn run(&mut self) {
        own_table::is_of_ours();
        if self.core.nodes.len() > 1 {
            numa::run_on(&self.core.topology.nodes()[self.node.0 as usize].cpus);
        }
        while !self.core.is_stopping() {
            self.finish_completed();
            self.keep_devices();
            let core = self.core.clone();
            match self.reclaim(&core) {
                Outcome::GoesOn => {}
                outcome => self.sleep(outcome),
            }
        }
        self.core.end_turn(self.core.node(self.node), TurnEvent::GivesUp);
        while self.queue.in_flight() > 0 {
            self.queue.wait();
            self.finish_completed();
        }
    }

    /// The ring holds the devices' last references: see `Queue::keep_open`. Those that were turned away get another chance.
    fn keep_devices(&mut self) {
        // Inside the gate no descriptor is closed.
        let Some(inside) = self.core.gate.try_enter() else { return };
        let changes = self.core.devices.changes.load(Ordering::Acquire);
        if std::mem::replace(&mut self.changes_seen, changes) != changes {
            let files = self.core.devices.list().map(|device| device.descriptor());
            self.queue.keep_open(&files.collect::<Vec<_>>());
        }
        self.core.devices.try_silent();
        drop(inside);
    }

    /// One batch, if the node needs it and a write can be started.
    fn reclaim(&mut self, core: &Core) -> Outcome {
        if self.idle.is_empty() {
            return Outcome::NotBegun;
        }
        // The gate first: no lock is taken outside it, or a fork could find it held by a thread that the
        // child does not have.
        let Some(_inside) = core.gate.try_enter() else { return Outcome::NotBegun };
        // Of a start that failed, with the gate just opened to end this thread.
        if core.is_stopping() {
            return Outcome::NotBegun;
        }
        let node = core.node(self.node);
        if core.devices.compact_compressed() {
            core.settle_stored(node);
        }
        if wants_reclaim(node) {
            self.reclaim_batch(node)
        } else {
            (self.round, self.pass) = (None, Pass::default());
            core.end_turn_if_balanced(node, node.lock().pressure());
            Outcome::Balanced
        }
    }

    /// One batch of the round's present pass, or of a new round.
    fn reclaim_batch(&mut self, node: &Node) -> Outcome {
        let (high, counts, owed) = {
            let mut state = node.lock();
            self.blocks.ways.on_returns(state.workingset.returns.take());
            (state.watermarks.high, state.counts(), state.debt)
        };
        if self.round.is_none() {
            self.core.member.get().into_iter().for_each(|member| member.wake_if_idle());
        }
        let round = self.round.get_or_insert_with(|| Round::background(high));
        if self.pass.left == 0 {
            let scan = round.scan(counts.inactive + counts.active, BATCH as u32);
            self.pass = Pass { left: scan, ..Pass::default() };
        }
        let quota = Quota { scan: self.pass.left.min(SCAN_MAX), unmap: BATCH };
        let batch = self.unmap(node, quota);
        count(&self.core.counters.pgscan_kswapd, u64::from(batch.scanned));
        count(&self.core.counters.pgsteal_kswapd, u64::from(batch.unmapped));
        self.core.shrink_caches(node.id, batch.scanned, counts.inactive + counts.active);
        let put_back = self.write(node);
        self.settle_block(node, put_back);
        self.core.repay(node, self.core.payment_after(batch.unmapped, put_back, owed));
        self.pass.scanned += batch.scanned;
        self.pass.reclaimed += batch.unmapped - put_back;
        // A pass ends early when the list does.
        self.pass.left = match batch.scanned {
            0 => 0,
            scanned => self.pass.left.saturating_sub(scanned),
        };
        let outcome = if self.pass.left == 0 { self.end_pass(node) } else { Outcome::GoesOn };
        if put_back > 0 && outcome != Outcome::Hopeless { Outcome::Stuck } else { outcome }
    }

    /// Unmaps a batch, in the way that costs less.
    fn unmap(&mut self, node: &Node, quota: Quota) -> Reclaimed {
        let (core, unmapper) = (self.core.clone(), Unmapper::Background(node.id.0));
        let block = core.unmap_block(node, &mut self.blocks, &mut self.scratch);
        let taken_ns = block.map_or(0, |_| clock::now_ns());
        node.block_taken_ns.store(taken_ns, Ordering::Relaxed);
        block.unwrap_or_else(|| {
            let start = clock::thread_cpu_ns();
            let batch = core.unmap_batch(node, quota, unmapper, &mut self.scratch);
            self.blocks.ways.on_batch(Way::Runs, batch.unmapped, clock::thread_cpu_ns() - start);
            let travel = if core.path == Path::Move { Travel::Moved } else { Travel::Copied };
            self.blocks.ways.on_runs(batch.unmapped, batch.along, travel);
            batch
        })
    }

    /// Tells the ways how the batch has ended.
    fn settle_block(&mut self, node: &Node, put_back: u32) {
        if put_back > 0 {
            self.blocks.ways.on_refused();
            // Nothing to wait for: faults look for themselves what is to be done.
            node.block_taken_ns.store(0, Ordering::Relaxed);
        } else if node.block_taken_ns.load(Ordering::Relaxed) != 0 {
            self.blocks.ways.on_taken();
        }
    }

    /// A pass is over: what the round says comes next.
    fn end_pass(&mut self, node: &Node) -> Outcome {
        let round = self.round.as_mut().expect("a pass belongs to a round");
        let next = round.on_pass(self.pass.scanned, self.pass.reclaimed);
        self.pass = Pass::default();
        tell_of_held(node);
        let mut state = node.lock();
        state.priority = round.priority();
        match next {
            Next::Pass => Outcome::GoesOn,
            Next::Over => {
                state.health.on_progress();
                self.round = None;
                Outcome::GoesOn
            }
            Next::Failed => {
                state.health.on_failure();
                let is_hopeless = state.health.is_hopeless();
                drop(state);
                self.round = None;
                count(&self.core.counters.kswapd_failures, 1);
                match is_hopeless && self.give_up(node) == GivenUp::Before {
                    true => Outcome::Hopeless,
                    false => Outcome::Stuck,
                }
            }
        }
    }

    /// The node is hopeless: its reclaimer is not woken until there is progress. What has happened until here nobody has
    /// told it, so it tries once more before it sleeps.
    fn give_up(&self, node: &Node) -> GivenUp {
        self.core.end_turn(node, TurnEvent::GivesUp);
        self.core.shortage.hopeless.fetch_add(1, Ordering::SeqCst);
        if node.hopeless.swap(true, Ordering::SeqCst) {
            self.core.shortage.hopeless.fetch_sub(1, Ordering::SeqCst);
            return GivenUp::Before;
        }
        GivenUp::Now
    }

    /// Starts writes for all dirty pages of the batch, waiting for an idle write when there is none. Returns how
    /// many pages no device would take.
    fn write(&mut self, node: &Node) -> u32 {
        let mut done = 0;
        while done < self.scratch.victims().len() {
            let Some(index) = self.idle.pop() else {
                self.queue.wait();
                self.finish_completed();
                continue;
            };
            let write = &mut self.writes[index];
            let prepared =
                self.core.prepare_write(node, node.id, &self.scratch.victims()[done..], write);
            if prepared == 0 {
                self.idle.push(index);
                let left = &self.scratch.victims()[done..];
                self.core.put_back(node, left);
                return left.len() as u32;
            }
            done += prepared;
            self.start_write(index);
        }
        0
    }

    fn start_write(&mut self, index: usize) {
        self.in_flight[index] = Some(InFlight::new(&self.core));
        self.submit(index, 0);
    }

    /// Starts the request of a write, not before a moment.
    fn submit(&mut self, index: usize, not_before_ns: u64) {
        let write = &self.writes[index];
        let request = self.core.write_request(write, self.node, not_before_ns);
        match self.queue.carries(&request.backing) {
            true => self.queue.start(&request, &write.pieces, index as u64),
            false => {
                let outcome = request.transfer(&write.pieces);
                self.complete(Completion { token: index as u64, outcome });
            }
        }
    }

    /// Finishes the writes that have completed.
    fn finish_completed(&mut self) {
        while let Some(completion) = self.queue.finished() {
            self.complete(completion);
        }
    }

    fn complete(&mut self, Completion { token, outcome }: Completion) {
        let again = self.core.write_again(&mut self.writes[token as usize], &outcome);
        if let Some(moment) = again {
            return self.submit(token as usize, moment);
        }
        let write = &self.writes[token as usize];
        // All frames of a write are of one node.
        let node = self.core.node_of_frame(write.first_frame());
        self.core.finish_write(node, write, outcome);
        self.in_flight[token as usize] = None;
        self.idle.push(token as usize);
    }

    /// Waits for a completion or for being woken: after a pass without success not for long, and after
    /// the high watermark was reached first for a moment, as the kernel does, to see whether it lasts.
    fn sleep(&mut self, outcome: Outcome) {
        let core = self.core.clone();
        let node = core.node(self.node);
        node.reclaim_awake.store(false, Ordering::SeqCst);
        let inside = core.gate.try_enter();
        let open = inside.is_some();
        // A thread that found the node low before that store did not signal: look again.
        let missed = open && !self.idle.is_empty() && wants_reclaim(node);
        if let Some(inside) = inside {
            core.end_turn(node, TurnEvent::Sleeps);
            drop(inside);
        }
        let full = core.shortage.devices_full.load(Ordering::Relaxed);
        // Progress that was noted before that store did not signal either.
        let hopeless = outcome == Outcome::Hopeless && node.hopeless.load(Ordering::SeqCst);
        match outcome {
            _ if !open => _ = self.wait(REST_MS),
            _ if hopeless => _ = self.wait(-1),
            Outcome::Stuck | Outcome::Hopeless => {
                _ = self.wait(if full { REST_FULL_MS } else { REST_MS })
            }
            _ if missed => {}
            Outcome::Balanced if self.queue.in_flight() == 0 => self.sleep_balanced(node),
            _ => _ = self.wait(-1),
        }
        node.reclaim_awake.store(true, Ordering::SeqCst);
    }

    /// Sleeps until woken; counts whether the watermarks were hit again within a moment.
    fn sleep_balanced(&mut self, node: &Node) {
        if self.wait(BALANCED_MS) == Woken::Yes {
            return count(&self.core.counters.kswapd_low_wmark_hit_quickly, 1);
        }
        let again = self.core.gate.try_enter().map(|_inside| wants_reclaim(node));
        match again {
            Some(true) => count(&self.core.counters.kswapd_high_wmark_hit_quickly, 1),
            Some(false) => _ = self.wait(-1),
            None => {}
        }
    }

    /// Waits for a completion, for being woken, or for the time to pass; -1 is for ever.
    fn wait(&mut self, timeout_ms: i32) -> Woken {
        let wanted = &self.core.node(self.node).reclaim_wanted;
        let ready = fd::poll(&[wanted.as_raw_fd(), self.queue.as_raw_fd(), -1], timeout_ms);
        if !ready[0] {
            // Nothing is cleared: a signal that comes just now is for the next wait.
            return Woken::No;
        }
        wanted.clear();
        Woken::Yes
    }
}

/// Whether the reclaimer was woken, rather than its time over or a write completed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Woken {
    Yes,
    No,
}

/// How far the present pass of a round has come, in pages.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    /// Still to be looked at.
    left: u32,
    scanned: u32,
    /// Unmapped and not mapped again.
    reclaimed: u32,
}

/// When a node was given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum GivenUp {
    /// After the round that has just failed.
    Now,
    /// Before it: nothing has happened since.
    Before,
}

/// How a pass over a node ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Outcome {
    /// No write is idle, or the gate is closed.
    NotBegun,
    /// There was nothing to do.
    Balanced,
    /// A round reclaimed nothing, or no device had room.
    Stuck,
    /// A round reclaimed nothing, after the node had been given up already.
    Hopeless,
    /// There is more to do.
    GoesOn,
}

/// Starts the reclaimer of one of an engine's nodes, on that node's CPUs.
///
/// # Errors
/// No thread or no queue to be had.
pub fn start(core: Arc<Core>, node: NodeId) -> Result<Thread, Error> {
    let mut queue = Queue::new(core.tuning.io, DEPTH as u32).map_err(Error::Thread)?;
    core.threads.note_queue(&mut queue);
    let mut kswapd = Kswapd {
        core,
        node,
        queue,
        writes: (0..DEPTH).map(|_| Box::new(WriteOp::new())).collect(),
        in_flight: (0..DEPTH).map(|_| None).collect(),
        idle: (0..DEPTH).collect(),
        scratch: Box::new(Scratch::new()),
        blocks: Blocks::new(),
        round: None,
        pass: Pass::default(),
        changes_seen: 0,
    };
    Thread::spawn(&format!("userswapd{}", node.0), move || kswapd.run()).map_err(Error::Thread)
}

/// A mebibyte: less is not worth a line.
const HELD_MIN: u32 = (1 << 20) / PAGE_BYTES as u32;

/// Whether the node, once all writes under way have finished, would still not be above its high watermark.
fn wants_reclaim(node: &Node) -> bool {
    let state = node.lock();
    state.debt > 0 || state.available() + state.writing <= state.watermarks.high
}

/// Says, once, that a program goes round in the little of its budget that can leave.
fn tell_of_held(node: &Node) {
    let (held, budget) = {
        let state = node.lock();
        let others = state.charged + state.stored;
        (state.lists.len(ListId::Unevictable), state.budget.saturating_sub(others))
    };
    if held >= HELD_MIN && held > budget / 8 * 7 {
        log::little_can_leave((u64::from(held) * PAGE_BYTES as u64) >> 20);
    }
}
