//! `userswap bench` and `userswap usemem`: both live in the crate of benchmarks.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::Failure;
use userswap_bench::BenchLine;

/// Measures what is named.
///
/// # Errors
/// Nothing is; else the benchmark reports on its own.
pub fn bench(line: BenchLine) -> Result<ExitCode, Failure> {
    line.run().ok_or_else(|| Failure::usage("bench needs a CASE: --help shows them"))
}

/// Generates load as usemem does.
///
/// # Errors
/// None: usemem reports on its own.
pub fn usemem(args: Vec<OsString>) -> Result<ExitCode, Failure> {
    Ok(userswap_bench::usemem::main(args.into_iter()))
}
