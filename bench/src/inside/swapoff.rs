//! The table of the 2020 proposal on the real engine: everything is paged out, then the device is emptied,
//! by the kernel's walk with windows of `page_cluster` and by our own way; beside it the kernel's own swapoff.

pub(crate) mod load;
mod ours;
mod patch;
mod report;

use super::median;
use crate::interrupt::Interrupt;
use crate::kernel::swapoff::{self as kernel, KernelLoad};
use crate::kernel::{self as rival, KernelError, Limits};
use crate::process::RunError;
use clap::Args;
use ours::{Ours, Way};
use report::{KernelTime, Report, Row};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use thiserror::Error;
use userswap::size::parse_size;
use userswap::{Stayed, SwapoffMethod};

/// The share of memory that the proposal filled.
const FILLED_PERCENT: u64 = 85;
/// What a careful administrator would try for the kernel's swapoff; the better one counts.
const KERNEL_CLUSTERS: [u8; 2] = [3, 5];
/// Swap beyond the load itself on the kernel's side.
const SWAP_SPARE_BYTES: u64 = 64 << 20;
/// What a shell adds to a signal's number.
const EXIT_SIGNAL: i32 = 128;

/// Options of `bench swapoff`.
#[derive(Debug, Clone, Args)]
pub struct SwapoffArgs {
    /// RAM budget, and the limit of the kernel's side
    #[arg(long, value_name = "SIZE", default_value = "1900M", value_parser = parse_size)]
    ram: u64,
    /// Memory that is paged out and brought back [default: 85 % of --ram]
    #[arg(long, value_name = "SIZE", value_parser = parse_size)]
    size: Option<u64>,
    /// Directory for the swap files
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    swap: PathBuf,
    /// The rows of the table
    #[arg(long, value_name = "N", default_values_t = [1, 2, 3, 4, 5, 6, 7, 8],
          value_delimiter = ',', value_parser = clap::value_parser!(u8).range(0..=10))]
    page_cluster: Vec<u8>,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measure the kernel's swapoff beside it, in turns (needs root)
    #[arg(long, value_name = "RIVAL")]
    vs: Option<crate::args::Rival>,
    /// Print one JSON object instead of a table
    #[arg(long)]
    json: bool,
}

/// Options of the hidden load of the kernel's side.
#[derive(Debug, Clone, Args)]
pub struct SwapoffLoadArgs {
    bytes: u64,
}

/// Why there are no figures.
#[derive(Debug, Error)]
enum Failure {
    #[error(transparent)]
    Engine(userswap::Error),
    #[error("--swap: {0}")]
    Spec(String),
    #[error("{pinned} pinned pages and {others} others would not leave: is the disk full?",
            pinned = .0.pinned, others = .0.others)]
    Stayed(Stayed),
    #[error("only {0} bytes came back to memory: use a larger --ram or a smaller --size")]
    NotBack(u64),
    #[error("word {0} is not what was written: this is a bug")]
    Wrong(usize),
    #[error("the swap file could not be read past the engine: {0}")]
    Disk(io::Error),
    #[error("{0} cannot do direct I/O: name a directory on a disk")]
    NotDirect(PathBuf),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error("cannot find the running program: {0}")]
    Exe(io::Error),
    #[error("cannot print the report: {0}")]
    Print(io::Error),
}

impl Failure {
    fn exit_code(&self) -> ExitCode {
        match self {
            Self::Kernel(KernelError::Run(RunError::Interrupted(by))) => {
                ExitCode::from(u8::try_from(EXIT_SIGNAL + by.signal).unwrap_or(1))
            }
            _ => ExitCode::FAILURE,
        }
    }
}

/// All runs, by what was run.
#[derive(Debug, Default)]
struct Runs {
    plain: Vec<f64>,
    device: Vec<f64>,
    kernel: Vec<(u8, f64)>,
    walks: Vec<(Way, f64)>,
}

/// Measures and prints.
pub(super) fn run(args: &SwapoffArgs) -> ExitCode {
    let printed = measure(args).and_then(|report| {
        let print = if args.json { Report::print_json } else { Report::print_table };
        print(&report).map_err(Failure::Print)
    });
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("userswap bench: {error}");
            error.exit_code()
        }
    }
}

