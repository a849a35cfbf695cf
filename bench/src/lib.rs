//! Benchmarks: a load generator compatible with usemem, and the cases that run it under
//! `userswap run` and, beside it, on the kernel's own swap.
//!
//! The crate measures programs from outside and therefore knows nothing of the engine. It answers
//! two command lines, [`usemem::main`] and [`run`], and lends [`kernel::run_limited`] to whoever
//! wants the kernel's figure for a program of their own.

mod alternate;
mod args;
mod case;
mod disk;
mod ideal;
mod interrupt;
pub mod kernel;
mod machine;
mod process;
mod report;
mod size;
mod sys;
pub mod usemem;

pub use alternate::run;
pub use args::{BenchArgs, Fault, Rival};
pub use case::Case;
pub use interrupt::Interrupted;
pub use process::{Finished, RunError};
