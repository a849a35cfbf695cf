//! What a record (`userswap run --record`, docs/record.md) says of a run.
//!
//! [`Record`] reads a file once, in its order, and keeps what reports need: moments, a miss-ratio curve, an access map, costs by
//! mapping. [`words`] says in words what held the run back, [`draw`] makes pictures, [`perfetto`] events for another program to
//! show. Nothing here asks a running program; of the machine only `symbols`,
//! which looks for the names of functions in the program's files.
#![forbid(unsafe_code)]

pub mod access;
pub mod advice;
pub mod curve;
pub mod draw;
mod mappings;
mod moments;
mod origins;
pub mod perfetto;
mod record;
pub mod size;
mod symbols;
pub mod words;

pub use mappings::Cost;
pub use moments::Moment;
pub use record::{Record, Totals};
pub use userswap_trace::is_trace;
