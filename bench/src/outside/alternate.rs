//! The measurement: runs of both sides in turns, so that a machine that drifts drifts for both.

use super::args::{BenchArgs, Plan, UsageError};
use super::case::{Load, Program};
use super::ideal;
use super::report::{Engine, Report, Run};
use crate::disk::Disk;
use crate::faults::{Engines, Faults};
use crate::format::{Format, Shown};
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::{self, KernelError, Limits};
use crate::machine;
use crate::process::{self, Finished, RunError};
use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::sync::Arc;
use thiserror::Error;
use userswap::internals::PAGE_BYTES;

/// The exit status of a wrong command line.
const EXIT_USAGE: u8 = 2;
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
    #[error("cannot make a directory for statistics below TMPDIR: {0}")]
    Statistics(io::Error),
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
        eprintln!("userswap bench: {}", self.to_string().trim_end());
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
        .and_then(|plan| measure(&plan, disk(&plan.swap_directory(), plan.size_bytes)))
        .and_then(|report| report.print(Format { json: args.json }).map_err(BenchError::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.told(),
    }
}

/// Runs what `plan` says; without the speed of a disk there is no ideal.
pub(super) fn measure(plan: &Plan, disk: Option<Disk>) -> Result<Report, BenchError> {
    let directory = plan.swap_directory();
    if plan.rival.is_some() {
        plan.rival_place(&directory).check()?;
    }
    // Held over all runs, so that a signal between two of them counts for the next.
    let interrupt = Interrupt::hold().map_err(RunError::from)?;
    let bench = Bench {
        plan,
        exe: process::own_program().map_err(BenchError::Exe)?,
        directory: &directory,
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
            eprintln!("{engine} {number} of {}: {:.2} s", plan.runs, run.wall_s);
            runs.push(run);
        }
    }
    Ok(Report::new(plan, runs, ideal_s, disk))
}

/// The speed of the disk below a directory; why there is none is said.
pub(super) fn disk(directory: &Path, size_bytes: u64) -> Option<Disk> {
    match Disk::measure(directory, size_bytes) {
        Ok(disk) => Some(disk),
        Err(error) => {
            let path = directory.display();
            eprintln!("the disk below {path} could not be measured, so there is no ideal: {error}");
            None
        }
    }
}

struct Bench<'a> {
    plan: &'a Plan,
    exe: PathBuf,
    directory: &'a Path,
}

impl Bench<'_> {
    /// The load's own user time; of a load that would not fit the machine, scaled from a part.
    fn native_user_s(&self) -> Result<f64, BenchError> {
        let whole = self.plan.size_bytes;
        let least = self.plan.tasks as u64 * PAGE_BYTES as u64;
        let part = whole.min((machine::available_bytes() / NATIVE_SHARE).max(least));
        let load = Load::new(self.plan, part);
        let faults = Arc::new(Faults::Kernel);
        let finished = process::run(&mut self.native(&load), load.part, &faults)?;
        self.throughput(Side::Native, &load, &finished)?;
        let user_s = finished.user.as_secs_f64() * whole as f64 / part as f64;
        eprintln!("without a limit: {:.2} s, {user_s:.2} s of it user time", {
            finished.wall.as_secs_f64()
        });
        Ok(user_s)
    }

    fn run(&self, engine: Engine) -> Result<Run, BenchError> {
        let load = Load::new(self.plan, self.plan.size_bytes);
        let finished = match engine {
            Engine::Userswap => self.run_userswap(&load)?,
            Engine::Kernel => {
                let limits = Limits {
                    ram_bytes: self.plan.ram_bytes,
                    swap_bytes: self.plan.size_bytes + kernel::SWAP_SPARE_BYTES,
                    place: self.plan.rival_place(self.directory),
                };
                kernel::run(&mut self.native(&load), &limits, load.part)?
            }
        };
        let throughput_kbs = self.throughput(Side::Limited(engine), &load, &finished)?;
        Ok(Run {
            engine,
            wall_s: finished.wall.as_secs_f64(),
            user_s: finished.user.as_secs_f64(),
            sys_s: finished.sys.as_secs_f64(),
            throughput_kbs,
            major_faults: finished.major_faults,
        })
    }

    fn run_userswap(&self, load: &Load) -> Result<Finished, BenchError> {
        let engines =
            Engines::new(&self.exe, &kernel::unique_name()).map_err(BenchError::Statistics)?;
        let mut command = self.userswap(load, &engines.pattern());
        Ok(process::run(&mut command, load.part, &Arc::new(Faults::Engine(engines)))?)
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

    fn userswap(&self, load: &Load, statistics: &Path) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(["run", "--ram", &self.plan.ram_bytes.to_string()]);
        command.args(["--fault", &self.plan.fault.to_string()]);
        command.args(["--poll", &self.plan.poll.to_string()]);
        for spec in &self.plan.swap {
            command.args(["--swap", spec]);
        }
        command.arg("--stats").arg(statistics);
        command.arg("--").args(self.program(load)).args(&load.args);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    #[test]
    fn userswap_runs_the_same_load_with_one_budget_for_all_processes() {
        let plan = plan("swap-w-seq --tasks 2 --fault signal --poll 30 --swap /a --swap /b:1G");
        let bench = Bench { plan: &plan, exe: PathBuf::from("us"), directory: Path::new("/") };
        let load = Load::new(&plan, plan.size_bytes);
        let command = bench.userswap(&load, Path::new("/s/%p.json"));
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "run --ram 536870912 --fault signal --poll 30 --swap /a --swap /b:1G --stats /s/%p.json -- \
             us usemem -q -n 2 1073741824"
        );
    }
}
