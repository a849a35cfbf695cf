//! An engine as a program holds it: starting it, mapping regions, changing what can be changed, asking for numbers.
use crate::api::options::Options;
use crate::api::prepared::{Gathered, Prepared};
use crate::api::region::Region;
use crate::api::running::Running;
use crate::api::usage::Usage;
use crate::base::counters::Snapshot;
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::limits::{RAM_MAX_BYTES, RAM_MIN_BYTES, default_swap_bytes};
use crate::base::topology::Topology;
use crate::control::{directory, settings};
use crate::device::compress::Compress;
use crate::device::open::default_directory;
use crate::device::spec::{SwapSpec, check_tiers};
use crate::device::{Devices, open, places};
use crate::job::member::Member;
use crate::request::hibernate::Stayed;
use crate::state::arena::Arena;
use crate::state::core::{Core, Tuning};
use crate::state::trace::{Detail, Executing, TraceFile};
use crate::state::{readahead, shares};
use crate::swapoff::Proceed;
use crate::sys::PAGE_BYTES;
use crate::sys::signal::Blocked;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use userswap_policy::readahead::{PAGE_CLUSTER_MAX, ReadaheadPolicy};

/// An engine: a RAM budget, swap devices, and the regions mapped from it. [`Builder`](crate::Builder) makes one.
///
/// Regions may outlive it: its threads end when the engine and its last region are dropped. All methods may be called by
/// any thread, but none by a signal handler.
pub struct Engine {
    pub(super) running: Arc<Running>,
}

impl Engine {
    /// Starts an engine on an arena that may hold pages already.
    ///
    /// # Errors
    /// As [`Builder::build`](crate::Builder::build).
    pub(crate) fn start(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        Prepared::new(Gathered::new(arena, options)?, None)?.engage_all()
    }

    /// Maps a region of `bytes` bytes, all zero, which may be larger than the budget. It takes no memory until it is used.
    ///
    /// # Errors
    /// [`Error::ArenaFull`]: no address space is left; [`Builder::arena_bytes`](crate::Builder::arena_bytes) sets it.
    pub fn map(&self, bytes: usize) -> Result<Region, Error> {
        Region::allocate(&self.running, bytes, PAGE_BYTES)
    }

