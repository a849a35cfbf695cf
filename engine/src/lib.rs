//! userswap: a swap subsystem in user space.
//!
//! An [`Engine`] has a RAM budget and swap devices; a [`Region`] mapped from it is plain memory that may be
//! larger than the budget. Pages that do not fit go to the devices and come back when they are touched,
//! by userfaultfd, without the program taking part. The decisions are in `userswap-policy`; this crate
//! acts on them. ARCHITECTURE.md shows how a page travels.
mod administer;
pub mod arena;
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
mod fault;
mod fork;
mod gate;
mod hibernate;
mod kswapd;
mod log;
pub mod node;
mod nodes;
pub mod options;
pub mod page;
mod probe;
mod queue;
mod range;
mod reclaim;
mod region;
mod server;
pub mod size;
pub mod status;
mod swap_in;
mod swap_off;
pub mod sys;
pub mod topology;
mod transfer;
mod write_back;

pub use counters::Snapshot;
pub use engine::{Builder, Engine, Usage, check_nodes, default_swap_bytes, open_devices};
pub use error::Error;
pub use fork::ForkTicket;
pub use hibernate::Stayed;
pub use probe::{Support, probe};
pub use region::Region;
pub use swap_off::{Proceed, Progress};
