//! The public face: starting an engine, mapping regions, asking for numbers.
use crate::api::options::Options;
use crate::api::prepared::Prepared;
use crate::api::region::Region;
use crate::api::running::Running;
use crate::api::usage::Usage;
use crate::base::counters::Snapshot;
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::limits::{FRAMES_MAX, RAM_MIN_BYTES, default_swap_bytes};
use crate::base::topology::Topology;
use crate::control::{directory, settings};
use crate::device::open::default_directory;
use crate::device::spec::SwapSpec;
use crate::device::{Devices, open};
use crate::request::hibernate::Stayed;
use crate::state::arena::Arena;
use crate::state::core::{Core, Tuning};
use crate::state::{readahead, shares};
use crate::sys::PAGE_BYTES;
use crate::sys::signal::Blocked;
use std::os::fd::RawFd;
use std::path::PathBuf;
use std::sync::Arc;
use userswap_policy::readahead::{PAGE_CLUSTER_MAX, ReadaheadPolicy};

/// An engine: a budget, swap devices, and the regions mapped from it.
///
/// Regions keep what they need of it: its threads end with the last of both.
pub struct Engine {
    pub(super) running: Arc<Running>,
}

impl Engine {
    /// Starts an engine on an arena that may hold pages already.
    ///
    /// # Errors
    /// As [`Builder::build`].
    pub fn start(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        Prepared::new(arena, options)?.engage()
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
    pub fn set_readahead(&self, policy: ReadaheadPolicy) {
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
        self.running.start_control(candidates)
    }

    /// Where the control socket is, if there is one.
    pub fn control_socket(&self) -> Option<PathBuf> {
        let _blocked = Blocked::new();
        // Inside the gate, as a child could find the lock held by nobody.
        let _inside = self.running.core.gate.enter();
        self.running.control.socket()
    }

    /// Descriptors of those who are connected to the control socket at this moment.
    pub fn control_connections(&self) -> impl Iterator<Item = RawFd> {
        self.running.control.connections()
    }

    /// Removes the control socket's name: the process is about to end without dropping its engine.
    pub fn withdraw_control(&self) {
        // Nothing here may wait: while another thread forks, the name stays, to be swept away later.
        if let Some(_inside) = self.running.core.gate.try_enter() {
            self.running.control.withdraw();
        }
    }

    pub(crate) fn renew_threads(&self) -> Result<(), Error> {
        self.running.renew_threads()?;
        if let Err(error) = self.running.control.renew() {
            // The child's memory is whole without it.
            crate::base::log::no_control(&error.to_string());
        }
        Ok(())
    }

    /// Starts an engine on an arena in use: from here on missing pages are ours to bring in, and pages that
    /// are present are adopted. Other threads may go on touching memory meanwhile; their faults wait.
    ///
    /// # Errors
    /// As [`crate::Builder::build`]; nothing is registered then.
    pub fn engage(arena: Arc<Arena>, options: &Options) -> Result<Self, Error> {
        Self::prepare(arena, options)?.engage()
    }

    /// The first part of [`Engine::engage`]: everything but taking the arena over, which the engine does not
    /// touch until then. Threads are made here, for which the C library asks the program's malloc.
    ///
    /// # Errors
    /// As [`crate::Builder::build`].
    pub fn prepare(arena: Arc<Arena>, options: &Options) -> Result<Prepared, Error> {
        let prepared = Prepared::new(arena, options)?;
        if let Some(directory) = &options.control {
            // A program that has become another user cannot use its first user's. The environment is the
            // program's, which may be changing it.
            let mut candidates = vec![directory.clone()];
            candidates.extend(directory::candidates(directory::user(), |_| None));
            if let Err(error) = prepared.running.start_control(&candidates) {
                crate::base::log::no_control(&error.to_string());
            }
        }
        Ok(prepared)
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
    devices.set_placement(options.placement);
    Ok(devices)
}

/// The machine, or the one that `--fake-numa` makes of it.
pub(super) fn topology_of(options: &Options) -> Topology {
    options.fake_numa.map_or_else(Topology::of_machine, Topology::fake)
}

pub(super) fn tuning_of(options: &Options, topology: &Topology) -> Result<Tuning, Error> {
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
        budgets: shares::budgets(topology, (ram / PAGE_BYTES as u64) as u32, &options.ram_by_node)?,
    })
}
