//! Programs measured from outside: under `userswap run` and, beside it, on the kernel's swap.
//!
//! `args` checks the command line, `case` says what the load generator has to do, `alternate` runs both
//! sides in turns, `ideal` is the time that no swap can undercut, `report` shows the figures, and `table` those of all cases.
//! `forks` is what a fork costs, `jobs` are programs that people run, `devices` what is swapped to, `budget` how any program
//! gets its share from us, `excess` whether it kept to it, `cells` how figures look.

mod alternate;
mod args;
mod beside;
mod budget;
mod case;
mod cells;
mod devices;
mod excess;
mod forks;
mod ideal;
mod jobs;
mod report;
mod table;

pub use alternate::run;
pub use args::BenchArgs;
pub use case::Case;
pub use forks::ForkArgs;
pub(crate) use forks::run as run_forks;
pub use jobs::JobsArgs;
pub(crate) use jobs::run as run_jobs;
pub use table::TableArgs;
pub(crate) use table::run as run_all;
