//! The command line of `userswap bench`: a program under `run`, all of them, or a mechanism of the engine.

use crate::inside::{self, InsideCase};
use crate::outside::{self, BenchArgs, ForkArgs, JobsArgs, TableArgs};
use clap::{Args, Subcommand};
use std::process::ExitCode;

/// What `bench` measures.
#[derive(Debug, Clone, Args)]
#[command(args_conflicts_with_subcommands = true, subcommand_negates_reqs = true)]
pub struct BenchLine {
    #[command(subcommand)]
    other: Option<Other>,
    #[command(flatten)]
    program: Option<BenchArgs>,
}

#[derive(Debug, Clone, Subcommand)]
enum Other {
    /// Every case, the worst ratio first
    All(TableArgs),
    /// Jobs that people run, their results compared with the native ones, the worst ratio first
    Jobs(JobsArgs),
    /// A fork of a program of many pages, under `run` and natively
    Fork(ForkArgs),
    #[command(flatten)]
    Inside(InsideCase),
}

impl BenchLine {
    /// Measures; none if the line does not say what.
    pub fn run(self) -> Option<ExitCode> {
        match (self.other, self.program) {
            (Some(Other::All(args)), _) => Some(outside::run_all(&args)),
            (Some(Other::Jobs(args)), _) => Some(outside::run_jobs(&args)),
            (Some(Other::Fork(args)), _) => Some(outside::run_forks(&args)),
            (Some(Other::Inside(case)), _) => Some(inside::run(&case)),
            (None, program) => program.map(outside::run),
        }
    }
}
