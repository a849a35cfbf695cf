//! The process around an engine: pages that were there before it, fork, its part of a job's budget, and what the kernel
//! permits.
pub mod adopt;
pub mod balance;
mod data_file;
pub mod fork;
mod origins;
pub mod probe;
mod sample;
pub mod share;
mod strangers;
pub mod trace;
