//! The edges to the C library and the kernel, past everything that is interposed.

pub mod callers;
pub mod native;
pub mod next;
pub mod raw;