    /// Changes the RAM budget, in bytes, while the program runs; a smaller one is reclaimed for in the background.
    ///
    /// # Errors
    /// A budget below 16 MiB, above what the engine was built for, or too small for what is pinned; nothing is changed
    /// then.
    pub fn set_budget(&self, bytes: u64) -> Result<(), Error> {
        if bytes < RAM_MIN_BYTES {
            return Err(Error::BudgetTooSmall(bytes));
        }
        self.core().check_here()?;
        let pages = (bytes / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let _blocked = Blocked::new();
        self.running.core.set_budget(pages)
    }

    /// Swaps everything out and gives the memory back to the kernel, for a program that will do nothing for a while.
    /// What it touches is swapped in by a fault. Pinned pages stay, and so do those that no device has room for.
    pub fn page_out_all(&self) -> Stayed {
        if !self.core().own_process.is_here() {
            return Stayed::default();
        }
        self.running.core.page_out_all()
    }

    /// Swaps everything in, in the order of the devices, as far as the budget goes without reclaiming other pages.
    ///
    /// # Errors
    /// [`Error::DevicesChanging`]: a device is being added or removed at this moment.
    pub fn prefetch_all(&self) -> Result<(), Error> {
        self.running.core.prefetch_all()
    }

    /// Takes one more swap device into use.
    ///
    /// # Errors
    /// [`Error::DevicesChanging`], or the device cannot be used.
    pub fn swapon(&self, spec: &SwapSpec) -> Result<(), Error> {
        let _blocked = Blocked::new();
        self.core().swapon(spec).map(drop)
    }

    /// Empties a device, by the path that it was given as, and lets go of it; takes as long as that takes.
    ///
    /// # Errors
    /// [`Error::DevicesChanging`]; there is no such device; or no room for its pages elsewhere: it stays in use then.
    pub fn swapoff(&self, path: &Path) -> Result<(), Error> {
        let _blocked = Blocked::new();
        self.core().swapoff(path, &mut |_| Proceed::GoOn)
    }

    /// Changes one of the settings that `userswap set` knows, such as `swap_ra_policy`; returns its value, which may be
    /// rounded.
    ///
    /// # Errors
    /// [`Error::Setting`], which is EINVAL: there is no such key, or it does not take the value; nothing is changed then.
    pub fn set(&self, key: &str, value: &str) -> Result<String, Error> {
        self.core().check_here()?;
        let _blocked = Blocked::new();
        settings::set(&self.running.core, key, value).map_err(Error::Setting)
    }

    /// The settings of readahead at this moment.
    pub fn readahead(&self) -> readahead::Settings {
        self.running.core.readahead.settings()
    }

    /// Chooses what is read ahead of its use from now on.
    pub fn set_readahead(&self, policy: ReadaheadPolicy) {
        self.running.core.readahead.set_policy(policy);
    }

    /// A copy of all counters, which count from the start of the engine.
    pub fn counters(&self) -> Snapshot {
        self.running.core.counters.snapshot()
    }

    /// The node of the CPU that the calling thread runs on, for [`Account::charge`](crate::Account::charge).
    pub fn node_here(&self) -> NodeId {
        self.core().node_here().id
    }

    /// How many nodes the engine has; their [`NodeId`]s count from 0.
    pub fn nodes(&self) -> usize {
        self.core().nodes.len()
    }

    pub(crate) fn start_shrinking(&self) -> Result<(), Error> {
        self.running.start_shrinking()
    }

    /// What the budget is used for at this moment.
    pub fn usage(&self) -> Usage {
        if !self.core().own_process.is_here() {
            return Usage::default();
        }
        let _blocked = Blocked::new();
        self.running.core.usage()
    }

    /// Pages of the budget that are in RAM for the program; None where it would have to wait.
    #[doc(hidden)]
    pub fn try_pages_in_ram(&self) -> Option<u32> {
        self.core().try_pages_in_ram()
    }

    /// The engine's parts, for the other crates of the workspace.
    #[doc(hidden)]
    pub fn core(&self) -> &Arc<Core> {
        &self.running.core
    }

    /// Listens on a control socket in the first of `candidates` that will do.
    ///
    /// # Errors
    /// None will do, or no socket, descriptor or thread can be made.
    pub(crate) fn start_control(&self, candidates: &[PathBuf]) -> Result<(), Error> {
        self.running.start_control(candidates)
    }

    /// The path of the control socket, if there is one.
    pub fn control_socket(&self) -> Option<PathBuf> {
        self.core().check_here().ok()?;
        let _blocked = Blocked::new();
        // Inside the gate: a child could find the lock held by a thread that it does not have.
        let _inside = self.running.core.gate.enter();
        self.running.control.socket()
    }

    /// Removes the control socket's name: the process is about to end without dropping its engine.
    #[doc(hidden)]
    pub fn withdraw_control(&self) {
        // Nothing here may wait: while another thread forks, the name stays, to be swept away later.
        if let Some(_inside) = self.running.core.gate.try_enter() {
            self.running.control.withdraw();
        }
    }

    /// Has remote stores keep what is there for seconds only, again and again until the process has ended: it is about to.
    #[doc(hidden)]
    pub fn shorten_leases(&self) {
        let _blocked = Blocked::new();
        self.core().devices.shorten_leases();
    }

    /// Ends the trace: the process is about to end without dropping its engine.
    #[doc(hidden)]
    pub fn end_trace(&self) {
        self.core().trace.end();
    }

    /// The process is about to become another program: has its trace or record say so, and be whole. Dropping what this
    /// returns says that it did not.
    #[doc(hidden)]
    pub fn before_exec(&self, program: impl FnOnce() -> Vec<u8>) -> BeforeExec<'_> {
        self.shorten_leases();
        BeforeExec { engine: self, _executing: self.core().trace.before_exec(program) }
    }

    pub(crate) fn renew_threads(&self) -> Result<(), Error> {
        self.running.renew_threads()?;
        if let Err(error) = self.running.control.renew() {
            // The child's memory is whole without it.
            crate::base::log::no_control(&error.to_string());
        }
        Ok(())
    }

    /// Starts an engine on an arena in use: from here on faults on missing pages are the engine's, and pages that are
    /// present are adopted. Other threads may go on touching memory meanwhile; their faults wait.
    ///
    /// # Errors
    /// As [`crate::Builder::build`]; nothing is registered then.
    #[doc(hidden)]
    pub fn engage(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        Self::prepare(Self::gather(arena, options)?, options, None)?.engage_all()
    }

    /// The first part of [`Engine::engage`]: what needs rights that the process may give up.
    ///
    /// # Errors
    /// As [`crate::Builder::build`].
    #[doc(hidden)]
    pub fn gather(arena: Arc<Arena>, options: &Options) -> Result<Gathered, Error> {
        Gathered::new(arena, options)
    }

    /// The second part: everything but taking the arena over, which the engine does not touch until then.
    /// Threads are made here, for which the C library asks the program's malloc. `member` shares the budget.
    ///
    /// # Errors
    /// No thread is to be had.
    #[doc(hidden)]
    pub fn prepare(
        gathered: Gathered,
        options: &Options,
        member: Option<Arc<Member>>,
    ) -> Result<Prepared, Error> {
        let prepared = Prepared::new(gathered, member)?;
        if let Some(directory) = &options.control {
            // A program that has become another user cannot use its first user's. The environment is the
            // program's, which may be changing it.
            let mut candidates = vec![directory.clone()];
            candidates.extend(directory::candidates(directory::user(), |_| None));
            if let Err(error) = prepared.running().start_control(&candidates) {
                crate::base::log::no_control(&error.to_string());
            }
        }
        Ok(prepared)
    }
}

