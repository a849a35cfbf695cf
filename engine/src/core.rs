//! The engine's parts in one place, and what all of them need: addresses, publishing, waking.
//!
//! The acts are in files of their own: `transfer` (moving pages in and out), `fault`, `swap_in`,
//! `reclaim`, `write_back`, `range` (what a program asks for), and the threads `kswapd` and `server`.
use crate::ahead::Wants;
use crate::arena::{Arena, PageRange};
use crate::batch::GAP_MAX;
use crate::checksum::Checksums;
use crate::counters::Counters;
use crate::device::{Devices, SlotSpan};
use crate::error::Error;
use crate::gate::Gate;
use crate::jobs::Jobs;
use crate::node::Node;
use crate::nodes;
use crate::options::{FaultMode, IoBackend, OnFull, Transfer};
use crate::page::{FrameIndex, PageIndex, PageState, PageTable, Slot, Waiters};
use crate::readahead::{Readahead, Settings};
use crate::reclaim::Scratch;
use crate::removal::Removal;
use crate::shrinker::Shrinkers;
use crate::sys::PAGE_BYTES;
use crate::sys::clock;
use crate::sys::fd::Event;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Access, Mapping, ZeroedSlice};
use crate::sys::uffd::{Rights, Uffd, feature};
use crate::topology::Topology;
use crate::watermarks::Marks;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering};
use userswap_policy::readahead::Limits;
use userswap_policy::stream::Streams;

/// Pages served at once to a sequential program, and mapped by one call.
pub const RUN_MAX: u32 = 64;
/// Pages of zeros for one sequential first touch: the program goes on after the first run while the server
/// maps the others.
pub const ZERO_RUN_MAX: u32 = 256;
/// Pages of the first window of a stream of reads: of two faults that are neighbours by chance, as those of
/// a random reader of few data are now and then, it wastes one page.
const READ_FIRST: u32 = 2;
/// As [`READ_FIRST`], for first touches, where nothing is read.
const ZERO_FIRST: u32 = 4;
/// Pages of the largest asynchronous readahead window: 4 MiB.
pub const AHEAD_MAX: u32 = 1024;
/// Threads that may reclaim directly at once; more wait for one of them.
const DIRECT_RECLAIMERS: usize = 4;

/// What an engine is built from.
#[derive(Clone, Debug)]
pub struct Tuning {
    /// How faults are delivered.
    pub fault: FaultMode,
    /// How pages travel.
    pub transfer: Transfer,
    /// How devices are driven.
    pub io: IoBackend,
    /// What happens when no device has room.
    pub on_full: OnFull,
    /// Physical pages allowed on each node.
    pub budgets: Vec<u32>,
    /// Readahead at the start.
    pub readahead: Settings,
}

/// How pages travel, after probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// UFFDIO_MOVE, with copying where the kernel refuses.
    Move,
    /// UFFDIO_COPY in; write protection, copy and MADV_DONTNEED out.
    Copy,
}

/// The state of a frame's write, next to the page word that points to it.
pub mod frame_flag {
    /// Nothing under way.
    pub const IDLE: u8 = 0;
    /// The device reads from the frame.
    pub const WRITING: u8 = 1;
    /// The page has gone elsewhere; who finishes the write frees frame and slot.
    pub const ORPHAN: u8 = 2;
    /// The write has finished, but the page has gone; who takes it frees frame and slot.
    pub const FINISHED: u8 = 3;
    /// As FINISHED, but the device refused: the slot is bad.
    pub const FAILED: u8 = 4;
}

