//! `userswap record`: `run --record` by a name of its own, and a record for the Perfetto UI.

use std::convert::Infallible;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Arg, Args};

use crate::failure::Failure;
use crate::outputs;
use crate::report::{export, open};
use crate::run::{self, RunArgs};

/// Where a record goes that nobody names.
const DEFAULT_FILE: &str = "userswap.record";

/// How both forms are called.
const USAGE: &str = "userswap record [OPTIONS] [OPTIONS OF userswap run] PROGRAM [ARGUMENTS]
       userswap record --perfetto FILE.json [RECORD]";

/// Options of `record`.
#[derive(Args)]
#[command(override_usage = USAGE, mut_args(of_run))]
pub struct RecordArgs {
    #[command(flatten)]
    pub run: RunArgs,
    /// Run nothing: write what a RECORD has into this file, which the Perfetto UI shows
    #[arg(long, value_name = "FILE.json")]
    perfetto: Option<PathBuf>,
}

/// The options of `run` are taken and not shown: they are in its own help. Its `--record FILE` is `-o FILE` here.
fn of_run(option: Arg) -> Arg {
    match option.get_id().as_str() {
        "record" => option
            .short('o')
            .long("output")
            .help("Record to this file, FILE.PID for children")
            .default_value(DEFAULT_FILE),
        "command" => option
            .required(false)
            .required_unless_present("perfetto")
            .help("The program and its arguments; with --perfetto the RECORD"),
        "perfetto" => option,
        _ => option.hide(true),
    }
}

/// Becomes the program, or writes what a record has.
///
/// # Errors
/// As for `run`; with `--perfetto` as for `report`.
pub fn record(args: RecordArgs) -> Result<ExitCode, Failure> {
    match args.perfetto {
        None => recorded(args.run).map(|never| match never {}),
        Some(events) => {
            outputs::keep_record("--perfetto", &events)?;
            export(&open(named(&args.run)?)?, "--perfetto", &events)?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn recorded(args: RunArgs) -> Result<Infallible, Failure> {
    if let Some(Ok(file)) = args.record.as_deref().map(std::path::absolute) {
        outputs::check_replaced("-o", &file)?;
    }
    run::run(args)
}

/// The one file that is named, else the one that is recorded to.
fn named(args: &RunArgs) -> Result<&Path, Failure> {
    match &args.command[..] {
        [] => Ok(args.record.as_deref().unwrap_or(Path::new(DEFAULT_FILE))),
        [file] => Ok(Path::new(file)),
        [_, more, ..] => Err(Failure::usage(format!(
            "--perfetto runs no program: {}: name one record, and record it before",
            more.display()
        ))),
    }
}
