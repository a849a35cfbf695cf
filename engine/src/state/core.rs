//! One engine: its parts, and where things are (addresses, nodes).
use crate::base::checksum::Checksums;
use crate::base::choice::{FaultMode, IoBackend, OnFull, Transfer};
use crate::base::counters::Counters;
use crate::base::error::Error;
use crate::base::index::{FrameIndex, NodeId, PageIndex, PageRange};
use crate::base::topology::Topology;
use crate::device::Devices;
use crate::device::compress::Compress;
use crate::job::member::Member;
use crate::state::arena::Arena;
use crate::state::blocks::PutBacks;
use crate::state::clean::CleanPages;
use crate::state::demotion::Demotion;
use crate::state::frame_flag::FrameFlags;
use crate::state::gate::Gate;
use crate::state::memory::Memory;
use crate::state::node::Node;
use crate::state::page::PageTable;
use crate::state::polling::Polling;
use crate::state::readahead::{Readahead, Settings};
use crate::state::readers::Readers;
use crate::state::reads::Reads;
use crate::state::scratch::Scratch;
use crate::state::shares;
use crate::state::shrinkers::Shrinkers;
use crate::state::staging::Staging;
use crate::state::threads::Threads;
use crate::state::trace::{Trace, TraceFile};
use crate::state::unmap_lock::UnmapLocks;
use crate::state::waits::Waits;
use crate::state::wake::Shortage;
use crate::state::wants::Wants;
use crate::state::watermarks::WatermarkSettings;
use crate::sys::lock::Lock;
use crate::sys::own_memory::OwnMemory;
use crate::sys::own_process::OwnProcess;
use crate::sys::uffd::{Rights, Uffd, feature};
use crate::sys::{PAGE_BYTES, clock, filters, numa, scattered};
use std::sync::atomic::{AtomicBool, AtomicU8};
use std::sync::{Arc, OnceLock};
use userswap_policy::block::ReclaimWay;
use userswap_policy::polling::Poll;
use userswap_policy::stream::Streams;

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
    /// How the server waits at the start.
    pub poll: Poll,
    /// What happens when no device has room.
    pub on_full: OnFull,
    /// Whether devices that are added are encrypted, whatever is said of them.
    pub encrypt: bool,
    /// How much memory compressed pages may take, where there is such memory in front of all devices.
    pub compress: Option<Compress>,
    /// Physical pages allowed on each node.
    pub budgets: Vec<u32>,
    /// What these can come to together, if that is said.
    pub budget_max: u32,
    /// Readahead at the start.
    pub readahead: Settings,
    /// Where what happens to pages is written.
    pub trace: Option<TraceFile>,
    /// Filters of system calls that are known to permit all that the engine does.
    pub filters: u32,
}

/// How pages travel, after probing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Path {
    /// UFFDIO_MOVE, with copying where the kernel refuses.
    Move,
    /// UFFDIO_COPY in; write protection, copy and MADV_DONTNEED out.
    Copy,
}

/// An engine: all its state. What it does is in the rooms above, each with methods of its own.
pub struct Core {
    /// Address space of the regions.
    pub arena: Arc<Arena>,
    /// One word per page of the arena.
    pub pages: PageTable,
    /// One flag per frame.
    pub frame_flags: FrameFlags,
    /// The machine, or a made-up one.
    pub topology: Topology,
    /// The nodes, by the engine's number; a frame's number tells its node.
    pub nodes: Vec<Node>,
    /// Delivers faults, and maps pages.
    pub uffd: Uffd,
    /// Pages that are protected since they were read.
    pub clean_pages: CleanPages,
    /// Where the bytes of pages are read.
    pub own_memory: OwnMemory,
    /// The one that has the engine.
    pub own_process: OwnProcess,
    /// Where pages are swapped out to.
    pub devices: Devices,
    /// Tells clean pages from changed ones.
    pub checksums: Checksums,
    /// Event counts since the start.
    pub counters: Counters,
    /// Passed by all threads that change pages, closed by fork.
    pub gate: Gate,
    /// Faults that follow each other.
    pub streams: Lock<Streams>,
    /// Readahead: the policies' settings and state.
    pub readahead: Readahead,
    /// Memory for reads under way.
    pub reads: Reads,
    /// What threads wait for, and since when.
    pub waits: Waits,
    /// How the server waits.
    pub polling: Polling,
    /// By what threads that read for themselves look for the end.
    pub readers: Readers,
    /// Scattered memory is dropped by one call, and no filter forbids it.
    pub drops_scattered: bool,
    /// What the server is to read ahead.
    pub wants: Wants,
    /// What it was built with.
    pub tuning: Tuning,
    /// How pages travel.
    pub path: Path,
    /// When pages of one device move on to another.
    pub demotion: Demotion,
    /// Frames and slots that threads wait for.
    pub shortage: Shortage,
    /// The engine's own threads.
    pub threads: Threads,
    /// What happens to pages, where that is recorded.
    pub trace: Trace,
    /// Everything was paged out on request, and not prefetched since.
    pub hibernated: AtomicBool,
    /// The program has an io_uring, and may lend pages that are not pinned.
    pub is_lending: AtomicBool,
    /// A swapon or swapoff is under way.
    pub changing_devices: AtomicBool,
    /// Held while the budget or the watermarks are changed.
    pub budget_change: Lock<()>,
    /// The settings that decide about the watermarks.
    pub watermark_settings: Lock<WatermarkSettings>,
    /// Under which pages are unmapped, by region.
    pub unmap_locks: UnmapLocks,
    pub(super) reclaim_way: AtomicU8,
    /// Mappings that go back to their places.
    pub put_backs: PutBacks,
    /// For pages that may be executed.
    pub staging: Staging,
    /// The program's caches.
    pub shrinkers: Shrinkers,
    /// This process in its job; a library's engine, and one with a budget of its own, is in none.
    pub member: OnceLock<Arc<Member>>,
    pub(crate) scratch: [Lock<Box<Scratch>>; DIRECT_RECLAIMERS],
    memory: Memory,
}

