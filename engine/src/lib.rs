//! A swap subsystem in user space: a program maps regions of plain memory that may be larger than the RAM it is allowed.
//! Pages that do not fit go to swap devices (files, block devices, memory) and are swapped in by page faults, through
//! userfaultfd, while the rest of the machine keeps its own swap as it is.
//!
//! ```no_run
//! use userswap::Builder;
//!
//! let engine = Builder::new(64 << 20).build()?; // 64 MiB of RAM, swap in a temporary file
//! let mut region = engine.map(1 << 30)?; // 1 GiB, all zero
//! region.as_mut_slice()[123] = 45; // plain memory: more of it than fits is swapped
//! region.prefetch(0..1 << 20)?; // swap in before it is needed
//! region.discard(1 << 20..2 << 20)?; // forget, without a write
//! engine.set_budget(128 << 20)?; // while the program runs
//! println!("{:?} {:?}", engine.usage(), engine.counters());
//! # Ok::<(), userswap::Error>(())
//! ```
//!
//! What to read next:
//!
//! - [`Builder`] chooses the budget, the swap devices ([`SwapSpec`]) and how faults and pages travel.
//! - [`Region`] is the memory: slices, advice, pins.
//! - [`Heap`] is a malloc on such memory.
//! - [`Engine`] maps regions, changes the budget and settings while the program runs, counts, and survives fork.
//! - [`Shrinker`] and [`Account`] let a program's own caches share the budget and give way to its pages.
//! - [`list_lru::ListLru`] is the list that such a cache needs; the example `object_cache` has all three.
//!
//! It runs on x86-64 with Linux 5.7 or newer; from 6.8 on pages are moved instead of copied, which is faster. The process
//! must be allowed to use userfaultfd: by CAP_SYS_PTRACE, by `vm.unprivileged_userfaultfd=1`, or by access to
//! `/dev/userfaultfd`. [`probe()`] says what is permitted.
mod api;
mod base;
mod control;
mod demotion;
mod device;
mod fault;
mod job;
pub mod list_lru;
mod process;
mod reclaim;
mod request;
mod state;
mod swapoff;
mod sys;
mod transfer;

pub use api::account::Account;
pub use api::advice::Advice;
pub use api::builder::Builder;
pub use api::engine::Engine;
pub use api::heap::Heap;
pub use api::protect::Protection;
pub use api::region::Region;
pub use api::shrinker::{Registration, Scanned};
pub use api::usage::Usage;
pub use base::choice::{FaultMode, IoBackend, OnFull, RawCalls, Transfer};
pub use base::counters::{Percentiles, Snapshot};
pub use base::error::Error;
pub use base::open_error::OpenError;
pub use base::size::{ByteSize, SizeError, parse_size};
pub use device::compress::{Compress, CompressError};
pub use device::spec::{SpecError, SwapPath, SwapSpec};
pub use device::throttle::{Speed, Throttle};
pub use list_lru::ShrinkRequest;
pub use process::fork::ForkTicket;
pub use process::probe::{Support, probe};
pub use request::hibernate::Stayed;
pub use state::readahead::Settings as ReadaheadSettings;
pub use state::shrinkers::{ShrinkResult, Shrinker};
pub use userswap_policy::choice::Unknown;
pub use userswap_policy::devices::{NodeId, Placement, SwaponError};
pub use userswap_policy::polling::Poll;
pub use userswap_policy::readahead::{AddressOrder, ReadaheadPolicy};

/// What the other crates of this workspace need beside the public names; it may change at any time.
#[doc(hidden)]
pub mod internals {
    pub use crate::api::engine::{check_devices, check_nodes, open_devices, swaps_of};
    pub use crate::api::options::{MIN_REGION_DEFAULT_BYTES, OPTIONS_VARIABLE, Options};
    pub use crate::api::prepared::{Gathered, Prepared};
    pub use crate::base::choice::{Allowed, PAGE_CLUSTERS, RA_POLICIES, VMA_RA};
    pub use crate::base::index::{PageIndex, PageRange, Slot};
    pub use crate::base::limits::{RAM_MAX_BYTES, RAM_MIN_BYTES, default_swap_bytes};
    pub use crate::base::topology::Topology;
    pub use crate::base::{elf, memory_limit, sanitizer, script, shard, size, status, whole_file};
    pub use crate::control::{CONNECTIONS_MAX, directory, other, protocol, settings};
    pub use crate::device::cipher::Cipher;
    pub use crate::device::loans::BORROWERS_MAX;
    pub use crate::device::record::{Device, DeviceState, Holding};
    pub use crate::device::remote;
    pub use crate::device::s3;
    pub use crate::device::zram::{Stored, codec, options as compression};
    pub use crate::device::{Devices, SlotMode, SlotSpan, open};
    pub use crate::job::ledger::{self, Ledger};
    pub use crate::job::member::{Member, Turn};
    pub use crate::process::probe::{Means, means};
    pub use crate::process::share::anonymous_pages;
    pub use crate::state::address_space::ARENA_PAGES_MAX;
    pub use crate::state::arena::Arena;
    pub use crate::state::core::{Core, Path};
    pub use crate::state::node::NodeState;
    pub use crate::state::origins::Origin;
    pub use crate::state::page::{Mapped, PageState};
    pub use crate::state::range_set::RangeSet;
    pub use crate::state::unmap_lock::Parts;
    pub use crate::swapoff::method::SwapoffMethod;
    pub use crate::swapoff::{Proceed, Progress};
    pub use crate::sys::shared_rows::Table;
    pub use crate::sys::uffd::{Rights, Way};
    pub use crate::sys::{
        PAGE_BYTES, bench, clock, cpu_latency, directory as directories, fd, file_limit, filters,
        futex, lock, mapping, maps, numa, own_fd, own_stack, own_table, pagemap, pages, peer,
        process, scattered, signal, told,
    };
    pub use userswap_policy::readahead::{Hint, PAGE_CLUSTER_DEFAULT, page_cluster_of};
}
