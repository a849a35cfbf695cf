//! Benchmarks: a load generator compatible with usemem, and the cases that run it under
//! `userswap run` and, beside it, on the kernel's own swap.
//!
//! Programs are measured from [`outside`], without knowledge of what the engine does;
//! [`kernel::run_limited`] gives the kernel's figure for any other program. Only [`inside`] looks into
//! the engine, to measure single mechanisms. Both use the modules below them: how a load is run, what the
//! disk can do, how figures are shown.

// They panic where nobody reads: see said.rs.
#![deny(clippy::print_stdout, clippy::print_stderr)]

#[macro_use]
mod said;

pub mod inside;
pub mod outside;

mod choice;
mod disk;
mod faults;
mod figures;
mod format;
mod interrupt;
pub mod kernel;
mod line;
mod machine;
mod process;
mod random;
mod size;
pub mod stress;
pub mod usemem;
mod watch;

pub use interrupt::Interrupted;
pub use line::BenchLine;
pub use process::{Finished, RunError};
