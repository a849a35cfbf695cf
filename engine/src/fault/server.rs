//! The server: a thread that reads fault messages, serves them, and does all reading ahead.
//!
//! It never waits for a device while other faults could be served: reads are started, and finished when
//! they complete. What is in memory it copies itself; if the kernel has swapped that out, it waits for the kernel. In `signal` mode no messages arrive and only readahead is left. What a fault needs is `handle.rs`'s
//! to say, and what of a want there is to read `wants.rs`'s.
use crate::base::choice::FaultMode;
use crate::base::error::Error;
use crate::base::index::PageIndex;
use crate::base::limits::AHEAD_MAX;
use crate::device::queue::{Completion, Queue};
use crate::device::request::Backing;
use crate::fault::handle::Step;
use crate::fault::messages::Messages;
use crate::fault::waiting::Waiting;
use crate::fault::wants::Started;
use crate::state::batch::Batch;
use crate::state::core::Core;
use crate::state::gate::{Gate, Inside};
use crate::state::in_flight::InFlight;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::reads::ReadJob;
use crate::state::waits::{Wait, Waited};
use crate::state::wants::{Span, WANTS_MAX, Want};
use crate::sys::thread::Thread;
use crate::sys::uffd::{FAULTS_MAX, Fault};
use crate::sys::{clock, fd};
use std::collections::VecDeque;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use userswap_policy::servers::{Backlog, told_at_once};

/// Reads in flight at most; a fault beyond that reads at once.
const DEPTH: usize = 32;

/// Reads in flight with which readahead starts no more, so that faults find room.
const DEPTH_AHEAD: usize = 24;

/// How the work on a want ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pursuit {
    /// All of it is there or coming.
    Done,
    /// Other wants may go on.
    LongEnough,
    /// Its node has no frames to spare.
    NoFrames,
    /// No more reads may be in flight.
    NoRoom,
}

/// A read in flight.
struct Reading {
    job: ReadJob,
    /// When its fault arrived; None for readahead.
    since_ns: Option<u64>,
    in_flight: InFlight,
}

struct Server {
    core: Arc<Core>,
    queue: Queue,
    reading: Vec<Option<Reading>>,
    idle: Vec<usize>,
    messages: Messages,
    backlog: Backlog,
    /// What is wanted ahead, in turns.
    wants: VecDeque<Want>,
    waiting: Waiting,
}

impl Server {
    fn run(&mut self) {
        let by_message = self.core.tuning.fault == FaultMode::Thread;
        let uffd = if by_message { self.core.uffd.as_raw_fd() } else { -1 };
        let mut faults = [Fault::default(); FAULTS_MAX];
        // A sleep that a device has ended says so: reading messages then would find none.
        let mut may_have_faults = by_message;
        while !self.core.are_servers_stopping() {
            // What is read here no helper finds.
            let most = if self.core.threads.is_helped() { 1 } else { FAULTS_MAX };
            let arrived =
                if may_have_faults { self.core.uffd.read(&mut faults[..most]) } else { 0 };
            if self.backlog.on_look(faults[..arrived].iter().map(|fault| fault.thread)) {
                self.core.threads.wake_helper();
            }
            self.serve_all(&faults[..arrived]);
            let mut busy = arrived > 0;
            busy |= self.finish_completed() > 0;
            // Who wants something ahead signals it, which ends the sleep: until then it can wait.
            busy |= (busy || !self.waiting.is_looking()) && self.read_ahead();
            may_have_faults = by_message;
            match busy {
                true => self.waiting.found(&self.core),
                false
                    if by_message && self.waiting.looks_on(&self.core, self.queue.in_flight()) => {}
                false => may_have_faults = self.sleep(uffd),
            }
        }
        while self.queue.in_flight() > 0 {
            self.wait_for_reads();
        }
    }

    /// Sleeps until there is something to do; whether that is faults.
    fn sleep(&self, uffd: RawFd) -> bool {
        let wanted = &self.core.threads.server_wanted;
        let [has_faults, _, is_wanted] =
            fd::poll(&[uffd, self.queue.as_raw_fd(), wanted.as_raw_fd()], -1);
        if is_wanted {
            wanted.clear();
        }
        has_faults
    }

