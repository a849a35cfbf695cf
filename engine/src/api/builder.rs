//! What an engine is built from: a budget, swap devices, and choices that have good defaults.
use crate::api::engine::Engine;
use crate::api::options::Options;
use crate::base::choice::{FaultMode, IoBackend, OnFull, Transfer};
use crate::base::error::Error;
use crate::base::log;
use crate::control::directory;
use crate::device::compress::Compress;
use crate::device::spec::SwapSpec;
use crate::state::arena::Arena;
use crate::sys::PAGE_BYTES;
use crate::sys::cpu_latency;
use crate::sys::mapping::Access;
use std::path::Path;
use std::sync::Arc;
use userswap_policy::devices::Placement;
use userswap_policy::polling::Poll;
use userswap_policy::readahead::{AddressOrder, PAGE_CLUSTER_MAX, ReadaheadPolicy};

/// Address space of an engine unless told otherwise: 256 GiB, which costs nothing until used.
const ARENA_BYTES_DEFAULT: u64 = 256 << 30;

/// What to build an [`Engine`] from.
///
/// Only the RAM budget must be given. Every method replaces a default, and [`Builder::build`] checks them all.
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
    listens: bool,
}

impl Builder {
    /// An engine with a RAM budget of at least 16 MiB, in bytes. Its swap is an unlinked file, in `$TMPDIR` if
    /// that is on a disk, else in `/var/tmp`, unless [`Builder::swap`] names a device.
    pub fn new(ram_bytes: u64) -> Self {
        Self::from_options(Options::new(ram_bytes))
    }

    /// From the options of `userswap run`.
    #[doc(hidden)]
    pub fn from_options(options: Options) -> Self {
        let listens = options.control.is_some();
        Self { options, arena_bytes: ARENA_BYTES_DEFAULT, listens }
    }

    pub(super) fn options_mut(&mut self) -> &mut Options {
        &mut self.options
    }

    /// What [`Engine::set_budget`](crate::Engine::set_budget) can raise the budget to at least, in bytes: address space is set aside for it, 4 bytes
    /// for each. By default it is about four times the budget of the start.
    pub fn ram_max(mut self, bytes: u64) -> Self {
        self.options.ram_max_bytes = bytes;
        self
    }

    /// Adds a swap device; the first one replaces the default.
    pub fn swap(mut self, spec: SwapSpec) -> Self {
        self.options.swaps.push(spec);
        self
    }

    /// Encrypts whatever is written to swap devices, also to those that are added later: without it those are that ask for
    /// it. The key is random, of this engine, and never leaves RAM; what was changed on a device is
    /// noticed, and its page lost. Compressed memory, which is RAM, stays as it is.
    pub fn encrypt(mut self) -> Self {
        self.options.encrypt = true;
        self
    }

    /// Keeps pages compressed in a part of the budget before they go to a device: those that have been away for longest move
    /// on to the devices that are named, or the default one.
    pub fn compress(mut self, compress: Compress) -> Self {
        self.options.compress = Some(compress);
        self
    }

    /// Which of the devices without a priority a node fills first: near ones by default.
    pub fn placement(mut self, placement: Placement) -> Self {
        self.options.placement = placement;
        self
    }

    /// How page faults reach the engine: to a thread by default.
    pub fn fault(mut self, mode: FaultMode) -> Self {
        self.options.fault = mode;
        self
    }

    /// How pages get into regions and out of them: moved by default where the kernel can.
    pub fn transfer(mut self, transfer: Transfer) -> Self {
        self.options.transfer = transfer;
        self
    }

    /// How requests reach the devices: by io_uring by default where it is permitted.
    pub fn io(mut self, backend: IoBackend) -> Self {
        self.options.io = backend;
        self
    }

    /// How the thread that serves faults waits for them: by default it looks on for as long as that pays. Without the right to
    /// keep idle CPUs from halting, [`Poll::Idle`] is [`Poll::Auto`], and says so.
    pub fn poll(mut self, poll: Poll) -> Self {
        self.options.poll = poll;
        self
    }

    /// What is read ahead of its use: by default the streams that the engine finds in the faults.
    pub fn readahead(mut self, policy: ReadaheadPolicy) -> Self {
        self.options.swap_ra_policy = policy;
        self
    }

    /// Binary logarithm of the largest window of the kernel's readahead policies, in pages: 3 by default, and more than
    /// 10 counts as 10.
    pub fn page_cluster(mut self, page_cluster: u8) -> Self {
        self.options.page_cluster = page_cluster.min(PAGE_CLUSTER_MAX);
        self
    }

    /// Whether [`ReadaheadPolicy::Scaling`] reads in address order where no device seeks: it does by default.
    pub fn address_order(mut self, order: AddressOrder) -> Self {
        self.options.vma_ra_enabled = order;
        self
    }

    /// What happens when no device has room: the budget is exceeded by default.
    pub fn on_full(mut self, on_full: OnFull) -> Self {
        self.options.on_full = on_full;
        self
    }

    /// So many made-up NUMA nodes instead of the machine's own, whose CPUs are dealt out among them; for tests.
    pub fn fake_numa(mut self, nodes: u32) -> Self {
        self.options.fake_numa = Some(nodes);
        self
    }

    /// Nodes, and what block devices are near to, as a directory in the form of `/sys` says; for tests.
    #[doc(hidden)]
    pub fn sysfs(mut self, directory: &Path) -> Self {
        self.options.sysfs = directory.to_owned();
        self
    }

    /// The budget of one NUMA node by the kernel's number, in bytes. The budget of the engine is the sum of all nodes so
    /// named, instead of the one given first.
    pub fn ram_of_node(mut self, node: u32, bytes: u64) -> Self {
        if self.options.ram_by_node.is_empty() {
            self.options.ram_bytes = 0;
        }
        self.options.ram_by_node.push((node, bytes));
        self.options.ram_bytes += bytes;
        self
    }

    /// Address space for regions, in bytes: 256 GiB by default, which takes no memory until it is used.
    pub fn arena_bytes(mut self, bytes: u64) -> Self {
        self.arena_bytes = bytes;
        self
    }

    /// Lets the engine listen on a control socket, for `userswap status` and its relatives, in a private directory under
    /// `$XDG_RUNTIME_DIR` or `/run`. By default it does not.
    pub fn control(mut self) -> Self {
        self.listens = true;
        self
    }

    /// Builds the engine and starts its threads.
    ///
    /// # Errors
    /// A budget out of bounds, a node that does not exist, a device that cannot be used, userfaultfd not allowed, no
    /// memory or thread to be had, and no control socket where one is wanted. Nothing is left running then.
    pub fn build(self) -> Result<Engine, Error> {
        let pages = (self.arena_bytes / PAGE_BYTES as u64).min(u64::from(u32::MAX)) as u32;
        let arena = Arena::reserve(pages, Access::ReadWrite).map_err(Error::Tables)?;
        let engine = Engine::start(Arc::new(arena), &self.options)?;
        if let (Poll::Idle, Err(error)) = (self.options.poll, cpu_latency::check()) {
            log::no_idle(&error.to_string());
        }
        if self.listens {
            let candidates = match &self.options.control {
                Some(directory) => vec![directory.clone()],
                None => directory::candidates_here(),
            };
            engine.start_control(&candidates)?;
        }
        Ok(engine)
    }
}
