//! The measurement: runs of both sides in turns, so that a machine that drifts drifts for both.

use super::args::{BenchArgs, Plan, UsageError};
use super::beside::Beside;
use super::budget::Budget;
use super::case::{Load, Program};
use super::excess::Excess;
use super::ideal;
use super::report::{Engine, Report, Run, Within};
use crate::disk::Disk;
use crate::format::{Format, Shown};
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::{self, KernelError, Limited, Limits, Rival};
use crate::machine;
use crate::process::{self, Course, Finished, RunError};
use crate::said::{EXIT_UNREAD, is_unread};
use crate::size;
use std::cell::Cell;
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use thiserror::Error;
use userswap::internals::PAGE_BYTES;

/// The exit status of a wrong command line.
const EXIT_USAGE: u8 = 2;
/// The limit of the kernel's side fits after so many runs, or will not.
const BESIDE_RUNS_MAX: usize = 8;
/// Zswap's pool may be half of the budget: its fifth of the machine is no bound for one program.
const POOL_SHARE: u64 = 2;
/// The unlimited run may take this share of the memory that is there: 1 in this many.
const NATIVE_SHARE: u64 = 2;
#[derive(Debug, Error)]
pub(super) enum BenchError {
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("cannot find the running program: {0}")]
    Exe(io::Error),
    #[error(transparent)]
    Kernel(#[from] KernelError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("{side}: the load failed: {status}\n{stderr}")]
    Failed { side: Side, status: ExitStatus, stderr: String },
    #[error("{side}: the load's output is not usable: {why}\n{stderr}")]
    Output { side: Side, why: String, stderr: String },
    #[error(
        "the kernel's zram does not hold {size} of this data within --ram {ram}: use a smaller --size"
    )]
    NoFit { size: String, ram: String },
    #[error("userswap: the run is no figure: {0}")]
    Exceeded(Excess),
    #[error("cannot make a directory for statistics below TMPDIR: {0}")]
    Statistics(io::Error),
    #[error("cannot make a directory for programs below TMPDIR: {0}")]
    Workshop(io::Error),
    #[error("cannot print the report: {0}")]
    Print(io::Error),
}

impl BenchError {
    pub(super) fn interrupted(&self) -> Option<Interrupted> {
        match self {
            Self::Run(RunError::Interrupted(by))
            | Self::Kernel(KernelError::Run(RunError::Interrupted(by))) => Some(*by),
            _ => None,
        }
    }

    fn exit_code(&self) -> ExitCode {
        match (self, self.interrupted()) {
            (Self::Usage(_), _) => ExitCode::from(EXIT_USAGE),
            (_, Some(by)) => by.exit_code(),
            _ => ExitCode::FAILURE,
        }
    }

    /// Tells people, and what to exit with.
    pub(super) fn told(&self) -> ExitCode {
        if matches!(self, Self::Print(error) if is_unread(error)) {
            return ExitCode::from(EXIT_UNREAD);
        }
        say!("userswap bench: {}", self.to_string().trim_end());
        self.exit_code()
    }
}

/// Where a load runs: one of the engines, or nowhere limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Limited(Engine),
    Native,
}

impl std::fmt::Display for Side {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Limited(engine) => write!(out, "{engine}"),
            Self::Native => out.write_str("without a limit"),
        }
    }
}