    /// What they read the device is told of in groups.
    fn serve_all(&mut self, faults: &[Fault]) {
        let outstanding = self.queue.in_flight() as usize + faults.len();
        self.queue.begin_groups(told_at_once(outstanding));
        for fault in faults {
            self.serve(*fault);
        }
        self.queue.end_groups();
    }

    fn serve(&mut self, fault: Fault) {
        let core = self.core.clone();
        let since = clock::now_ns();
        let _inside = self.enter(&core.gate);
        core.note_density(since);
        self.make_sure_of_room();
        let near = self.messages.node_of(&core, fault.thread);
        let page = core.arena.page_of(fault.address);
        let wait = Wait { waited: Waited::Page(page), thread: fault.thread, since_ns: since };
        match core.handle_fault(page, fault.access, core.node(near)) {
            Step::Done => core.counters.latency.record(clock::now_ns() - since),
            Step::Busy => self.wait_with_read(page, wait),
            Step::Read(job) => {
                core.note_read_waits(&job, wait);
                self.start(job, Some(since));
            }
            Step::Foreign => self.messages.refuse(&core, fault),
        }
    }

    /// Another thread owns the page. Where that is one of our own reads ahead, the thread waits for the device.
    fn wait_with_read(&self, page: PageIndex, wait: Wait) {
        let core = &self.core;
        let brings = |reading: &&Reading| {
            let record = core.reads.record(&reading.job);
            record.batch.index_of(page).is_some()
        };
        let is_read = matches!(core.pages.state(page), PageState::Filling { slot: Some(_) });
        let reading = self.reading.iter().flatten().filter(|_| is_read).find(brings);
        let is_noted = reading.is_some_and(|reading| core.note_read_waits(&reading.job, wait));
        if !is_noted {
            core.note_fault_waits(wait);
        }
    }

    /// Serving a fault may wait for a page; what this thread is reading itself would never come then.
    fn make_sure_of_room(&mut self) {
        let has_room = |node: &Node| {
            let state = node.lock();
            state.available() > state.watermarks.min
        };
        let core = self.core.clone();
        let mut waiting = None;
        while self.queue.in_flight() > 0 && !core.nodes.iter().any(has_room) {
            waiting.get_or_insert_with(|| core.wait_for_frame());
            self.wait_for_reads();
        }
    }

