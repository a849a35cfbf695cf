//! Measurements inside one process, on the engine as a library: mechanisms that no program sees alone.
//!
//! Each case prints a table, or with `--json` one object: `case`, `rows`, `machine`, `kernel`. Runs of the
//! variants take turns, and each row is the median of its runs.

mod contention;
mod device_choice;
mod list_count;
mod list_lru;
mod placement;
mod readahead;
mod slot_alloc;
mod slot_free;
mod store;
pub(crate) mod swapoff;
mod words;

use crate::figures::median;
use crate::format::Format;
use crate::machine::{self, Machine};
use crate::said::{EXIT_UNREAD, is_unread};
use clap::Subcommand;
use comfy_table::{CellAlignment, Table, presets};
use serde::Serialize;
use std::io::Write;
use std::process::ExitCode;
use userswap::internals::size::SIZE_MAX_BYTES;
use userswap::{ByteSize, Error, SwapPath, SwapSpec, parse_size};

/// The exit status of a wrong command line.
const EXIT_USAGE: u8 = 2;
/// More runs of a variant than this are a mistake.
const RUNS_MAX: i64 = 1000;
/// More memory than this is one too: devices, which are several times as large, could not be named.
const MEMORY_MAX_BYTES: u64 = SIZE_MAX_BYTES >> 10;

/// What `userswap bench` measures beside whole programs.
#[derive(Debug, Clone, Subcommand)]
pub enum InsideCase {
    /// Slots allocated per second: slot caches, per-CPU clusters, one cluster
    SlotAlloc(slot_alloc::SlotAllocArgs),
    /// Time to free a region's slots, in sorted, merged, unsorted and grouped batches
    SlotFree(slot_free::SlotFreeArgs),
    /// Lists of reclaimable items: one lock, a lock per node, other crates' caches
    ListLru(list_lru::ListLruArgs),
    /// Counting all items of lists by node: every counter, or a mask first
    ListCount(list_count::ListCountArgs),
    /// Pages that a core compresses for compressed memory, and unpacks, by kind of data
    Store(store::StoreArgs),
    /// Choosing a swap device on machines of 1 to 64 nodes
    DeviceChoice(device_choice::DeviceChoiceArgs),
    /// Devices of different nodes: one list, equal priorities, per-node lists
    Placement(placement::PlacementArgs),
    /// Swapoff of a whole device: in its order, by the kernel's walk, and by the kernel
    Swapoff(swapoff::SwapoffArgs),
    /// The load of the kernel's side of `swapoff`
    #[command(hide = true)]
    SwapoffLoad(swapoff::SwapoffLoadArgs),
    /// Reclaimers that unmap pages of the same memory: wait, stall, skip, stall until balanced
    Contention(contention::ContentionArgs),
    /// Readahead policies against orders of reading, on one disk
    Readahead(readahead::ReadaheadArgs),
}

/// One row of a case: its columns in order.
trait Row: Serialize {
    /// Names of the columns.
    const COLUMNS: &'static [&'static str];
    /// One text for each of the columns.
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
    let checked = match case {
        InsideCase::SlotAlloc(args) => args.check(),
        InsideCase::Readahead(args) => args.check(),
        _ => Ok(()),
    };
    if let Err(line) = checked {
        // Where nobody reads the status says it.
        let _ = writeln!(std::io::stderr(), "userswap: {line}");
        return ExitCode::from(EXIT_USAGE);
    }
    match case {
        InsideCase::SlotAlloc(args) => show("slot-alloc", slot_alloc::measure(args), args.format),
        InsideCase::SlotFree(args) => show("slot-free", slot_free::measure(args), args.format),
        InsideCase::ListLru(args) => show("list-lru", list_lru::measure(args), args.format),
        InsideCase::ListCount(args) => show("list-count", list_count::measure(args), args.format),
        InsideCase::Store(args) => show("store", store::measure(args), args.format),
        InsideCase::DeviceChoice(args) => {
            show("device-choice", device_choice::measure(args), args.format)
        }
        InsideCase::Placement(args) => show("placement", placement::measure(args), args.format),
        InsideCase::Swapoff(args) => swapoff::run(args),
        InsideCase::SwapoffLoad(args) => swapoff::run_load(args),
        InsideCase::Contention(args) => show("contention", contention::measure(args), args.format),
        InsideCase::Readahead(args) => show("readahead", readahead::measure(args), args.format),
    }
}

fn show<R: Row>(case: &'static str, rows: Outcome<R>, format: Format) -> ExitCode {
    let printed = match rows {
        Ok(rows) => print(case, &rows, format),
        Err(error) => {
            say!("userswap: {error}");
            return ExitCode::FAILURE;
        }
    };
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if is_unread(&error) => ExitCode::from(EXIT_UNREAD),
        Err(error) => {
            say!("userswap: cannot print the report: {error}");
            ExitCode::FAILURE
        }
    }
}

fn print<R: Row>(case: &'static str, rows: &[R], format: Format) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    if format.json {
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

/// A size of memory.
fn parse_memory(text: &str) -> Result<u64, String> {
    let bytes = parse_size(text).map_err(|error| error.to_string())?;
    if bytes > MEMORY_MAX_BYTES {
        return Err(format!("{text:?} is too large: use at most {}", ByteSize(MEMORY_MAX_BYTES)));
    }
    Ok(bytes)
}

/// A device in memory, one of equals.
fn memory_device(bytes: u64) -> SwapSpec {
    SwapSpec { path: SwapPath::Memory, size: Some(bytes), priority: Some(1), ..SwapSpec::at("") }
}

/// What can go wrong while measuring.
type Outcome<R> = Result<Vec<R>, Error>;

/// Runs all variants in turns, `runs` times; returns the runs of each.
fn in_turns<V: Copy, R>(
    runs: u32,
    variants: &[V],
    one_run: impl Fn(V) -> Result<R, Error>,
) -> Outcome<Vec<R>> {
    let mut of_variants: Vec<Vec<R>> = variants.iter().map(|_| Vec::new()).collect();
    for _ in 0..runs {
        for (of_variant, variant) in of_variants.iter_mut().zip(variants) {
            of_variant.push(one_run(*variant)?);
        }
    }
    Ok(of_variants)
}