impl Core {
    /// Builds an engine for `arena`; its gate is closed and nothing is registered yet.
    ///
    /// # Errors
    /// userfaultfd not allowed, no memory for the tables.
    #[expect(clippy::too_many_lines, reason = "a line for each part")]
    pub(crate) fn new(
        arena: Arc<Arena>,
        devices: Devices,
        tuning: Tuning,
        topology: Topology,
    ) -> Result<Self, Error> {
        let uffd = open_uffd(tuning.fault)?;
        let (path, pages) = (choose_path(&uffd, tuning.transfer)?, arena.pages());
        let nodes = shares::build(&tuning.budgets, tuning.budget_max, pages)?;
        if tuning.compress.is_some() {
            nodes.iter().for_each(|node| node.lock().refaults = Some(Box::default()));
        }
        let memory = Memory::new(&nodes, &topology).map_err(Error::Tables)?;
        let frames = nodes.iter().map(Node::positions).sum();
        let is_harmless = filters::are_harmless(tuning.filters);
        Ok(Self {
            clean_pages: CleanPages::new(pages, &uffd, tuning.fault).map_err(Error::Tables)?,
            pages: PageTable::new(pages).map_err(Error::Tables)?,
            frame_flags: FrameFlags::new(frames).map_err(Error::Tables)?,
            shrinkers: Shrinkers::new(nodes.len()),
            nodes,
            topology,
            uffd,
            own_memory: open_own_memory(path)?,
            own_process: OwnProcess::new().map_err(Error::Tables)?,
            devices,
            checksums: Checksums::new(),
            counters: Counters::default(),
            gate: Gate::closed(),
            streams: Lock::new(Streams::new()),
            path,
            demotion: Demotion::new(tuning.compress),
            shortage: Shortage::default(),
            threads: Threads::new().map_err(Error::Tables)?,
            trace: Trace::new(tuning.trace.is_some()).map_err(Error::Tables)?,
            hibernated: AtomicBool::new(false),
            is_lending: AtomicBool::new(false),
            changing_devices: AtomicBool::new(false),
            budget_change: Lock::new(()),
            watermark_settings: Lock::new(WatermarkSettings::default()),
            unmap_locks: UnmapLocks::new(),
            reclaim_way: AtomicU8::new(ReclaimWay::default().index()),
            put_backs: PutBacks::default(),
            staging: Staging::new(),
            member: OnceLock::new(),
            scratch: std::array::from_fn(|_| Lock::new(Box::new(Scratch::new()))),
            readahead: Readahead::new(tuning.readahead, pages, &tuning.budgets)
                .map_err(Error::Tables)?,
            reads: Reads::new(),
            waits: Waits::new(),
            polling: Polling::new(tuning.poll),
            readers: Readers::new(is_harmless),
            drops_scattered: is_harmless && scattered::is_supported(),
            wants: Wants::new(),
            memory,
            arena,
            tuning,
        })
    }

    /// Small pages only, no arena for a child made past us: from here on a fork needs the engine.
    ///
    /// # Errors
    /// What madvise says.
    pub(crate) fn prepare_arena(&self) -> std::io::Result<()> {
        // Kernels built without transparent huge pages refuse the advice: there is nothing to advise then.
        let _ = self.arena.advise(libc::MADV_NOHUGEPAGE);
        self.arena.advise(libc::MADV_DONTFORK)
    }

