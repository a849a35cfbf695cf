//! Benchmarks: a load generator compatible with usemem, and the cases that run it under
//! `userswap run` and, beside it, on the kernel's own swap.
//!
//! Programs are measured from outside, without knowledge of the engine: [`usemem::main`] and [`run`];
//! [`kernel::run_limited`] gives the kernel's figure for any other program.
//! Only [`inside`] looks into the engine, to measure single mechanisms.

mod alternate;
mod args;
mod case;
mod choice;
mod disk;
mod figures;
mod format;
mod ideal;
pub mod inside;
mod interrupt;
pub mod kernel;
mod machine;
mod process;
mod random;
mod report;
mod size;
mod sys;
pub mod usemem;

pub use alternate::run;
pub use args::BenchArgs;
pub use case::Case;
pub use interrupt::Interrupted;
pub use process::{Finished, RunError};
