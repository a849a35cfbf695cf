//! Benchmarks: a load generator compatible with usemem, and the cases that run it under
//! `userswap run` and, beside it, on the kernel's own swap.
//!
//! Programs are measured from outside, without knowledge of the engine: [`usemem::main`] and [`run`];
//! [`kernel::run_limited`] is lent to whoever wants the kernel's figure for a program of their own.
//! Only [`inside`] looks into the engine, to measure single mechanisms.

mod alternate;
mod args;
mod case;
mod disk;
mod ideal;
pub mod inside;
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