    /// Registers both ends: from then on every missing page waits for a handler.
    ///
    /// # Errors
    /// What the kernel says.
    pub(crate) fn register(&self) -> std::io::Result<()> {
        let frames = self.memory.frames();
        self.uffd.register(frames.address(), frames.bytes())?;
        self.staging.register(&self.uffd)?;
        self.arena.plain().into_iter().try_for_each(|part| {
            self.uffd.register(self.page_address(part.first), part.count as usize * PAGE_BYTES)
        })
    }

    /// That this process has the engine. A child made past our fork has neither its memory nor its threads, and what it asks of the
    /// descriptors that it has inherited is done to its parent.
    ///
    /// # Errors
    /// [`Error::ForkedWithout`].
    pub(crate) fn check_here(&self) -> Result<(), Error> {
        if self.own_process.is_here() { Ok(()) } else { Err(Error::ForkedWithout) }
    }

    /// With the gate closed and empty, the accounting balances and no page is in transition.
    pub(crate) fn assert_quiet(&self) {
        for node in &self.nodes {
            let state = node.lock();
            assert!(state.is_balanced(), "the accounting of node {} balances", node.id.0);
            assert_eq!(state.writing, 0, "no write of node {} is under way", node.id.0);
        }
    }

    /// The address of a page in its region.
    pub fn page_address(&self, page: PageIndex) -> usize {
        self.arena.address_of(page)
    }

    /// The address of a frame.
    pub(crate) fn frame_address(&self, frame: FrameIndex) -> usize {
        self.memory.frame_address(frame)
    }

    /// The address of `RUN_MAX` pages of zeros.
    pub(crate) fn zeros_address(&self) -> usize {
        self.memory.zeros_address()
    }

    /// Where slots are read to that lie between wanted ones; what is there is never looked at.
    pub(crate) fn gap_address(&self) -> usize {
        self.memory.gap_address()
    }

    /// The node of a frame.
    pub fn node_of_frame(&self, frame: FrameIndex) -> &Node {
        self.nodes.iter().find(|node| node.owns(frame)).expect("every frame belongs to a node")
    }

    /// A node by the engine's number.
    pub(crate) fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.0 as usize]
    }

    /// The node of the running CPU.
    pub(crate) fn node_here(&self) -> &Node {
        match self.nodes.as_slice() {
            [only] => only,
            _ => self.node(self.topology.node_of_cpu(numa::cpu())),
        }
    }

    /// The budget of all nodes, in pages.
    pub(crate) fn budget_pages(&self) -> u32 {
        self.nodes.iter().map(|node| node.lock().budget).sum()
    }

    /// The settings that decide about the watermarks at this moment.
    pub(crate) fn watermark_settings(&self) -> WatermarkSettings {
        *self.watermark_settings.lock()
    }

    /// The range of a region by addresses; whole pages.
    pub fn range_at(&self, address: usize, bytes: usize) -> PageRange {
        let first = self.arena.page_of(address);
        PageRange { first, count: bytes.div_ceil(PAGE_BYTES) as u32 }
    }

    /// The scratch memory of this thread's direct reclaim.
    pub(crate) fn scratch(&self) -> &Lock<Box<Scratch>> {
        &self.scratch[clock::thread_id() as usize % DIRECT_RECLAIMERS]
    }
}

fn open_uffd(fault: FaultMode) -> Result<Uffd, Error> {
    let rights = match Uffd::features_of(Rights::Kernel) {
        Ok(_) => Rights::Kernel,
        Err(_) => Rights::UserOnly,
    };
    let required = if fault == FaultMode::Signal { feature::SIGBUS } else { 0 };
    let wished = feature::MOVE | feature::POISON | feature::WRITEPROTECT | feature::THREAD_ID;
    Uffd::open(required, wished, rights).map_err(Error::Userfaultfd)
}

fn choose_path(uffd: &Uffd, wanted: Transfer) -> Result<Path, Error> {
    match (wanted, uffd.has(feature::MOVE)) {
        (Transfer::Auto | Transfer::Move, true) => Ok(Path::Move),
        (Transfer::Auto, false) | (Transfer::Copy, _) => Ok(Path::Copy),
        (Transfer::Move, false) => Err(Error::NoMove),
    }
}

/// Without it a page that cannot be moved stays; where pages are copied there is no doing without.
fn open_own_memory(path: Path) -> Result<OwnMemory, Error> {
    match (OwnMemory::open(), path) {
        (Ok(memory), _) => Ok(memory),
        (Err(_), Path::Move) => Ok(OwnMemory::none()),
        (Err(error), Path::Copy) => Err(Error::OwnMemory(error)),
    }
}
