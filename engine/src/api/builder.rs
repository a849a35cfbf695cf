//! What an engine is built from.
use crate::api::engine::Engine;
use crate::api::options::Options;
use crate::base::choice::{FaultMode, IoBackend, OnFull, Transfer};
use crate::base::error::Error;
use crate::control::directory;
use crate::device::spec::SwapSpec;
use crate::state::arena::Arena;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Access;
use std::sync::Arc;
use userswap_policy::devices::Placement;
use userswap_policy::readahead::{AddressOrder, PAGE_CLUSTER_MAX, ReadaheadPolicy};

/// Address space of an engine unless told otherwise: 256 GiB, which costs nothing until used.
const ARENA_BYTES_DEFAULT: u64 = 256 << 30;

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
    pub fn placement(mut self, placement: Placement) -> Self {
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
    pub fn readahead(mut self, policy: ReadaheadPolicy) -> Self {
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
        let arena = Arena::reserve(pages, Access::ReadWrite).map_err(Error::Tables)?;
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
