//! Decisions of a swap subsystem, free of I/O, clocks, threads and unsafe code.
//!
//! Everything here is plain data behind `&mut self`: the caller puts each object inside the lock that
//! guards it, asks for a decision, acts outside the lock and reports back what really happened.
//! Construction is cheap at any size: tables start as zeroed memory that costs nothing until touched.

#![cfg_attr(not(test), no_std)]
extern crate alloc;

pub mod allocator;
mod bits;
pub mod devices;
pub mod frames;
pub mod free_batch;
pub mod free_slots;
pub mod kernel;
pub mod lru;
pub mod plist;
pub mod readahead;
pub mod reclaim;
pub mod shrink;
pub mod slot_cache;
pub mod slots;
pub mod spans;
pub mod stream;
pub mod watermark;
pub mod workingset;

// Old path, until the engine uses the new one.
pub use kernel::contention;

pub use allocator::Allocator;
pub use devices::{DeviceId, DeviceTable, NodeId, Placement, Walk};
pub use frames::{FrameRun, Pool};
pub use free_batch::FreeOrder;
pub use free_slots::FreeSlots;
pub use kernel::contention::{Approach, Contention, Remover};
pub use lru::{Link, ListId, Lists};
pub use readahead::{Fault, Hint, Limits, Readahead};
pub use slots::{ClusterCursor, SlotRun, Slots};
pub use stream::{Ahead, Streams, Window};
pub use watermark::{Pressure, Watermarks, min_free_kib};
pub use workingset::{Activity, Counts, Refault, Shadow, Workingset};