/// One engine.
pub struct Core {
    /// Address space of the regions.
    pub arena: Arc<Arena>,
    /// One word per page.
    pub pages: PageTable,
    /// One flag per frame.
    pub frame_flags: ZeroedSlice<AtomicU8>,
    /// The machine.
    pub topology: Topology,
    /// The nodes; a frame's number tells its node.
    pub nodes: Vec<Node>,
    /// The kernel's side.
    pub uffd: Uffd,
    /// Where pages go.
    pub devices: Devices,
    /// Tells clean from changed.
    pub checksums: Checksums,
    /// What happened.
    pub counters: Counters,
    /// Closed by fork.
    pub gate: Gate,
    /// Faults that follow each other.
    pub streams: Lock<Streams>,
    /// Readahead: the policies' settings and state.
    pub readahead: Readahead,
    /// Memory for reads under way.
    pub jobs: Jobs,
    /// What the server is to read that nobody waits for.
    pub wants: Wants,
    /// What it was built with.
    pub tuning: Tuning,
    /// How pages travel.
    pub path: Path,
    /// Counts frames becoming free; waited on by who finds none.
    pub freed: AtomicU32,
    /// Everything was paged out, and nobody has asked for it since.
    pub hibernated: AtomicBool,
    /// Somebody adds or removes a device.
    pub changing_devices: AtomicBool,
    /// Held by who changes the budget, or the marks.
    pub budget_change: Lock<()>,
    /// What decides about the watermarks.
    pub marks: Lock<Marks>,
    /// Who takes pages out where.
    pub removal: Removal,
    /// The program's caches.
    pub shrinkers: Shrinkers,
    /// Nodes whose reclaimers nobody wakes.
    pub hopeless: AtomicU32,
    /// Pins on all pages together: what must stay bounds what can be pinned.
    pub pins: AtomicU32,
    /// Descriptors of the threads' queues: a forked child has none of those threads.
    pub queue_fds: Lock<Vec<RawFd>>,
    /// Wakes the server for readahead.
    pub server_wanted: Event,
    /// The threads end.
    pub stopping: AtomicBool,
    /// A device was full the last time one was asked.
    pub devices_full: AtomicBool,
    /// Warned about the budget once.
    pub warned_full: AtomicBool,
    pub(crate) scratch: [Lock<Box<Scratch>>; DIRECT_RECLAIMERS],
    frames: Mapping,
    zeros: Mapping,
    /// Where slots go that are read over.
    gap: Mapping,
}

impl Core {
    /// Builds an engine for `arena`; its gate is closed and nothing is registered yet.
    ///
    /// # Errors
    /// userfaultfd not allowed, no memory for the books.
    pub fn new(
        arena: Arc<Arena>,
        devices: Devices,
        tuning: Tuning,
        topology: Topology,
    ) -> Result<Self, Error> {
        let rights = if Uffd::features_of(Rights::Kernel).is_ok() {
            Rights::Kernel
        } else {
            Rights::UserOnly
        };
        let required = if tuning.fault == FaultMode::Signal { feature::SIGBUS } else { 0 };
        let wished = feature::MOVE | feature::POISON | feature::WRITEPROTECT | feature::THREAD_ID;
        let uffd = Uffd::open(required, wished, rights).map_err(Error::Userfaultfd)?;
        let path = choose_path(&uffd, tuning.transfer)?;
        let pages = arena.pages();
        let nodes = nodes::build(&tuning.budgets, pages)?;
        let positions: u32 = nodes.iter().map(Node::positions).sum();
        let books = |error| Error::Books(error);
        let frames =
            Mapping::new(positions as usize * PAGE_BYTES, Access::ReadWrite).map_err(books)?;
        let core = Self {
            pages: PageTable::new(pages).map_err(books)?,
            frame_flags: ZeroedSlice::new(positions as usize).map_err(books)?,
            shrinkers: Shrinkers::new(nodes.len()),
            nodes,
            topology,
            uffd,
            devices,
            checksums: Checksums::new(),
            counters: Counters::default(),
            gate: Gate::default(),
            streams: Lock::new(Streams::new()),
            path,
            freed: AtomicU32::new(0),
            hibernated: AtomicBool::new(false),
            changing_devices: AtomicBool::new(false),
            budget_change: Lock::new(()),
            marks: Lock::new(Marks::default()),
            removal: Removal::new(),
            hopeless: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            queue_fds: Lock::new(Vec::new()),
            server_wanted: Event::new().map_err(books)?,
            stopping: AtomicBool::new(false),
            devices_full: AtomicBool::new(false),
            warned_full: AtomicBool::new(false),
            scratch: std::array::from_fn(|_| Lock::new(Box::new(Scratch::new()))),
            readahead: Readahead::new(tuning.readahead, pages).map_err(books)?,
            jobs: Jobs::new(),
            wants: Wants::new(),
            gap: Mapping::new(GAP_MAX as usize * PAGE_BYTES, Access::ReadWrite).map_err(books)?,
            zeros: Mapping::new(RUN_MAX as usize * PAGE_BYTES, Access::ReadWrite).map_err(books)?,
            frames,
            arena,
            tuning,
        };
        core.gate.close();
        core.bind_frames();
        core.prepare_memory().map_err(books)?;
        Ok(core)
    }

    /// Small pages only, nothing of the pool in core dumps, no arena for a child made past us.
    fn prepare_memory(&self) -> std::io::Result<()> {
        let bytes = self.frames.bytes();
        // Kernels built without transparent huge pages refuse the advice: there is nothing to advise then.
        let _ = self.frames.advise(0, bytes, libc::MADV_NOHUGEPAGE);
        let _ = self.arena.advise(libc::MADV_NOHUGEPAGE);
        self.frames.advise(0, bytes, libc::MADV_DONTDUMP)?;
        // Read once, so that the source of zeros is mapped to the shared zero page.
        crate::sys::pages::touch(self.zeros.address(), RUN_MAX as usize);
        self.arena.advise(libc::MADV_DONTFORK)
    }

