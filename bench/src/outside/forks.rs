//! `bench fork`: what a fork costs a program of many pages, under `run` and natively.

use super::alternate::{BenchError, Side};
use super::args::{RUNS_MAX, bytes, number};
use super::budget::Budget;
use super::cells::seconds;
use super::devices::Devices;
use super::report::Engine;
use crate::figures::Spread;
use crate::format::{Format, Shown};
use crate::machine::{self, Machine};
use crate::process::{self, Course, Finished, Part};
use clap::Args;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use userswap::{FaultMode, Poll};

/// The program, for python3.
const PROGRAM: &str = include_str!("forks.py");
/// More forks of a run than this are a mistake.
const FORKS_MAX: usize = 10_000;
/// A smaller budget than this is less than python3 has outside its engine.
const LEAST_BYTES: u64 = 16 << 20;
const MS: f64 = 1000.0;

/// The options of `userswap bench fork`; those that a case has too mean the same.
#[derive(Debug, Clone, Args)]
pub struct ForkArgs {
    /// RAM budget of the program and its children
    #[arg(long, value_name = "SIZE", default_value = "64M", allow_hyphen_values = true)]
    ram: String,
    /// Memory of the program, all of it written
    #[arg(long, value_name = "SIZE", default_value = "1G", allow_hyphen_values = true)]
    size: String,
    /// Forks of each kind in a run, whose median is the run's
    #[arg(long, value_name = "N", default_value = "9", allow_hyphen_values = true)]
    forks: String,
    /// Runs of each way
    #[arg(long, value_name = "N", default_value = "3", allow_hyphen_values = true)]
    runs: String,
    /// How faults reach the engine, a row each
    #[arg(long, value_name = "MODE", value_delimiter = ',', num_args = 1.., default_values = ["thread", "signal"])]
    fault: Vec<FaultMode>,
    /// Swap device of the engine, as for `userswap run`; may be repeated
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    swap: Vec<String>,
    #[command(flatten)]
    format: Format,
}

/// What the program prints, in seconds.
#[derive(Debug, Clone, Copy, Deserialize)]
struct Medians {
    returns_s: f64,
    exit_s: f64,
    exec_s: f64,
}

/// The medians of the runs of one way, in milliseconds.
#[derive(Debug, Serialize)]
struct Row {
    way: String,
    fork_returns_ms: Option<Spread>,
    exit_ms: Option<Spread>,
    exec_ms: Option<Spread>,
}

#[derive(Debug, Serialize)]
struct Report {
    size_bytes: u64,
    ram_bytes: u64,
    rows: Vec<Row>,
    machine: Machine,
    kernel: String,
}

impl Shown for Report {
    fn text(&self) -> String {
        let mut table = Table::new();
        table.load_preset(presets::NOTHING);
        table.set_header(["", "fork returns, ms", "_exit", "exec"]);
        for row in &self.rows {
            let cells = [row.fork_returns_ms, row.exit_ms, row.exec_ms].map(seconds);
            table.add_row([row.way.clone()].into_iter().chain(cells));
        }
        table.column_iter_mut().skip(1).for_each(|c| c.set_cell_alignment(CellAlignment::Right));
        format!("{table}\n")
    }
}

/// Measures and prints the report, natively and each way of serving faults in turns.
pub(crate) fn run(args: &ForkArgs) -> ExitCode {
    let printed =
        measure(args).and_then(|report| report.print(args.format).map_err(BenchError::Print));
    match printed {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => error.told(),
    }
}

fn measure(args: &ForkArgs) -> Result<Report, BenchError> {
    let forks = number("--forks", &args.forks, FORKS_MAX)?;
    let runs = number("--runs", &args.runs, RUNS_MAX)?;
    let (size_bytes, ram_bytes) =
        (bytes("--size", &args.size, LEAST_BYTES)?, bytes("--ram", &args.ram, LEAST_BYTES)?);
    Devices::checked(&args.swap, None, ram_bytes)?;
    let ways: Vec<Option<FaultMode>> =
        std::iter::once(None).chain(args.fault.iter().copied().map(Some)).collect();
    let exe = process::own_program().map_err(BenchError::Exe)?;
    let words = ["python3", "-I", "-S", "-c", PROGRAM].map(str::to_owned);
    let numbers = [size_bytes.to_string(), forks.to_string()];
    let program: Vec<OsString> = words.into_iter().chain(numbers).map(OsString::from).collect();
    let mut of_ways: Vec<Vec<Medians>> = ways.iter().map(|_| Vec::new()).collect();
    for _ in 0..runs {
        for (of_way, way) in of_ways.iter_mut().zip(&ways) {
            let budget = |fault| Budget {
                exe: &exe,
                ram_bytes,
                fault,
                poll: Poll::Auto,
                swap: &args.swap,
                compress: None,
            };
            of_way.push(one_run(&program, way.map(budget))?);
        }
    }
    let rows = ways.iter().zip(of_ways).map(|(way, runs)| row(*way, &runs)).collect();
    let (machine, kernel) = (Machine::this(), machine::kernel_release());
    Ok(Report { size_bytes, ram_bytes, rows, machine, kernel })
}

/// One run natively, or with a budget.
fn one_run(program: &[OsString], budget: Option<Budget<'_>>) -> Result<Medians, BenchError> {
    let course = Course::new(Part::Whole);
    let (side, finished) = match budget {
        Some(budget) => {
            (Side::Limited(Engine::Userswap), budget.run(program, course)?.within_budget()?)
        }
        None => {
            let mut command = Command::new(&program[0]);
            (Side::Native, process::run(command.args(&program[1..]), &course)?)
        }
    };
    let Finished { status, stdout, stderr, .. } = finished;
    if !status.success() {
        return Err(BenchError::Failed { side, status, stderr });
    }
    let why = |error: serde_json::Error| error.to_string();
    serde_json::from_str(&stdout).map_err(|error| BenchError::Output {
        side,
        why: why(error),
        stderr,
    })
}

fn row(way: Option<FaultMode>, runs: &[Medians]) -> Row {
    let ms = |of: fn(&Medians) -> f64| Spread::of(runs.iter().map(|run| of(run) * MS));
    Row {
        way: way.map_or_else(|| "natively".to_owned(), |fault| format!("faults by {fault}")),
        fork_returns_ms: ms(|run| run.returns_s),
        exit_ms: ms(|run| run.exit_s),
        exec_ms: ms(|run| run.exec_s),
    }
}
