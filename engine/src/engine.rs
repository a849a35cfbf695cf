//! The public face: building an engine, mapping regions, asking for numbers.
use crate::arena::{Arena, PageRange};
use crate::control::{Control, directory, settings};
use crate::core::{Core, Tuning};
use crate::counters::Snapshot;
use crate::delivery;
use crate::device::Devices;
use crate::device::open::{self, default_directory};
use crate::device::spec::SwapSpec;
use crate::error::Error;
use crate::hibernate::Stayed;
use crate::nodes;
use crate::options::{
    FaultMode, IoBackend, OnFull, Options, PlacementChoice, RAM_MIN_BYTES, Transfer,
};
use crate::page::{FRAMES_MAX, NodeId};
use crate::readahead;
use crate::region::Region;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Access;
use crate::sys::signal::Blocked;
use crate::topology::Topology;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use userswap_policy::readahead::{AddressOrder, Choice, PAGE_CLUSTER_MAX};

/// Address space of an engine unless told otherwise: 256 GiB, which costs nothing until used.
const ARENA_BYTES_DEFAULT: u64 = 256 << 30;
/// A temporary swap file is this many times the budget, at least [`SWAP_BYTES_MIN`]; it takes only the
/// space that is used.
const SWAP_PER_RAM: u64 = 16;
/// See [`SWAP_PER_RAM`].
const SWAP_BYTES_MIN: u64 = 64 << 30;

/// The size of a swap file that nobody gave a size, for a budget: what it may grow to.
pub fn default_swap_bytes(ram_bytes: u64) -> u64 {
    ram_bytes.saturating_mul(SWAP_PER_RAM).max(SWAP_BYTES_MIN)
}

/// What to build an engine from.
///
/// ```no_run
/// let engine = userswap::Builder::new(64 << 20).build()?;
/// let mut region = engine.map(1 << 30)?;
/// region.as_mut_slice()[123] = 45;
/// # Ok::<(), userswap::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Builder {
    options: Options,
    arena_bytes: u64,
    control: bool,
}

impl Builder {
    /// An engine with a RAM budget in bytes; its swap is an unlinked file in the default directory.
    pub fn new(ram_bytes: u64) -> Self {
        Self::from_options(Options::new(ram_bytes))
    }

    /// From the options of `userswap run`.
    pub fn from_options(options: Options) -> Self {
        let control = options.control.is_some();
        Self { options, arena_bytes: ARENA_BYTES_DEFAULT, control }
    }

    /// One more swap device.
    pub fn swap(mut self, spec: SwapSpec) -> Self {
        self.options.swaps.push(spec);
        self
    }

    /// Which of the devices without a priority is asked first.
    pub fn placement(mut self, placement: PlacementChoice) -> Self {
        self.options.placement = placement;
        self
    }

    /// How faults are delivered.
    pub fn fault(mut self, mode: FaultMode) -> Self {
        self.options.fault = mode;
        self
    }

    /// How pages travel.
    pub fn transfer(mut self, transfer: Transfer) -> Self {
        self.options.transfer = transfer;
        self
    }

    /// How devices are driven.
    pub fn io(mut self, backend: IoBackend) -> Self {
        self.options.io = backend;
        self
    }

    /// What is read ahead of its use.
    pub fn readahead(mut self, policy: Choice) -> Self {
        self.options.swap_ra_policy = policy;
        self
    }

    /// Binary logarithm of the largest window of the kernel's readahead policies; more than
    /// [`PAGE_CLUSTER_MAX`] counts as that.
    pub fn page_cluster(mut self, page_cluster: u8) -> Self {
        self.options.page_cluster = page_cluster.min(PAGE_CLUSTER_MAX);
        self
    }

    /// Whether the policy `scaling` reads in address order where no device seeks.
    pub fn address_order(mut self, order: AddressOrder) -> Self {
        self.options.vma_ra_enabled = order;
        self
    }