    /// Registers both ends: from then on every missing page waits for a handler.
    ///
    /// # Errors
    /// What the kernel says.
    pub fn register(&self) -> std::io::Result<()> {
        self.uffd.register(self.frames.address(), self.frames.bytes())?;
        self.uffd.register(self.arena.address(), self.arena.bytes())
    }

    /// With the gate closed and nobody inside, the books balance and no page is in transition.
    pub fn assert_quiet(&self) {
        for node in &self.nodes {
            let state = node.lock();
            assert!(state.is_balanced(), "the books of node {} balance", node.id.0);
            assert_eq!(state.writing, 0, "no write of node {} is under way", node.id.0);
        }
    }

    /// The address of a page.
    pub fn page_address(&self, page: PageIndex) -> usize {
        self.arena.address_of(page)
    }

    /// The address of a frame.
    pub fn frame_address(&self, frame: FrameIndex) -> usize {
        assert!((frame as usize) < self.frame_flags.len(), "the frame is in the pool");
        self.frames.address() + frame as usize * PAGE_BYTES
    }

    /// Where `RUN_MAX` pages of zeros are.
    pub fn zeros_address(&self) -> usize {
        self.zeros.address()
    }

    /// Where slots are read to that lie between wanted ones; nobody looks at what is there.
    pub fn gap_address(&self) -> usize {
        self.gap.address()
    }

    /// Ends the ownership of a page with its next state, and wakes who waited.
    pub fn publish(&self, page: PageIndex, state: PageState) {
        if self.pages.publish(page, state) == Waiters::Some {
            self.wake_faults(PageRange { first: page, count: 1 });
        }
    }

    /// Lets faults in a range be tried again.
    pub fn wake_faults(&self, range: PageRange) {
        if self.tuning.fault == FaultMode::Thread {
            self.uffd.wake(self.page_address(range.first), range.count as usize * PAGE_BYTES);
        }
    }

    /// Frees consecutive slots of one device.
    pub fn free_slots(&self, span: SlotSpan) {
        // A device that is going takes nothing in their place.
        let gives_room = !self.devices.is_leaving(span.first);
        self.devices.free(span);
        if gives_room {
            self.devices_full.store(false, Ordering::Relaxed);
            self.note_progress();
        }
    }

    /// Frees one slot.
    pub fn free_slot(&self, slot: Slot) {
        self.free_slots(SlotSpan { first: slot, count: 1 });
    }

    /// Tells who waits for frames that some may have become free.
    pub fn announce_freed(&self) {
        self.note_progress();
        self.freed.fetch_add(1, Ordering::Release);
        crate::sys::futex::wake_all(&self.freed);
    }

    /// How far windows may grow.
    pub fn limits(&self) -> Limits {
        // A budget of a few megabytes must not be emptied by one window.
        let room = self.window_room();
        let page_cluster = self.readahead.settings().page_cluster;
        let (run_max, ahead_max) = (RUN_MAX.min(room), AHEAD_MAX.min(room));
        Limits { page_cluster, run_first: READ_FIRST, run_max, ahead_max }
    }

    fn window_room(&self) -> u32 {
        self.tuning.budgets.iter().min().map_or(1, |budget| (budget / 32).max(1))
    }

    /// How far first touches may run ahead of the program.
    pub fn zero_limits(&self) -> Limits {
        let room = self.window_room();
        let run_max = ZERO_RUN_MAX.min(room);
        Limits { page_cluster: 0, run_first: ZERO_FIRST, run_max, ahead_max: 0 }
    }

    /// The scratch memory of this thread's direct reclaim.
    pub(crate) fn scratch(&self) -> &Lock<Box<Scratch>> {
        &self.scratch[clock::thread_id() as usize % DIRECT_RECLAIMERS]
    }

    /// Ends all threads.
    pub fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.nodes.iter().for_each(|node| node.reclaim_wanted.signal());
        self.server_wanted.signal();
        self.shrinkers.wake();
    }

    /// Whether the threads should end.
    pub fn is_stopping(&self) -> bool {
        self.stopping.load(Ordering::Acquire)
    }
}

fn choose_path(uffd: &Uffd, wanted: Transfer) -> Result<Path, Error> {
    match (wanted, uffd.has(feature::MOVE)) {
        (Transfer::Auto | Transfer::Move, true) => Ok(Path::Move),
        (Transfer::Auto, false) | (Transfer::Copy, _) => Ok(Path::Copy),
        (Transfer::Move, false) => Err(Error::NoMove),
    }
}