/// Measures what `args` ask for and prints the report; the status is 2 for a wrong value, 128 and
/// the signal after an interruption, 1 for any other failure.
pub fn run(args: BenchArgs) -> ExitCode {
    let printed = args
        .check()
        .map_err(BenchError::from)
        .and_then(|plan| measure(&plan, disk(&plan)))
        .and_then(|report| report.print(Format { json: args.json }).map_err(BenchError::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.told(),
    }
}

/// Runs what `plan` says; without the speed of a disk there is no ideal.
pub(super) fn measure(plan: &Plan, disk: Option<Disk>) -> Result<Report, BenchError> {
    let directory = plan.devices.swap_directory();
    if let Some(rival) = plan.rival {
        rival.place(&directory, plan.devices.compression()).check()?;
    }
    // Held over all runs, so that a signal between two of them counts for the next.
    let interrupt = Interrupt::hold().map_err(RunError::from)?;
    let bench = Bench {
        plan,
        exe: process::own_program().map_err(BenchError::Exe)?,
        directory: &directory,
        beside: Cell::new(Beside::new(plan)),
        has_told: Cell::new(false),
    };
    let native_user_s = bench.native_user_s()?;
    let ideal_s = ideal::seconds(plan, native_user_s, disk);
    let engines: &[Engine] = match plan.rival {
        Some(_) => &[Engine::Userswap, Engine::Kernel],
        None => &[Engine::Userswap],
    };
    let mut runs = Vec::new();
    for number in 1..=plan.runs {
        for &engine in engines {
            interrupt.check().map_err(RunError::from)?;
            let run = bench.run(engine)?;
            say!("{engine} {number} of {}: {:.2} s", plan.runs, run.figures.wall_s);
            runs.push(run);
        }
    }
    Ok(Report::new(plan, runs, ideal_s, disk))
}

/// The speed of the disk to which `plan` swaps; why there is none is said.
pub(super) fn disk(plan: &Plan) -> Option<Disk> {
    if !plan.devices.are_on_one_disk() {
        return None;
    }
    let directory = plan.devices.swap_directory();
    match Disk::measure(&directory, plan.size_bytes) {
        Ok(disk) => Some(disk),
        Err(error) => {
            let path = directory.display();
            say!("the disk below {path} could not be measured, so there is no ideal: {error}");
            None
        }
    }
}

/// Memory of compressed pages that is outside the limit of the kernel's side.
enum Compressed {
    Nothing,
    /// Limit and memory are the budget.
    Within(Within),
    /// So many bytes more than the budget.
    OnTop(u64),
}

impl Compressed {
    /// What a rival has taken whose limit is the whole budget.
    fn on_top(rival: Rival, bytes_max: Option<u64>) -> Self {
        bytes_max.filter(|_| rival == Rival::Zram).map_or(Self::Nothing, Self::OnTop)
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    exe: PathBuf,
    directory: &'a Path,
    /// What is known of the kernel's compressed pages after its last run.
    beside: Cell<Beside>,
    /// It has been said with what zswap compresses.
    has_told: Cell<bool>,
}

impl Bench<'_> {
    /// The load's own user time; of a load that would not fit the machine, scaled from a part.
    fn native_user_s(&self) -> Result<f64, BenchError> {
        let whole = self.plan.size_bytes;
        let least = self.plan.tasks as u64 * PAGE_BYTES as u64;
        let part = whole.min((machine::available_bytes() / NATIVE_SHARE).max(least));
        let load = Load::new(self.plan, part);
        let finished = process::run(&mut self.native(&load), &Course::new(load.part))?;
        self.throughput(Side::Native, &load, &finished)?;
        let user_s = finished.user.as_secs_f64() * whole as f64 / part as f64;
        say!("without a limit: {:.2} s, {user_s:.2} s of it user time", {
            finished.wall.as_secs_f64()
        });
        Ok(user_s)
    }

    fn run(&self, engine: Engine) -> Result<Run, BenchError> {
        let load = Load::new(self.plan, self.plan.size_bytes);
        let course = Course::new(load.part);
        let (finished, compressed) = match engine {
            Engine::Userswap => {
                let mut words = self.program(&load);
                words.extend(load.args.iter().map(OsString::from));
                (self.budget().run(&words, course)?.within_budget()?, Compressed::Nothing)
            }
            Engine::Kernel => self.on_kernel(&load, &course)?,
        };
        let throughput_kbs = self.throughput(Side::Limited(engine), &load, &finished)?;
        let latency = load.latency(&finished.stdout);
        let (within, compressed_bytes_on_top) = match compressed {
            Compressed::Nothing => (None, None),
            Compressed::Within(within) => (Some(within), None),
            Compressed::OnTop(bytes) => (None, Some(bytes)),
        };
        let figures = finished.figures();
        Ok(Run { engine, figures, throughput_kbs, latency, within, compressed_bytes_on_top })
    }

    /// Where compressed pages are part of our budget, or the kernel has some, they are part of the kernel's budget too: a run
    /// that took more or less in all is repeated with another limit.
    fn on_kernel(
        &self,
        load: &Load,
        course: &Course,
    ) -> Result<(Finished, Compressed), BenchError> {
        let rival = self.plan.rival.unwrap_or(Rival::Kernel);
        let ram_bytes = self.plan.ram_bytes;
        let mut limits = Limits {
            ram_bytes,
            swap_bytes: self.plan.size_bytes + kernel::SWAP_SPARE_BYTES,
            place: rival.place(self.directory, self.plan.devices.compression()),
            pool_bytes_max: Some(ram_bytes / POOL_SHARE),
        };
        let is_sharing = match rival {
            Rival::Kernel => false,
            Rival::Zram => self.plan.devices.compression().is_some(),
            Rival::Zswap => kernel::leaves_zswap_out()?,
        };
        if !is_sharing {
            let limited = kernel::run(&mut self.native(load), &limits, course)?;
            self.tell_compressor(&limited);
            return Ok((limited.finished, Compressed::on_top(rival, limited.compressed_bytes_max)));
        }
        for _ in 0..BESIDE_RUNS_MAX {
            let mut beside = self.beside.get();
            limits.ram_bytes = beside.limit_bytes;
            let limited = kernel::run(&mut self.native(load), &limits, course)?;
            self.throughput(Side::Limited(Engine::Kernel), load, &limited.finished)?;
            self.tell_compressor(&limited);
            let compressed_bytes = limited.compressed_bytes_max.unwrap_or_default();
            if beside.fits(compressed_bytes) {
                let limit_bytes = beside.limit_bytes;
                let within = Within { limit_bytes, compressed_bytes_max: compressed_bytes };
                return Ok((limited.finished, Compressed::Within(within)));
            }
            let (limit, compressed) = (beside.limit_bytes >> 20, compressed_bytes >> 20);
            say!("kernel: {limit} MiB and {compressed} MiB of compressed pages: again");
            if !beside.learn(compressed_bytes) {
                break;
            }
            self.beside.set(beside);
        }
        let size = size::display(self.plan.size_bytes);
        Err(BenchError::NoFit { size, ram: size::display(self.plan.ram_bytes) })
    }

    /// Says once that zswap compresses otherwise than we do.
    fn tell_compressor(&self, limited: &Limited) {
        let asked = self.plan.devices.compression();
        if let Some(name) = limited.compressor.as_deref().filter(|name| Some(*name) != asked)
            && !self.has_told.replace(true)
        {
            say!(
                "kernel: its zswap compresses with {name}, not {}",
                asked.unwrap_or("at all here")
            );
        }
    }

    fn budget(&self) -> Budget<'_> {
        let Plan { ram_bytes, fault, poll, ref swap, compress, .. } = *self.plan;
        Budget { exe: &self.exe, ram_bytes, fault, poll, swap, compress }
    }

    /// A run that failed or did not say what it should is an error, never a number.
    fn throughput(&self, side: Side, load: &Load, done: &Finished) -> Result<u64, BenchError> {
        let stderr = || done.stderr.clone();
        if !done.status.success() {
            return Err(BenchError::Failed { side, status: done.status, stderr: stderr() });
        }
        load.throughput_kbs(&done.stdout).map_err(|why| BenchError::Output {
            side,
            why,
            stderr: stderr(),
        })
    }

    fn native(&self, load: &Load) -> Command {
        let mut words = self.program(load).into_iter();
        let mut command = Command::new(words.next().expect("a load has a program"));
        command.args(words).args(&load.args);
        command
    }

    /// What comes before the arguments of a load.
    fn program(&self, load: &Load) -> Vec<OsString> {
        match load.program {
            Program::Usemem => vec![self.exe.clone().into(), "usemem".into()],
            Program::Python => vec!["python3".into()],
        }
    }
}