/// The load of the kernel's side.
pub(super) fn run_load(args: &SwapoffLoadArgs) -> ExitCode {
    load::run(args.bytes)
}

fn measure(args: &SwapoffArgs) -> Result<Report, Failure> {
    let bytes = args.size.unwrap_or(args.ram / 100 * FILLED_PERCENT);
    let page = crate::sys::page_bytes();
    let bytes = bytes / page * page;
    rival::check_disk(&args.swap)?;
    if args.vs.is_some() {
        rival::check(&args.swap)?;
    }
    // Held over all runs, so that a signal between two of them counts for the next.
    let interrupt = Interrupt::hold().map_err(RunError::from).map_err(KernelError::from)?;
    let ours = Ours::start(args.ram, bytes, &args.swap)?;
    let mut runs = Runs::default();
    for number in 1..=args.runs {
        interrupt.check().map_err(RunError::from).map_err(KernelError::from)?;
        one_round(args, &ours, bytes, &mut runs)?;
        let last = |times: &[f64]| times.last().copied().unwrap_or(f64::NAN);
        let (plain, device) = (last(&runs.plain), last(&runs.device));
        eprintln!("round {number} of {}: read {plain:.2} s, swapoff {device:.2} s", args.runs);
    }
    ours.verify()?;
    Ok(report_of(args, bytes, &runs))
}

/// Every variant once.
fn one_round(args: &SwapoffArgs, ours: &Ours, bytes: u64, runs: &mut Runs) -> Result<(), Failure> {
    ours.page_out()?;
    runs.plain.push(ours.read_plainly()?);
    let device = Way { method: SwapoffMethod::Device, page_cluster: KERNEL_CLUSTERS[0] };
    runs.device.push(ours.swap_off(device)?);
    if args.vs.is_some() {
        for page_cluster in KERNEL_CLUSTERS {
            runs.kernel.push((page_cluster, kernel_s(args, bytes, page_cluster)?));
        }
    }
    for &page_cluster in &args.page_cluster {
        for method in [SwapoffMethod::Scaling, SwapoffMethod::Fixed] {
            let way = Way { method, page_cluster };
            ours.page_out()?;
            runs.walks.push((way, ours.swap_off(way)?));
        }
    }
    Ok(())
}

fn kernel_s(args: &SwapoffArgs, bytes: u64, page_cluster: u8) -> Result<f64, Failure> {
    let exe = match std::env::var_os(crate::alternate::EXE_VARIABLE) {
        Some(path) => PathBuf::from(path),
        None => std::env::current_exe().map_err(Failure::Exe)?,
    };
    let mut command = Command::new(exe);
    command.args(["bench", "swapoff-load", &bytes.to_string()]);
    let limits =
        Limits { ram_bytes: args.ram, swap_bytes: bytes + SWAP_SPARE_BYTES, directory: &args.swap };
    let load = KernelLoad { bytes, page_cluster, out_mark: load::OUT_MARK };
    let seconds = kernel::seconds(&mut command, &limits, load)?;
    eprintln!("kernel with page-cluster {page_cluster}: {seconds:.2} s");
    Ok(seconds)
}

fn report_of(args: &SwapoffArgs, bytes: u64, runs: &Runs) -> Report {
    let walk = |wanted: Way| {
        let times = runs.walks.iter().filter(|(way, _)| *way == wanted).map(|(_, time)| *time);
        median(times.collect())
    };
    let row = |&page_cluster: &u8| {
        let published = patch::published(page_cluster);
        Row {
            page_cluster,
            published_scaling_s: published.map(|row| row.scaling_s),
            published_fixed_s: published.map(|row| row.fixed_s),
            scaling_s: walk(Way { method: SwapoffMethod::Scaling, page_cluster }),
            fixed_s: walk(Way { method: SwapoffMethod::Fixed, page_cluster }),
        }
    };
    let of_cluster = |page_cluster: u8| {
        let times = runs.kernel.iter().filter(|(of, _)| *of == page_cluster);
        KernelTime { page_cluster, median_s: median(times.map(|(_, time)| *time).collect()) }
    };
    let kernel = args.vs.map(|_| KERNEL_CLUSTERS.map(of_cluster).to_vec()).unwrap_or_default();
    let rows = args.page_cluster.iter().map(row).collect();
    Report::new((args.ram, bytes), (&runs.plain, &runs.device), rows, kernel)
}
