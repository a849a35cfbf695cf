//! Decisions of a swap subsystem, as pure functions and plain data.
//!
//! Everything here is plain data behind `&mut self`: the caller puts each object inside the lock that
//! guards it, asks for a decision, acts outside the lock and reports back what really happened.
//! Construction is cheap at any size: tables start as zeroed memory that costs nothing until touched.

#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
extern crate alloc;

pub mod awake;
pub mod banks;
pub mod beside;
mod bits;
pub mod block;
pub mod cells;
pub mod choice;
pub mod clean;
pub mod compress;
pub mod devices;
pub mod effort;
pub mod faulty;
pub mod frames;
pub mod free_batch;
pub mod job;
pub mod kernel;
pub mod lent;
pub mod looks;
pub mod lru;
mod median;
pub mod pack;
mod plist;
pub mod polling;
pub mod readahead;
pub mod reclaim;
pub mod recompress;
pub mod retry;
pub mod segments;
pub mod servers;
pub mod shrink;
pub mod sizes;
pub mod slab;
pub mod slabs;
pub mod slot_cache;
pub mod slots;
pub mod spans;
pub mod stream;
pub mod tiers;
pub mod token;
pub mod victims;
pub mod watermark;
pub mod workingset;
