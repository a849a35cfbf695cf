//! userswap: a swap subsystem in user space.
//!
//! An [`Engine`] has a RAM budget and swap devices; a [`Region`] mapped from it is plain memory that may be
//! larger than the budget. Pages that do not fit go to the devices and come back when they are touched,
//! by userfaultfd, without the program taking part. The decisions are in `userswap-policy`; this crate
//! acts on them. ARCHITECTURE.md shows how a page travels.
pub mod account;
mod administer;
mod advice;
mod ahead;
pub mod arena;
mod arrival;
mod batch;
mod bring_back;
mod budget;
mod checksum;
pub mod control;
pub mod core;
pub mod counters;
mod delivery;
pub mod device;
mod engage;
mod engine;
mod error;
mod exclusive;
mod fault;
mod fork;
mod gate;
mod hibernate;
pub mod hints;
mod jobs;
mod kswapd;
pub mod list_lru;
mod log;
pub mod node;
mod nodes;
pub mod options;
pub mod page;
mod probe;
mod queue;
mod range;
pub mod readahead;
mod reclaim;
mod region;
pub mod removal;
mod server;
pub mod shrinker;
pub mod size;
mod slot_reclaim;
pub mod status;
mod swap_in;
mod swap_off;
mod sync;
pub mod sys;
pub mod topology;
mod transfer;
pub mod watermarks;
mod write_back;

pub use bring_back::{NoSuchMethod, SwapoffMethod};
pub use counters::Snapshot;
pub use engine::{Builder, Engine, Usage, check_nodes, default_swap_bytes, open_devices};
pub use error::Error;
pub use fork::ForkTicket;
pub use hibernate::Stayed;
pub use probe::{Support, probe};
pub use region::Region;
pub use swap_off::{Proceed, Progress};
