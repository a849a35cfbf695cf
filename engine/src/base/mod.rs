//! What every room uses: numbers that name things, bounds, choices, sizes, errors, counters, the machine.
//!
//! No act and no state of an engine is here; nothing here knows another room but `sys`.
pub mod busy;
pub mod checksum;
pub mod choice;
pub mod counters;
pub mod elf;
pub mod error;
pub mod index;
pub mod limits;
pub mod log;
pub mod memory_limit;
pub mod open_error;
pub mod sanitizer;
pub mod script;
pub mod shard;
pub mod size;
pub mod status;
pub mod topology;
pub mod whole_file;
