//! `userswap`: give a program more memory than it has RAM.
//!
//! The command line translates and decides nothing: it checks what was typed, hands it on, and turns
//! errors into one line and an exit status. One file per subcommand; the engine itself runs inside
//! the program, in a shared object that this binary carries and injects.

// They panic where nobody reads: see said.rs.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod advise;
mod bench;
mod completion;
mod control;
mod defaults;
mod demo;
mod doctor;
mod failure;
mod library;
mod manual;
mod memory;
mod metrics;
mod outputs;
mod pattern;
mod program;
mod ram;
mod record;
mod report;
mod run;
mod said;
mod sim;
mod stress;
mod top;

use std::ffi::OsString;
use std::num::{IntErrorKind, ParseIntError};
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use failure::{Failure, STATUS_USAGE};

userswap::before_main!(userswap::internals::signal::note_whether_pipe_is_ignored);

/// Give a program more memory than it has RAM.
#[derive(Parser)]
#[command(
    name = "userswap",
    version,
    after_help = "Start here:\n  userswap doctor\n      what this machine allows\n  userswap demo\n      what it does\n  userswap run --ram 512M -- PROGRAM ARGUMENTS\n      give a program 512 MiB of RAM, and swap for the rest\n\nEach command has examples: userswap run --help"
)]
struct CommandLine {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program with a RAM budget; what does not fit is swapped in user space
    Run(run::RunArgs),
    /// Say what this machine allows, and how to allow the rest
    Doctor(doctor::DoctorArgs),
    /// List the programs that have outgrown their budget and are served
    List,
    /// Watch these programs live, and change their settings
    Top(top::TopArgs),
    /// Show a program's swap devices, every node's list of them, memory and locks
    Status(control::StatusArgs),
    /// Give a running program one more swap device
    Swapon(control::SwaponArgs),
    /// Bring everything on a swap device of a running program back, and take the device away
    Swapoff(control::SwapoffArgs),
    /// Change a setting of a running program, such as its budget
    Set(control::SetArgs),
    /// Tell Prometheus about all programs: print, serve or write metrics in its text formats
    Metrics(metrics::MetricsArgs),
    /// Show what it does: a verified workload of four times its budget, and the kernel beside it
    Demo(demo::DemoArgs),
    /// The demo's workload
    #[command(hide = true)]
    DemoLoad(demo::load::LoadArgs),
    /// Try to find a wrong byte, a hang or a crash: verified loads under everything that can happen to memory
    Stress(stress::StressArgs),
    /// The load of a round of stress
    #[command(hide = true)]
    StressLoad(stress::LoadArgs),
    /// Measure a case under userswap and, with --vs kernel, on the kernel's own swap
    Bench(Box<userswap_bench::BenchLine>),
    /// Simulate machines that swap, beside what was published about them
    Sim(sim::SimArgs),
    /// Run a program and record how it goes, for report; or write a record for the Perfetto UI
    Record(Box<record::RecordArgs>),
    /// Say and draw what held a recorded run back, and what would help
    Report(report::ReportArgs),
    /// Run a program once, and say how much RAM it needs
    Advise(advise::AdviseArgs),
    /// Print the script that completes userswap's command line in a shell
    Completions(completion::CompletionsArgs),
    /// Print the man page, or write those of all commands
    Man(manual::ManArgs),
    /// Generate load, with the options and the output of usemem
    #[command(disable_help_flag = true)]
    Usemem {
        /// Options of usemem
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        args: Vec<OsString>,
    },
}

/// The command line, with examples in its help.
fn command() -> clap::Command {
    manual::examples::add(CommandLine::command())
}

fn parse() -> Result<CommandLine, clap::Error> {
    let mut command = command();
    let matches = command.try_get_matches_from_mut(std::env::args_os())?;
    CommandLine::from_arg_matches(&matches).map_err(|error| error.format(&mut command))
}

fn main() -> ExitCode {
    completion::answer(command);
    let command = match parse() {
        Ok(line) => line.command,
        Err(error) => return refuse_usage(&error),
    };
    let result = match command {
        Command::Run(args) => with_defaults(args).and_then(run::run).map(|never| match never {}),
        Command::Doctor(args) => doctor::doctor(&args),
        Command::List => control::list(),
        Command::Top(args) => top::top(&args),
        Command::Status(args) => control::status(&args),
        Command::Swapon(args) => control::swapon(args),
        Command::Swapoff(args) => control::swapoff(args),
        Command::Set(args) => control::set(args),
        Command::Metrics(args) => metrics::metrics(args),
        Command::Demo(args) => demo::demo(&args),
        Command::DemoLoad(args) => demo::load::load(args),
        Command::Stress(args) => stress::stress(&args),
        Command::StressLoad(args) => stress::load(&args),
        Command::Bench(args) => bench::bench(*args),
        Command::Sim(args) => sim::sim(&args),
        Command::Record(args) => with_defaults_of_record(*args).and_then(record::record),
        Command::Report(args) => report::report(&args),
        Command::Advise(args) => advise::advise(&args),
        Command::Completions(args) => completion::completions(&args),
        Command::Man(args) => manual::man(&args),
        Command::Usemem { args } => bench::usemem(args),
    };
    result.unwrap_or_else(|failure: Failure| {
        if !failure.message.is_empty() {
            said::say(failure.message);
        }
        ExitCode::from(failure.status)
    })
}

