//! The engine's parts in one place, and where things are: addresses, nodes.
use crate::base::checksum::Checksums;
use crate::base::choice::{FaultMode, IoBackend, OnFull, Transfer};
use crate::base::counters::Counters;
use crate::base::error::Error;
use crate::base::index::{FrameIndex, NodeId, PageIndex, PageRange};
use crate::base::limits::{GAP_MAX, RUN_MAX};
use crate::base::topology::Topology;
use crate::device::Devices;
use crate::state::arena::Arena;
use crate::state::frame_flag::FrameFlags;
use crate::state::gate::Gate;
use crate::state::node::Node;
use crate::state::page::PageTable;
use crate::state::readahead::{Readahead, Settings};
use crate::state::reads::Reads;
use crate::state::scratch::Scratch;
use crate::state::shares;
use crate::state::shrinkers::Shrinkers;
use crate::state::unmap_lock::UnmapLocks;
use crate::state::wants::Wants;
use crate::state::watermarks::WatermarkSettings;
use crate::sys::fd::Event;
use crate::sys::lock::Lock;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::uffd::{Rights, Uffd, feature};
use crate::sys::{PAGE_BYTES, clock, numa};
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
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

/// One engine.
pub struct Core {
    /// Address space of the regions.
    pub arena: Arc<Arena>,
    /// One word per page.
    pub pages: PageTable,
    /// One flag per frame.
    pub frame_flags: FrameFlags,
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
    pub reads: Reads,
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
    pub watermark_settings: Lock<WatermarkSettings>,
    /// Who takes pages out where.
    pub unmap_locks: UnmapLocks,
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
    pub(crate) fn new(
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
        let nodes = shares::build(&tuning.budgets, pages)?;
        let positions: u32 = nodes.iter().map(Node::positions).sum();
        let books = |error| Error::Tables(error);
        let frames =
            Mapping::new(positions as usize * PAGE_BYTES, Access::ReadWrite).map_err(books)?;
        let core = Self {
            pages: PageTable::new(pages).map_err(books)?,
            frame_flags: FrameFlags::new(positions).map_err(books)?,
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
            watermark_settings: Lock::new(WatermarkSettings::default()),
            unmap_locks: UnmapLocks::new(),
            hopeless: AtomicU32::new(0),
            pins: AtomicU32::new(0),
            queue_fds: Lock::new(Vec::new()),
            server_wanted: Event::new().map_err(books)?,
            stopping: AtomicBool::new(false),
            devices_full: AtomicBool::new(false),
            warned_full: AtomicBool::new(false),
            scratch: std::array::from_fn(|_| Lock::new(Box::new(Scratch::new()))),
            readahead: Readahead::new(tuning.readahead, pages).map_err(books)?,
            reads: Reads::new(),
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
    pub(crate) fn register(&self) -> std::io::Result<()> {
        self.uffd.register(self.frames.address(), self.frames.bytes())?;
        self.uffd.register(self.arena.address(), self.arena.bytes())
    }

    /// With the gate closed and nobody inside, the books balance and no page is in transition.
    pub(crate) fn assert_quiet(&self) {
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
    pub(crate) fn frame_address(&self, frame: FrameIndex) -> usize {
        assert!((frame as usize) < self.frame_flags.len(), "the frame is in the pool");
        self.frames.address() + frame as usize * PAGE_BYTES
    }

    /// Where `RUN_MAX` pages of zeros are.
    pub(crate) fn zeros_address(&self) -> usize {
        self.zeros.address()
    }

    /// Where slots are read to that lie between wanted ones; nobody looks at what is there.
    pub(crate) fn gap_address(&self) -> usize {
        self.gap.address()
    }

    /// Makes each node's frames come from its memory.
    pub(crate) fn bind_frames(&self) {
        for node in &self.nodes {
            let Some(memory) = self.topology.memory_of(node.id) else { continue };
            let first = self.frame_address(node.first_frame());
            let bytes = node.positions() as usize * PAGE_BYTES;
            if let Err(error) = numa::prefer(first, bytes, memory) {
                crate::base::log::not_bound(error.raw_os_error().unwrap_or(0));
            }
        }
    }

    /// The node of a frame.
    pub fn node_of_frame(&self, frame: FrameIndex) -> &Node {
        self.nodes.iter().find(|node| node.owns(frame)).expect("every frame belongs to a node")
    }

    /// A node by number.
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

    /// What decides about the marks at this moment.
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

    /// Ends all threads.
    pub(crate) fn stop(&self) {
        self.stopping.store(true, Ordering::Release);
        self.nodes.iter().for_each(|node| node.reclaim_wanted.signal());
        self.server_wanted.signal();
        self.shrinkers.wake();
    }

    /// Whether the threads should end.
    pub(crate) fn is_stopping(&self) -> bool {
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
