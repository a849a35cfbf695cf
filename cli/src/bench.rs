//! `userswap bench` and `userswap usemem`: both live in the crate of benchmarks.

use std::ffi::OsString;
use std::process::ExitCode;

use crate::failure::Failure;

/// Measures a case.
///
/// # Errors
/// None: the benchmark reports on its own.
pub fn bench(args: userswap_bench::BenchArgs) -> Result<ExitCode, Failure> {
    Ok(userswap_bench::run(args))
}

/// Generates load as usemem does.
///
/// # Errors
/// None: usemem reports on its own.
pub fn usemem(args: Vec<OsString>) -> Result<ExitCode, Failure> {
    Ok(userswap_bench::usemem::main(args.into_iter()))
}