/// The options of `run`, with the user's defaults.
fn with_defaults(args: run::RunArgs) -> Result<run::RunArgs, Failure> {
    if args.no_defaults {
        return Ok(args);
    }
    match once_more("run", &args)? {
        Command::Run(args) => Ok(args),
        _ => unreachable!("defaults do not change the command"),
    }
}

/// The same for `record`, which takes them, too.
fn with_defaults_of_record(args: record::RecordArgs) -> Result<record::RecordArgs, Failure> {
    if args.run.trace.is_some() {
        return Err(Failure::usage(
            "--trace: record writes a record: use userswap run --trace FILE",
        ));
    }
    if args.run.no_defaults {
        return Ok(args);
    }
    match once_more("record", &args.run)? {
        Command::Record(args) => Ok(*args),
        _ => unreachable!("defaults do not change the command"),
    }
}

/// The same command line once more, now that it is known to be one of this command, with the user's defaults.
fn once_more(name: &'static str, given: &run::RunArgs) -> Result<Command, Failure> {
    let defaults = defaults::Defaults::find()?.beside(given)?;
    let mut command = CommandLine::command().mut_subcommand(name, |it| defaults.apply(it));
    let matches = command.try_get_matches_from_mut(std::env::args_os());
    let line = matches.and_then(|matches| CommandLine::from_arg_matches(&matches));
    Ok(line.expect("every default was tried, and the rest has been read once").command)
}

/// What does not fit gets one line; help is clap's own text.
fn refuse_usage(error: &clap::Error) -> ExitCode {
    match value_refusal(error).or_else(|| usage_refusal(error)) {
        Some(line) => said::say(line),
        None => {
            // With standard error or output closed there is nowhere to say it.
            let _ = error.print();
        }
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => ExitCode::SUCCESS,
        _ => ExitCode::from(STATUS_USAGE),
    }
}

/// The line for anything else that is refused: clap's text has what is wrong, tips, and the usage in paragraphs.
fn usage_refusal(error: &clap::Error) -> Option<String> {
    if !error.use_stderr() || error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return None;
    }
    let text = error.render().to_string();
    let paragraphs = text.trim_start_matches("error: ").split("\n\n");
    let lines = paragraphs.map(|lines| lines.split_whitespace().collect::<Vec<_>>().join(" "));
    let parts = lines.filter(|line| !line.is_empty() && !line.starts_with("For more information"));
    let parts = parts.map(|line| line.replacen("Usage: ", "usage: ", 1).replace("tip: ", ""));
    Some(parts.collect::<Vec<_>>().join("; "))
}

/// The line for a value that does not fit its option.
fn value_refusal(error: &clap::Error) -> Option<String> {
    let text = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    // "--ram <SIZE>": the option's name is what the user typed.
    let option = text(ContextKind::InvalidArg)?.split_whitespace().next()?;
    match (error.kind(), error.get(ContextKind::ValidValue)) {
        (ErrorKind::ValueValidation, _) => {
            let reason = std::error::Error::source(error)?;
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            // The standard library's error names no value.
            Some(match reason.downcast_ref::<ParseIntError>().map(ParseIntError::kind) {
                Some(IntErrorKind::PosOverflow) => {
                    format!("{option}: {value}: use a smaller number")
                }
                Some(_) => format!("{option}: {value:?}: use a whole number"),
                None => format!("{option}: {reason}"),
            })
        }
        (ErrorKind::InvalidValue, Some(ContextValue::Strings(allowed))) => {
            let value = text(ContextKind::InvalidValue).unwrap_or_default();
            let allowed = allowed.join(" or ");
            Some(match (value, allowed.as_str()) {
                ("", "") => format!("{option} needs a value: --help shows which"),
                ("", allowed) => format!("{option} needs a value: use {allowed}"),
                (value, allowed) => format!("{option}: \"{value}\" is not allowed: use {allowed}"),
            })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn a_negative_size_is_refused_as_a_size_and_not_as_an_option() {
        let mut left = vec![command()];
        while let Some(command) = left.pop() {
            for option in command.get_opts() {
                let named = option.get_value_names().unwrap_or_default();
                let is_size = |name: &str| name.starts_with("SIZE") || name == "SPEC";
                let takes = option.is_allow_hyphen_values_set();
                let is_right = takes || !named.iter().any(|name| is_size(name));
                assert!(is_right, "{} of {}", option, command.get_name());
            }
            left.extend(command.get_subcommands().cloned());
        }
    }
}