    /// Comes in through the gate; closing it waits for our reads, so they are finished meanwhile.
    fn enter<'g>(&mut self, gate: &'g Gate) -> Inside<'g> {
        loop {
            if let Some(inside) = gate.try_enter() {
                return inside;
            }
            if self.queue.in_flight() == 0 {
                return gate.enter();
            }
            self.wait_for_reads();
        }
    }

    /// Starts a read, or, with all in flight or from memory for a fault, reads at once. `since_ns` is when its fault arrived.
    fn start(&mut self, job: ReadJob, since_ns: Option<u64>) {
        let backing = self.core.backing_of(&job);
        // A ring has a thread of the kernel's copy from memory: a thread that waits would wait for two wake-ups more.
        let is_at_once = since_ns.is_some() && matches!(backing, Backing::Memory);
        let is_queued = !is_at_once && self.queue.carries(&backing);
        let Some(index) = self.idle.pop_if(|_| is_queued) else {
            self.core.read_now(job);
            return self.record_latency(since_ns);
        };
        let in_flight = InFlight::new(&self.core);
        self.submit(index, &job, 0);
        self.reading[index] = Some(Reading { job, since_ns, in_flight });
    }

    /// Starts the request that a read is at, not before a moment.
    fn submit(&mut self, index: usize, job: &ReadJob, not_before_ns: u64) {
        let record = self.core.reads.record(job);
        let request = self.core.read_request(&record, not_before_ns);
        self.queue.start(&request, &record.pieces, index as u64);
    }

    /// Waits for at least one read, and finishes what has completed.
    fn wait_for_reads(&mut self) {
        self.queue.wait();
        self.finish_completed();
    }

    /// Finishes what has completed; returns how many reads.
    fn finish_completed(&mut self) -> u32 {
        let mut finished = 0;
        while let Some(completion) = self.queue.finished() {
            self.finish(completion);
            finished += 1;
        }
        finished
    }

    fn finish(&mut self, completion: Completion) {
        let index = completion.token as usize;
        let reading = self.reading[index].take().expect("a completion belongs to a read");
        if let Some(moment) = self.core.next_request(&reading.job, &completion.outcome) {
            // Not waited for here: other faults are served meanwhile.
            self.submit(index, &reading.job, moment);
            self.reading[index] = Some(reading);
            return;
        }
        self.idle.push(index);
        self.core.finish_read(reading.job);
        self.record_latency(reading.since_ns);
        drop(reading.in_flight);
    }

    fn record_latency(&self, since_ns: Option<u64>) {
        if let Some(since) = since_ns {
            self.core.counters.latency.record(clock::now_ns() - since);
        }
    }

    /// Goes on with what is wanted ahead; false when there was nothing to start.
    fn read_ahead(&mut self) -> bool {
        let core = self.core.clone();
        let _inside = self.enter(&core.gate);
        let mut busy = false;
        while let Some(want) = self.core.wants.take() {
            if self.wants.len() == WANTS_MAX {
                let oldest = self.wants.pop_front().expect("there are that many");
                self.core.drop_want(&oldest);
            }
            self.wants.push_back(want);
        }
        // Each gets its turn once: one that lacks frames does not hold up those of other nodes.
        for _ in 0..self.wants.len() {
            let Some(mut want) = self.wants.pop_front() else { break };
            let before = self.queue.in_flight();
            let pursuit = self.pursue(&mut want);
            busy |= self.queue.in_flight() > before;
            match pursuit {
                Pursuit::Done => {}
                // There is more to look at, also when nothing of this was to be read.
                Pursuit::LongEnough => {
                    busy = true;
                    self.wants.push_back(want);
                }
                // A stream will come there; everything else is not worth making room for.
                Pursuit::NoFrames => match want.span {
                    Span::Ahead(_) => self.wants.push_back(want),
                    Span::Run { .. } | Span::Pages(_) | Span::Slots(_) => {}
                },
                Pursuit::NoRoom => {
                    self.wants.push_front(want);
                    break;
                }
            }
        }
        busy
    }

    /// Starts reads for a want, as far as they may.
    fn pursue(&mut self, want: &mut Want) -> Pursuit {
        let enough = want.done.saturating_add(AHEAD_MAX);
        while let Some((mut batch, after)) = self.core.next_of(want) {
            while batch.len() > 0 {
                if DEPTH - self.idle.len() >= DEPTH_AHEAD {
                    return Pursuit::NoRoom;
                }
                let Some(started) = self.start_first_of(want, &batch) else {
                    return Pursuit::NoFrames;
                };
                if let Some(job) = started.job {
                    self.start(job, None);
                }
                batch.keep(started.entries, batch.len() - started.entries);
            }
            want.done = after;
            if want.done >= enough && want.done < want.len() {
                return Pursuit::LongEnough;
            }
        }
        Pursuit::Done
    }

    /// Claims the first entries of a batch; None without frames, and then freeing some wakes this thread.
    fn start_first_of(&self, want: &Want, batch: &Batch) -> Option<Started> {
        let start = || self.core.start_ahead(batch, want);
        start().or_else(|| {
            self.core.wake_reclaim(self.core.node(want.node));
            self.core.starve();
            // Some may have become free before that call.
            start()
        })
    }
}

/// Starts the server of an engine; it ends when the engine stops and its reads have completed.
///
/// # Errors
/// No thread or no queue to be had.
pub fn start(core: Arc<Core>) -> Result<Thread, Error> {
    let mut queue = Queue::new(core.tuning.io, DEPTH as u32).map_err(Error::Thread)?;
    core.threads.note_queue(&mut queue);
    let mut server = Server {
        core,
        queue,
        reading: (0..DEPTH).map(|_| None).collect(),
        idle: (0..DEPTH).collect(),
        messages: Messages::default(),
        backlog: Backlog::default(),
        wants: VecDeque::with_capacity(WANTS_MAX),
        waiting: Waiting::default(),
    };
    Thread::spawn("userswap-fault", move || server.run()).map_err(Error::Thread)
}
