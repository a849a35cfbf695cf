//! The measurement: runs of both sides in turns, so that a machine that drifts drifts for both.

use super::args::{BenchArgs, Plan, UsageError};
use super::case::Load;
use super::ideal;
use super::report::{Engine, Report, Run};
use crate::disk::Disk;
use crate::format::{Format, Shown};
use crate::interrupt::{Interrupt, Interrupted};
use crate::kernel::{self, KernelError, Limits};
use crate::machine;
use crate::process::{self, Finished, RunError};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use thiserror::Error;
use userswap::internals::PAGE_BYTES;

/// The exit status of a wrong command line.
const EXIT_USAGE: u8 = 2;
/// The unlimited run may take this share of the memory that is there: 1 in this many.
const NATIVE_SHARE: u64 = 2;
#[derive(Debug, Error)]
enum BenchError {
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
    #[error("cannot print the report: {0}")]
    Print(io::Error),
}

impl BenchError {
    fn interrupted(&self) -> Option<Interrupted> {
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
}

/// Where a load runs: one of the engines, or nowhere limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Side {
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
    let printed = measure(&args)
        .and_then(|report| report.print(Format { json: args.json }).map_err(BenchError::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("userswap bench: {}", error.to_string().trim_end());
            error.exit_code()
        }
    }
}

fn measure(args: &BenchArgs) -> Result<Report, BenchError> {
    let plan = args.check()?;
    let directory = plan.swap_directory();
    if plan.rival.is_some() {
        kernel::check(&directory)?;
    }
    // Held over all runs, so that a signal between two of them counts for the next.
    let interrupt = Interrupt::hold().map_err(RunError::from)?;
    let bench = Bench {
        plan: &plan,
        exe: process::own_program().map_err(BenchError::Exe)?,
        directory: &directory,
    };
    let native_user_s = bench.native_user_s()?;
    let disk = disk(&directory, plan.size_bytes);
    let ideal_s = ideal::seconds(&plan, native_user_s, disk);
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
    Ok(Report::new(&plan, runs, ideal_s, disk))
}

fn disk(directory: &Path, size_bytes: u64) -> Option<Disk> {
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
        let finished = process::run(&mut self.native(&load), load.from)?;
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
            Engine::Userswap => process::run(&mut self.userswap(&load), load.from)?,
            Engine::Kernel => {
                let limits = Limits {
                    ram_bytes: self.plan.ram_bytes,
                    swap_bytes: self.plan.size_bytes + kernel::SWAP_SPARE_BYTES,
                    directory: self.directory,
                };
                kernel::run(&mut self.native(&load), &limits, load.from)?
            }
        };
        let throughput_kbs = self.throughput(Side::Limited(engine), &load, &finished)?;
        Ok(Run {
            engine,
            wall_s: finished.wall.as_secs_f64(),
            user_s: finished.user.as_secs_f64(),
            sys_s: finished.sys.as_secs_f64(),
            throughput_kbs,
        })
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
        let mut command = Command::new(&self.exe);
        command.arg("usemem").args(&load.args);
        command
    }

    fn userswap(&self, load: &Load) -> Command {
        let mut command = Command::new(&self.exe);
        command.args(["run", "--ram", &self.plan.ram_bytes.to_string()]);
        command.args(["--fault", &self.plan.fault.to_string()]);
        for spec in &self.plan.swap {
            command.args(["--swap", spec]);
        }
        command.arg("--").arg(&self.exe).arg("usemem").args(&load.args);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    #[test]
    fn userswap_runs_the_same_load_with_one_budget_for_all_processes() {
        let plan = plan("swap-w-seq --tasks 2 --fault signal --swap /a --swap /b:1G");
        let bench = Bench { plan: &plan, exe: PathBuf::from("us"), directory: Path::new("/") };
        let command = bench.userswap(&Load::new(&plan, plan.size_bytes));
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "run --ram 536870912 --fault signal --swap /a --swap /b:1G -- \
             us usemem -q -n 2 1073741824"
        );
    }
}