    /// What happens when no device has room.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.options.on_full = on_full;
        self
    }

    /// Made-up nodes in the place of the machine's own: its CPUs are dealt out among them.
    pub fn fake_numa(mut self, nodes: u32) -> Self {
        self.options.fake_numa = Some(nodes);
        self
    }

    /// The budget of one node, in bytes; the budget of all is the sum.
    pub fn ram_of_node(mut self, node: u32, bytes: u64) -> Self {
        if self.options.ram_by_node.is_empty() {
            self.options.ram_bytes = 0;
        }
        self.options.ram_by_node.push((node, bytes));
        self.options.ram_bytes += bytes;
        self
    }

    /// Address space for regions, in bytes.
    pub fn arena_bytes(mut self, bytes: u64) -> Self {
        self.arena_bytes = bytes;
        self
    }

    /// Whether the engine listens on a control socket, for `userswap status` and its relatives: in the
    /// options' directory, else under `$XDG_RUNTIME_DIR` or `/run`. Without being asked it does not.
    pub fn control(mut self, wanted: bool) -> Self {
        self.control = wanted;
        self
    }

    /// Builds the engine and starts its threads.
    ///
    /// # Errors
    /// A budget out of bounds, a device that cannot be used, userfaultfd not allowed, and no control socket
    /// where one is wanted.
    pub fn build(self) -> Result<Engine, Error> {
        let pages = (self.arena_bytes / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let arena = Arena::reserve(pages, Access::ReadWrite).map_err(Error::Books)?;
        let engine = Engine::start(Arc::new(arena), &self.options)?;
        if self.control {
            let candidates = match &self.options.control {
                Some(directory) => vec![directory.clone()],
                None => directory::candidates_here(),
            };
            engine.start_control(&candidates)?;
        }
        Ok(engine)
    }
}

/// Whether the machine has the nodes that the options name, and room for each node's share.
///
/// # Errors
/// A node that does not exist, or a share too small to work with.
pub fn check_nodes(options: &Options) -> Result<(), Error> {
    tuning_of(options, &topology_of(options)).map(|_| ())
}

/// Opens the devices that options name; without any, a temporary file in the default directory.
///
/// # Errors
/// The first device that cannot be used.
pub fn open_devices(options: &Options, topology: &Topology) -> Result<Devices, Error> {
    let default = SwapSpec::at(default_directory());
    let specs =
        if options.swaps.is_empty() { std::slice::from_ref(&default) } else { &options.swaps };
    let bytes = default_swap_bytes(options.ram_bytes);
    let opened = specs.iter().map(|spec| open::open(spec, bytes)).collect::<Result<Vec<_>, _>>()?;
    let devices = Devices::new(opened, topology)?;
    devices.set_placement(options.placement.into());
    Ok(devices)
}

/// An engine: a budget, swap devices, and the regions mapped from it.
///
/// Regions keep what they need of it: its threads end with the last of both.
pub struct Engine {
    running: Arc<Running>,
}

/// A core with the threads that serve it.
pub(crate) struct Running {
    pub(crate) core: Arc<Core>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    control: Control,
}

