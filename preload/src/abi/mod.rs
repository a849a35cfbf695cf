//! The edges to the C library and the kernel, past everything that is interposed.

pub mod allocator;
pub mod backtrace;
pub mod callers;
pub mod context;
pub mod filter_program;
pub mod native;
pub mod next;
pub mod raw;
pub mod raw_code;
pub mod symbols;
pub mod system_call;
pub mod thread_end;
pub mod thread_key;
pub mod thread_locals;
