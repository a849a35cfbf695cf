//! `userswap bench` and `userswap usemem`: both live in the crate of benchmarks.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::Failure;
use userswap_bench::BenchArgs;
use userswap_bench::inside::{self, InsideCase};

/// Measures a mechanism if one is named, else a program.
///
/// # Errors
/// None: the benchmark reports on its own.
pub fn bench(line: BenchLine) -> Result<ExitCode, Failure> {
    Ok(match (line.inside, line.program) {
        (Some(case), _) => inside::run(&case),
        (None, Some(args)) => userswap_bench::run(args),
        (None, None) => return Err(Failure::usage("bench needs a CASE: --help shows them")),
    })
}

/// What `bench` measures: a program under `run`, or a mechanism of the engine.
#[derive(clap::Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchLine {
    #[command(subcommand)]
    inside: Option<InsideCase>,
    #[command(flatten)]
    program: Option<BenchArgs>,
}

/// Generates load as usemem does.
///
/// # Errors
/// None: usemem reports on its own.
pub fn usemem(args: Vec<OsString>) -> Result<ExitCode, Failure> {
    Ok(userswap_bench::usemem::main(args.into_iter()))
}