impl Engine {
    /// Starts an engine on an arena that may hold pages already.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn start(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        let topology = topology_of(options);
        let tuning = tuning_of(options, &topology)?;
        let devices = open_devices(options, &topology)?;
        let core = Arc::new(Core::new(arena, devices, tuning, topology)?);
        // Handlers before registration, adoption behind the closed gate: a fault in between waits there.
        delivery::enroll(&core)?;
        // From here on an error drops this, which ends the threads and strikes the engine off.
        let running = Arc::new(Running {
            core,
            threads: Mutex::new(Vec::new()),
            control: Control::default(),
        });
        running.start_threads()?;
        running.core.register().map_err(Error::Userfaultfd)?;
        running.core.adopt_present().map_err(Error::Books)?;
        running.core.gate.open();
        Ok(Self { running })
    }

    /// Maps a region of at least `bytes` bytes, all zero.
    ///
    /// # Errors
    /// The arena is used up.
    pub fn map(&self, bytes: usize) -> Result<Region, Error> {
        let pages = bytes.div_ceil(PAGE_BYTES).max(1);
        let full = || Error::ArenaFull(bytes as u64);
        let count = u32::try_from(pages).map_err(|_| full())?;
        let _blocked = Blocked::new();
        let range = self.running.core.arena.allocate(count, 1).ok_or_else(full)?;
        Ok(Region::new(self.running.clone(), range, bytes))
    }

    /// Changes the RAM budget while running; shrinking takes pages out until it fits.
    ///
    /// # Errors
    /// A budget out of bounds; nothing is changed then.
    pub fn set_budget(&self, bytes: u64) -> Result<(), Error> {
        let pages = (bytes / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let _blocked = Blocked::new();
        self.running.core.set_budget(pages)
    }

    /// Takes everything managed out to the devices and gives its memory back to the kernel; what the program
    /// touches comes back by a fault. Pinned pages stay, and so does what no device has room for.
    pub fn page_out_all(&self) -> Stayed {
        self.running.core.page_out_all()
    }

    /// Brings everything back, in the order of the devices, as far as the budget goes without taking others
    /// out.
    ///
    /// # Errors
    /// A device is just being added or removed.
    pub fn prefetch_all(&self) -> Result<(), Error> {
        self.running.core.prefetch_all()
    }

    /// Changes one of the settings that `userswap set` knows, such as `swap_ra_policy`; returns its value.
    ///
    /// # Errors
    /// EINVAL ([`Error::Setting`]): there is no such key, or it does not take the value; nothing is changed
    /// then.
    pub fn set(&self, key: &str, value: &str) -> Result<String, Error> {
        let _blocked = Blocked::new();
        settings::set(&self.running.core, key, value).map_err(Error::Setting)
    }

    /// Readahead as it is set now.
    pub fn readahead(&self) -> readahead::Settings {
        self.running.core.readahead.settings()
    }

    /// Chooses what is read ahead of its use from now on.
    pub fn set_readahead(&self, policy: Choice) {
        self.running.core.readahead.set_policy(policy);
    }

    /// A copy of all counters.
    pub fn counters(&self) -> Snapshot {
        self.running.core.counters.snapshot()
    }

    /// The node of the CPU that this runs on.
    pub fn node_here(&self) -> NodeId {
        self.core().node_here().id
    }

    /// Number of nodes.
    pub fn nodes(&self) -> usize {
        self.core().nodes.len()
    }

    pub(crate) fn start_shrinking(&self) -> Result<(), Error> {
        self.running.start_shrinking()
    }

    /// Where the budget is at this moment.
    pub fn usage(&self) -> Usage {
        let _blocked = Blocked::new();
        self.running.core.usage()
    }

    /// The engine's parts, for the preload library.
    pub fn core(&self) -> &Arc<Core> {
        &self.running.core
    }

    /// Listens on a control socket in the first of `candidates` that will do.
    ///
    /// # Errors
    /// None will do, or no thread is to be had.
    pub(crate) fn start_control(&self, candidates: &[PathBuf]) -> Result<(), Error> {
        self.running.control.start(&self.running.core, candidates)
    }

    /// Where the control socket is, if there is one.
    pub fn control_socket(&self) -> Option<PathBuf> {
        let _blocked = Blocked::new();
        // Inside the gate, as a child could find the lock held by nobody.
        self.running.core.gate.enter();
        let socket = self.running.control.socket();
        self.running.core.gate.leave();
        socket
    }

    /// Descriptors of those who are connected to the control socket at this moment.
    pub fn control_connections(&self) -> impl Iterator<Item = RawFd> {
        self.running.control.connections()
    }

    /// Removes the control socket's name: the process is about to end without dropping its engine.
    pub fn withdraw_control(&self) {
        // Nothing here may wait: while another thread forks, the name stays, to be swept away later.
        if self.running.core.gate.try_enter() {
            self.running.control.withdraw();
            self.running.core.gate.leave();
        }
    }

    pub(crate) fn renew_threads(&self) -> Result<(), Error> {
        self.running.renew_threads()?;
        if let Err(error) = self.running.control.renew() {
            // The child's memory is whole without it.
            crate::log::no_control(&error.to_string());
        }
        Ok(())
    }
}

