//! userswap: a swap subsystem in user space.
//!
//! An [`Engine`] has a RAM budget and swap devices; a [`Region`] mapped from it is plain memory that may be
//! larger than the budget. Pages that do not fit go to the devices and come back when they are touched,
//! by userfaultfd, without the program taking part. The decisions are in `userswap-policy`; this crate
//! acts on them. ARCHITECTURE.md shows how a page travels.
mod api;
mod base;
mod control;
mod device;
mod fault;
pub mod list_lru;
mod process;
mod reclaim;
mod request;
mod state;
mod swapoff;
mod sys;
mod transfer;

pub use api::account::Account;
pub use api::builder::Builder;
pub use api::engine::Engine;
pub use api::fork::ForkTicket;
pub use api::prepared::Prepared;
pub use api::region::Region;
pub use api::shrinker::Registration;
pub use api::usage::Usage;
pub use base::choice::{FaultMode, IoBackend, OnFull, Transfer};
pub use base::counters::{Percentiles, Snapshot};
pub use base::error::Error;
pub use base::open_error::OpenError;
pub use base::size::{ByteSize, SizeError, parse_size};
pub use device::spec::{SpecError, SwapPath, SwapSpec};
pub use device::throttle::{Speed, Throttle};
pub use list_lru::ShrinkRequest;
pub use process::probe::{Support, probe};
pub use request::hibernate::Stayed;
pub use state::readahead::Settings;
pub use state::shrinkers::{ShrinkResult, Shrinker};
pub use swapoff::method::SwapoffMethod;
pub use swapoff::{Proceed, Progress};
pub use userswap_policy::choice::Unknown;
pub use userswap_policy::devices::{NodeId, Placement};
pub use userswap_policy::readahead::{AddressOrder, Hint, PAGE_CLUSTER_DEFAULT, ReadaheadPolicy};

/// What the other crates of this workspace need beside the library's own face; it may change at any time.
#[doc(hidden)]
pub mod internals {
    pub use crate::api::engine::{check_nodes, open_devices};
    pub use crate::api::options::{MIN_REGION_DEFAULT_BYTES, OPTIONS_VARIABLE, Options};
    pub use crate::base::choice::{Allowed, PAGE_CLUSTERS, RA_POLICIES, VMA_RA};
    pub use crate::base::index::{PageIndex, PageRange};
    pub use crate::base::limits::{RAM_MIN_BYTES, default_swap_bytes};
    pub use crate::base::topology::Topology;
    pub use crate::base::{size, status};
    pub use crate::control::{CONNECTIONS_MAX, directory, protocol, settings};
    pub use crate::device::record::DeviceState;
    pub use crate::device::{Devices, SlotMode, SlotSpan, open};
    pub use crate::state::arena::{ARENA_PAGES_MAX, Arena};
    pub use crate::state::core::{Core, Path};
    pub use crate::state::node::NodeState;
    pub use crate::state::page::PageState;
    pub use crate::sys::{
        PAGE_BYTES, clock, directory as directories, fd, futex, lock, mapping, numa, pagemap,
        pages, process, signal,
    };
    pub use userswap_policy::readahead::page_cluster_of;
}
