//! Programs measured from outside: the load generator under `userswap run` and, beside it, on the kernel's swap.
//!
//! `args` checks the command line, `case` says what the load generator has to do, `alternate` runs both
//! sides in turns, `ideal` is the time that no swap can undercut, `report` shows the figures, and `table` those of all cases.

mod alternate;
mod args;
mod case;
mod ideal;
mod report;
mod table;

pub use alternate::run;
pub use args::BenchArgs;
pub use case::Case;
pub use table::TableArgs;
pub(crate) use table::run as run_all;
