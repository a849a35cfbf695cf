//! Recorded traces: the file that `userswap run --trace` writes, and what simulations read (docs/trace.md); with samples in
//! it, the record of `run --record` (docs/record.md).
//!
//! The engine records events; [`Writer`] packs them into blocks that each stand alone, so that the file of a program that was
//! killed is whole up to its last block; of that there may be a part. [`Reader`] gives them back, or says in one line what is wrong
//! with a file.
mod code;
mod event;
mod header;
mod reader;
pub mod recorded;
mod sample;
mod uses;
mod writer;

pub use event::{Event, Kind, RUN_MAX};
pub use header::{Header, RECORD_VERSION, RecordHeader, VERSION};
pub use reader::{BadTrace, Block, Reader, is_trace};
pub use sample::{Bucket, Call, DeviceSample, MAPPINGS_MAX, Mapping, Origin, Pages, Sample};
pub use uses::{Recording, Use};
pub use writer::Writer;
