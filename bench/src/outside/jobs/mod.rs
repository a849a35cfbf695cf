//! `bench jobs`: jobs that people run, natively, under `userswap run` and on the kernel's swap, their results compared.
//!
//! `args` checks the command line, `job` has the jobs, `programs/` what they execute, `workshop` and `venv` what they need
//! of the machine, `measure` runs them in turns, `verdict` says how a run ended, `row` has the runs of a
//! job, `report` shows them all.

mod args;
mod job;
mod measure;
mod report;
mod row;
mod venv;
mod verdict;
mod workshop;

pub use args::JobsArgs;

use super::alternate::BenchError;
use crate::format::Shown;
use crate::process;
use args::Plan;
use measure::Bench;
use report::Report;
use std::io::Write;
use std::process::ExitCode;

/// Measures the jobs and prints the table; the status is 1 if a run failed or gave another result than the native one.
pub(crate) fn run(args: &JobsArgs) -> ExitCode {
    if args.list {
        return print_list(args);
    }
    let measured = args.check().map_err(BenchError::from).and_then(|plan| measure(&plan));
    let (report, end) = match measured {
        Ok(measured) => measured,
        Err(error) => return error.told(),
    };
    if let Err(error) = report.print(args.format) {
        return BenchError::Print(error).told();
    }
    match end {
        Err(error) => error.told(),
        Ok(()) if report.is_right() => ExitCode::SUCCESS,
        Ok(()) => ExitCode::FAILURE,
    }
}

/// What was measured, and what ended it early: the jobs before it took minutes.
fn measure(plan: &Plan) -> Result<(Report, Result<(), BenchError>), BenchError> {
    let exe = process::own_program().map_err(BenchError::Exe)?;
    let bench = Bench::new(plan, &exe)?;
    let mut rows = Vec::new();
    let mut all = || {
        for (number, &job) in plan.jobs.iter().enumerate() {
            say!("{} of {}: {job}", number + 1, plan.jobs.len());
            rows.push(bench.measure(job)?);
        }
        Ok(())
    };
    let end = all();
    Ok((Report::new(plan, rows), end))
}

fn print_list(args: &JobsArgs) -> ExitCode {
    let mut lines =
        args.jobs().into_iter().map(|job| format!("{:<8} {}\n", job.to_string(), job.about()));
    match lines.try_for_each(|line| std::io::stdout().write_all(line.as_bytes())) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => BenchError::Print(error).told(),
    }
}
