//! Programs measured from outside: the load generator under `userswap run` and, beside it, on the kernel's swap.
//!
//! `args` checks the command line, `case` says what the load generator has to do, `alternate` runs both
//! sides in turns, `ideal` is the time that no swap can undercut, and `report` shows the figures.

mod alternate;
mod args;
mod case;
mod ideal;
mod report;

pub use alternate::run;
pub use args::BenchArgs;
pub use case::Case;
