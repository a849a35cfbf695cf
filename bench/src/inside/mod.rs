//! Measurements inside one process, on the engine as a library: mechanisms that no program sees alone.
//!
//! Each case prints a table, or with `--json` one object: `case`, `rows`, `machine`, `kernel`. Runs of the
//! variants take turns, and each row is the median of its runs.

mod contention;
mod list_lru;
mod placement;
mod readahead;
mod slot_alloc;
mod slot_free;
pub(crate) mod swapoff;

use crate::machine::{self, Machine};
use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use userswap::Error;

/// The cases.
#[derive(Debug, Clone, Subcommand)]
pub enum InsideCase {
    /// Slots allocated per second: slot caches, per-CPU clusters, one cluster
    SlotAlloc(slot_alloc::SlotAllocArgs),
    /// Time to free a region's slots, in sorted, merged and unsorted batches
    SlotFree(slot_free::SlotFreeArgs),
    /// Lists of reclaimable items: one lock, a lock per node, other crates' caches
    ListLru(list_lru::ListLruArgs),
    /// Devices of different nodes: one list, equal priorities, per-node lists
    Placement(placement::PlacementArgs),
    /// Bringing a whole device back: in its order, by the kernel's walk, and by the kernel
    Swapoff(swapoff::SwapoffArgs),
    /// The load of the kernel's side of `swapoff`
    #[command(hide = true)]
    SwapoffLoad(swapoff::SwapoffLoadArgs),
    /// Reclaimers that take pages out of the same memory: wait, stall, skip
    Contention(contention::ContentionArgs),
    /// Readahead policies against orders of reading, on one disk
    Readahead(readahead::ReadaheadArgs),
}

/// One row of a case: its columns in order.
trait Row: Serialize {
    /// Names of the columns.
    const COLUMNS: &'static [&'static str];
    /// The cells.
    fn cells(&self) -> Vec<String>;
}

#[derive(Serialize)]
struct Report<'a, R> {
    case: &'static str,
    rows: &'a [R],
    machine: Machine,
    kernel: String,
}

/// Measures a case and prints it.
pub fn run(case: &InsideCase) -> ExitCode {
    let done = match case {
        InsideCase::SlotAlloc(args) => {
            slot_alloc::measure(args).map(|rows| print("slot-alloc", &rows, args.json))
        }
        InsideCase::SlotFree(args) => {
            slot_free::measure(args).map(|rows| print("slot-free", &rows, args.json))
        }
        InsideCase::ListLru(args) => {
            list_lru::measure(args).map(|rows| print("list-lru", &rows, args.json))
        }
        InsideCase::Placement(args) => {
            placement::measure(args).map(|rows| print("placement", &rows, args.json))
        }
        InsideCase::Swapoff(args) => return swapoff::run(args),
        InsideCase::SwapoffLoad(args) => return swapoff::run_load(args),
        InsideCase::Contention(args) => {
            contention::measure(args).map(|rows| print("contention", &rows, args.json))
        }
        InsideCase::Readahead(args) => {
            readahead::measure(args).map(|rows| print("readahead", &rows, args.json))
        }
    };
    match done {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(error)) => {
            eprintln!("userswap: cannot print the report: {error}");
            ExitCode::FAILURE
        }
        Err(error) => {
            eprintln!("userswap: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print<R: Row>(case: &'static str, rows: &[R], json: bool) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if json {
        let machine = Machine::this();
        let report = Report { case, rows, machine, kernel: machine::kernel_release() };
        serde_json::to_writer(&mut out, &report)?;
        return writeln!(out);
    }
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_header(R::COLUMNS);
    table.add_rows(rows.iter().map(R::cells));
    for column in table.column_iter_mut().skip(1) {
        column.set_cell_alignment(CellAlignment::Right);
    }
    writeln!(out, "{table}")
}

/// The median of an odd or even number of figures.
fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    let middle = figures.len() / 2;
    match figures.len() % 2 {
        _ if figures.is_empty() => 0.0,
        0 => (figures[middle - 1] + figures[middle]) / 2.0,
        _ => figures[middle],
    }
}

/// What can go wrong while measuring.
type Outcome<R> = Result<Vec<R>, Error>;

/// A generator good enough for places to write to.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % bound
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
        assert_eq!(median(vec![4.0, 1.0, 2.0, 3.0]), 2.5);
        assert_eq!(median(Vec::new()), 0.0);
    }
}