/// The process is about to become another program; dropping it says that it did not.
pub struct BeforeExec<'a> {
    engine: &'a Engine,
    _executing: Option<Executing<'a>>,
}

impl Drop for BeforeExec<'_> {
    fn drop(&mut self) {
        self.engine.core().devices.lengthen_leases();
    }
}

/// Whether the machine has the nodes that the options name, and room for each node's share.
///
/// # Errors
/// A node that does not exist, or a share too small to work with.
pub fn check_nodes(options: &Options) -> Result<(), Error> {
    tuning_of(options, &topology_of(options)).map(|_| ())
}

/// Finds out whether [`open_devices`] would succeed and changes nothing; returns the warnings.
///
/// # Errors
/// The device that cannot be used, by its name, and why.
pub fn check_devices(options: &Options) -> Result<Vec<String>, String> {
    let specs = wanted_devices(options).map_err(|error| error.to_string())?;
    places::check(&specs, default_swap_bytes(options.ram_bytes), &topology_of(options))
}

/// The devices that options name, all of them encrypted where that is asked for.
fn wanted_devices(options: &Options) -> Result<Vec<SwapSpec>, Error> {
    let specs = swaps_of(options)?.into_iter();
    Ok(match options.encrypt {
        true => specs.map(SwapSpec::encrypted).collect(),
        false => specs.collect(),
    })
}

/// Opens the devices that options name; without any, a temporary file in the default directory.
///
/// # Errors
/// The first device that cannot be used.
pub fn open_devices(options: &Options, topology: &Topology) -> Result<Devices, Error> {
    options.password.keep();
    options.credentials.keep();
    let specs = wanted_devices(options)?;
    let bytes = default_swap_bytes(options.ram_bytes);
    let opened = specs.iter().map(|spec| open::open(spec, bytes)).collect::<Result<Vec<_>, _>>()?;
    let devices = Devices::new(opened, topology)?;
    devices.set_placement(options.placement);
    if let Some(pages) = options.compress.and_then(Compress::pages) {
        devices.allowance.set_most(pages);
    }
    Ok(devices)
}

/// The devices that options name, compressed memory in front of them where that is asked for.
///
/// # Errors
/// Tiers that they cannot have together.
pub fn swaps_of(options: &Options) -> Result<Vec<SwapSpec>, Error> {
    let default = SwapSpec::at(default_directory());
    let given =
        if options.swaps.is_empty() { std::slice::from_ref(&default) } else { &options.swaps };
    let all = match options.compress {
        Some(compress) => compress.in_front_of(given, options.ram_bytes),
        None => Ok(given.to_vec()),
    };
    let checked = all.and_then(|all| check_tiers(&all).map(|()| all));
    checked.map_err(|error| Error::Tiers(error.to_string()))
}

/// The machine, or the one that `--fake-numa` makes of it.
pub(super) fn topology_of(options: &Options) -> Topology {
    options.fake_numa.map_or_else(|| Topology::of_machine(&options.sysfs), Topology::fake)
}

fn pages_of(bytes: u64) -> u32 {
    (bytes / PAGE_BYTES as u64) as u32
}

pub(super) fn tuning_of(options: &Options, topology: &Topology) -> Result<Tuning, Error> {
    let ram = options.ram_bytes.max(options.ram_max_bytes);
    if ram < RAM_MIN_BYTES {
        return Err(Error::BudgetTooSmall(ram));
    }
    if ram > RAM_MAX_BYTES {
        return Err(Error::BudgetTooLarge(ram, RAM_MAX_BYTES));
    }
    Ok(Tuning {
        fault: options.fault,
        transfer: options.transfer,
        io: options.io,
        poll: options.poll,
        on_full: options.on_full,
        encrypt: options.encrypt,
        compress: options.compress,
        readahead: readahead::Settings {
            policy: options.swap_ra_policy,
            page_cluster: options.page_cluster.min(PAGE_CLUSTER_MAX),
            address_order: options.vma_ra_enabled,
        },
        trace: trace_file(options),
        filters: options.filters,
        budgets: shares::budgets(topology, pages_of(options.ram_bytes), &options.ram_by_node)?,
        budget_max: pages_of(options.ram_max_bytes),
    })
}

fn trace_file(options: &Options) -> Option<TraceFile> {
    let wanted = [(&options.record, Detail::Record), (&options.trace, Detail::Trace)];
    let (path, detail) =
        wanted.into_iter().find_map(|(path, detail)| Some((path.clone()?, detail)))?;
    Some(TraceFile { path, detail, root: root_of(options) })
}

/// The process whose files have plain names; a library's is the one that made it.
fn root_of(options: &Options) -> u32 {
    match options.root_pid {
        0 => std::process::id(),
        root => root,
    }
}
