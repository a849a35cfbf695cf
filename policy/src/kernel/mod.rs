//! The kernel's own forms, beside which ours are measured; each is reached by a setting or a bench case.
//!
//! | here | since | reached by | beside |
//! |---|---|---|---|
//! | [`scan`] | Linux 4.11 to 4.19 | `bench slot-alloc` | [`slots`](crate::slots), [`slot_cache`](crate::slot_cache) |
//! | [`cluster`] | Linux 2.6, by the heuristic of 2014 | `swap_ra_policy` `scaling`, `fixed` | [`stream`](crate::stream) |
//! | [`area`] | Linux 4.14 | `swap_ra_policy` `vma` | [`stream`](crate::stream) |
//! | [`contention`] | a series of 2016, never merged | `reclaim_contention` `stall`, `skip` | waiting for the lock |
//!
//! The orders of a batched free (`free_order`) are one pass with three beginnings, and stay together in
//! [`free_batch`](crate::free_batch).

pub mod area;
pub mod cluster;
pub mod contention;
mod heuristic;
pub mod scan;

pub use area::Area;
pub(crate) use cluster::block_around;
pub use cluster::{Cluster, Fixed, Scaling};
