//! The table of the 2020 proposal on the real engine: everything is paged out, then swapoff empties the device,
//! by the kernel's walk with windows of `page_cluster` and by our own way; beside it the kernel's own swapoff.

pub(crate) mod load;
mod ours;
mod published;
mod report;

use crate::figures::{median, median_count};
use crate::format::{Format, Shown};
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::swapoff::{self as kernel, KernelLoad};
use crate::kernel::{self as rival, KernelError, Limits, Place};
use crate::process::{RunError, own_program};
use crate::said::{EXIT_UNREAD, is_unread};
use clap::Args;
use ours::{Ours, Walked, Way};
use report::{KernelTime, Measured, Report, Row};
use std::io;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use thiserror::Error;
use userswap::Stayed;
use userswap::internals::PAGE_BYTES;
use userswap::internals::SwapoffMethod;
use userswap::parse_size;

/// The share of memory that the proposal filled.
const FILLED_PERCENT: u64 = 85;
/// What a careful administrator would try for the kernel's swapoff; the better one counts.
const KERNEL_CLUSTERS: [u8; 2] = [3, 5];

/// The kernel's walks, in the order of the columns: as it was in 2020, as was proposed, tried in the discussion, and
/// done instead.
const WALKS: [SwapoffMethod; 5] = [
    SwapoffMethod::Scaling56,
    SwapoffMethod::Fixed,
    SwapoffMethod::Bumped56,
    SwapoffMethod::Forced56,
    SwapoffMethod::Scaling,
];

/// Options of `bench swapoff`.
#[derive(Debug, Clone, Args)]
pub struct SwapoffArgs {
    /// RAM budget, and the limit of the kernel's side
    #[arg(long, value_name = "SIZE", default_value = "1900M", value_parser = parse_size, allow_hyphen_values = true)]
    ram: u64,
    /// Memory that is paged out, and that swapoff reads back [default: 85 % of --ram]
    #[arg(long, value_name = "SIZE", value_parser = parse_size, allow_hyphen_values = true)]
    size: Option<u64>,
    /// Directory for the swap files
    #[arg(long, value_name = "DIR", default_value = "/var/tmp")]
    swap: PathBuf,
    /// The rows of the table
    #[arg(long, value_name = "N", default_values_t = [1, 2, 3, 4, 5, 6, 7, 8],
          value_delimiter = ',', num_args = 1.., value_parser = clap::value_parser!(u8).range(0..=10))]
    page_cluster: Vec<u8>,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=1000))]
    runs: u32,
    /// Measure the kernel's swapoff beside it, in turns (needs root)
    #[arg(long, value_name = "RIVAL")]
    vs: Option<Rival>,
    #[command(flatten)]
    format: Format,
}

/// What swapoff is measured beside.
#[derive(Debug, Clone, Copy, clap::ValueEnum)]
enum Rival {
    /// The kernel's own swapoff, of a new swap file (needs root)
    Kernel,
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
            Self::Kernel(KernelError::Run(RunError::Interrupted(by))) => by.exit_code(),
            _ => ExitCode::FAILURE,
        }
    }
}

impl From<Interrupted> for Failure {
    fn from(by: Interrupted) -> Self {
        Self::Kernel(KernelError::Run(by.into()))
    }
}

/// All runs, by what was run.
#[derive(Debug)]
struct Runs {
    measured: Measured,
    /// Seconds of the kernel's swapoff with a `page_cluster`.
    kernel: Vec<(u8, f64)>,
    walks: Vec<(Way, Walked)>,
}

