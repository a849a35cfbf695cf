//! What `bench` and the engine's tests need of the kernel: memory, processes, swap files, the cleaner. The engine uses none of it.
//!
//! Calls go through libc's dynamic symbols on purpose: a library that is preloaded into the load generator must see
//! its `mmap`, `munmap` and `fork`.

pub mod cleaner;
pub mod filters;
pub mod lost;
pub mod memory;
pub mod process;
pub mod raw;
pub mod stress;
pub mod swap;

use std::io;

/// Turns the -1 of a system call into the error it left in `errno`.
fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    if result == -1 { Err(io::Error::last_os_error()) } else { Ok(result) }
}