impl Running {
    /// Starts the threads one by one: whoever drops this joins those that run.
    fn start_threads(&self) -> Result<(), Error> {
        // The threads inherit this: a handler of the program must not run on them, it might touch memory
        // that only they can bring in.
        let _blocked = Blocked::new();
        let keep = |thread| self.threads.lock().expect("nobody panics with them").push(thread);
        for node in &self.core.nodes {
            keep(crate::kswapd::start(self.core.clone(), node.id)?);
        }
        keep(crate::server::start(self.core.clone())?);
        if self.core.shrinkers.has_thread() {
            keep(crate::shrinker::start(self.core.clone())?);
        }
        Ok(())
    }

    /// Starts the thread that asks shrinkers, unless it runs.
    fn start_shrinking(&self) -> Result<(), Error> {
        let mut threads = self.threads.lock().expect("nobody panics with them");
        if !self.core.shrinkers.has_thread() {
            threads.push(crate::shrinker::start(self.core.clone())?);
        }
        Ok(())
    }

    /// In a forked child, which has the books of threads that do not exist there.
    fn renew_threads(&self) -> Result<(), Error> {
        let parents = std::mem::take(&mut *self.threads.lock().expect("the lock was free at fork"));
        // Not dropped: that would detach threads that were never in this process.
        std::mem::forget(parents);
        self.start_threads()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // First: what it was asked to do needs the other threads.
        self.control.stop();
        self.core.stop();
        delivery::strike(&self.core);
        for thread in self.threads.get_mut().expect("nobody panics with the threads").drain(..) {
            // A cache that a scan dropped may have been the last to hold the engine.
            if thread.thread().id() == std::thread::current().id() {
                continue;
            }
            // A thread that panicked has said so; there is nothing to add.
            let _ = thread.join();
        }
    }
}

/// Where the budget is, in pages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Physical pages allowed.
    pub budget: u32,
    /// Mapped in regions.
    pub resident: u32,
    /// Second chance or read ahead.
    pub cached: u32,
    /// Held by the program's own caches.
    pub charged: u32,
    /// Being written.
    pub writing: u32,
    /// Present and unused.
    pub free: u32,
    /// Not yet taken from the kernel.
    pub spare: u32,
    /// Over the budget.
    pub debt: u32,
    /// Slots in use on all devices.
    pub slots_used: u64,
    /// Usable slots of all devices.
    pub slots: u64,
}

impl Core {
    /// Where the budget is at this moment.
    pub fn usage(&self) -> Usage {
        use userswap_policy::lru::ListId;
        self.gate.enter();
        let (slots_used, slots) = self.devices.usage();
        let mut usage = Usage { slots_used, slots, ..Usage::default() };
        for node in &self.nodes {
            let state = node.lock();
            usage.budget += state.budget;
            usage.resident += state.resident;
            usage.cached += state.lists.len(ListId::Cached);
            usage.charged += state.charged;
            usage.writing += state.writing;
            usage.free += state.pool.free();
            usage.spare += state.spare;
            usage.debt += state.debt;
        }
        self.gate.leave();
        usage
    }

    /// The range of a region by addresses; whole pages.
    pub fn range_at(&self, address: usize, bytes: usize) -> PageRange {
        let first = self.arena.page_of(address);
        PageRange { first, count: bytes.div_ceil(PAGE_BYTES) as u32 }
    }
}

/// The machine, or the one that `--fake-numa` makes of it.
fn topology_of(options: &Options) -> Topology {
    options.fake_numa.map_or_else(Topology::of_machine, Topology::fake)
}

fn tuning_of(options: &Options, topology: &Topology) -> Result<Tuning, Error> {
    let ram = options.ram_bytes;
    if ram < RAM_MIN_BYTES {
        return Err(Error::BudgetTooSmall(ram));
    }
    let most = FRAMES_MAX / 2 * PAGE_BYTES as u64;
    if ram > most {
        return Err(Error::BudgetTooLarge(ram, most));
    }
    Ok(Tuning {
        fault: options.fault,
        transfer: options.transfer,
        io: options.io,
        on_full: options.on_full,
        readahead: readahead::Settings {
            policy: options.swap_ra_policy,
            page_cluster: options.page_cluster.min(PAGE_CLUSTER_MAX),
            address_order: options.vma_ra_enabled,
        },
        budgets: nodes::budgets(topology, (ram / PAGE_BYTES as u64) as u32, &options.ram_by_node)?,
    })
}