/// Measures and prints.
pub(super) fn run(args: &SwapoffArgs) -> ExitCode {
    let printed =
        measure(args).and_then(|report| report.print(args.format).map_err(Failure::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(Failure::Print(error)) if is_unread(&error) => ExitCode::from(EXIT_UNREAD),
        Err(error) => {
            say!("userswap bench: {error}");
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
    let bytes = bytes - bytes % PAGE_BYTES as u64;
    rival::check_disk(&args.swap)?;
    if args.vs.is_some() {
        rival::check(&args.swap)?;
    }
    // Held over all runs; every step of ours looks whether a signal has come.
    let interrupt = Interrupt::hold().map_err(RunError::from).map_err(KernelError::from)?;
    let ours = Ours::start(&interrupt, args.ram, bytes, &args.swap)?;
    let (plain_read_s, device_s) = (Vec::new(), Vec::new());
    let measured = Measured { ram_bytes: args.ram, size_bytes: bytes, plain_read_s, device_s };
    let mut runs = Runs { measured, kernel: Vec::new(), walks: Vec::new() };
    for number in 1..=args.runs {
        one_round(args, &ours, &mut runs)?;
        let last = |times: &[f64]| times.last().copied().unwrap_or(f64::NAN);
        let (plain, device) = (last(&runs.measured.plain_read_s), last(&runs.measured.device_s));
        say!("round {number} of {}: read {plain:.2} s, swapoff {device:.2} s", args.runs);
    }
    ours.verify()?;
    interrupt.check()?;
    Ok(report_of(args, runs))
}

/// Every variant once.
fn one_round(args: &SwapoffArgs, ours: &Ours<'_>, runs: &mut Runs) -> Result<(), Failure> {
    ours.page_out()?;
    runs.measured.plain_read_s.push(ours.read_plainly()?);
    let device = Way { method: SwapoffMethod::Device, page_cluster: KERNEL_CLUSTERS[0] };
    runs.measured.device_s.push(ours.swapoff(device)?.seconds);
    if args.vs.is_some() {
        for page_cluster in KERNEL_CLUSTERS {
            let bytes = runs.measured.size_bytes;
            runs.kernel.push((page_cluster, kernel_s(args, bytes, page_cluster)?));
        }
    }
    for &page_cluster in &args.page_cluster {
        for method in WALKS {
            let way = Way { method, page_cluster };
            ours.page_out()?;
            runs.walks.push((way, ours.swapoff(way)?));
        }
    }
    Ok(())
}

fn kernel_s(args: &SwapoffArgs, bytes: u64, page_cluster: u8) -> Result<f64, Failure> {
    let mut command = Command::new(own_program().map_err(Failure::Exe)?);
    command.args(["bench", "swapoff-load", &bytes.to_string()]);
    let swap_bytes = bytes + rival::SWAP_SPARE_BYTES;
    let place = Place::FileIn(&args.swap);
    let limits = Limits { ram_bytes: args.ram, swap_bytes, place, pool_bytes_max: None };
    let load = KernelLoad { bytes, page_cluster, out_mark: load::OUT_MARK };
    let seconds = kernel::seconds(&mut command, &limits, load)?;
    say!("kernel with page-cluster {page_cluster}: {seconds:.2} s");
    Ok(seconds)
}

fn report_of(args: &SwapoffArgs, runs: Runs) -> Report {
    let middle = |times: Vec<f64>| median(times).expect("every variant has run");
    let walk = |wanted: Way| {
        let of_way = || runs.walks.iter().filter(|(way, _)| *way == wanted).map(|(_, walk)| walk);
        let seconds = middle(of_way().map(|walk| walk.seconds).collect());
        Walked { seconds, requests: median_count(of_way().map(|walk| walk.requests)) }
    };
    let row = |&page_cluster: &u8| {
        let published = published::row_of(page_cluster);
        Row {
            page_cluster,
            published_scaling_s: published.map(|row| row.scaling_s),
            published_fixed_s: published.map(|row| row.fixed_s),
            walks: WALKS.map(|method| walk(Way { method, page_cluster })),
        }
    };
    let of_cluster = |page_cluster: u8| {
        let times = runs.kernel.iter().filter(|(of, _)| *of == page_cluster);
        KernelTime { page_cluster, median_s: middle(times.map(|(_, time)| *time).collect()) }
    };
    let kernel = args.vs.map(|_| KERNEL_CLUSTERS.map(of_cluster).to_vec()).unwrap_or_default();
    let rows = args.page_cluster.iter().map(row).collect();
    Report::new(runs.measured, rows, kernel)
}
