//! `userswap sim`: machines that swap, simulated in virtual time. All of it is in the crate of the simulator.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::Failure;
use crate::said;
use userswap_sim::machine::Set;
use userswap_sim::report::{self, Report};
use userswap_sim::scenario::{self, Checking, Options};

/// Options of `sim`.
#[derive(clap::Args)]
pub struct SimArgs {
    /// A built-in scenario, a file that ends in .toml, `all`, or `list`
    scenario: String,
    /// Where all that is random begins
    #[arg(long, value_name = "N", default_value_t = 1)]
    seed: u64,
    /// Gives a key of the scenario another value (repeatable): machine.nodes=4
    #[arg(long, value_name = "KEY=VALUE")]
    set: Vec<Set>,
    /// A recorded program for the scenario `trace`: a file of run --trace
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// JSON instead of tables
    #[arg(long)]
    json: bool,
    /// Draws the tables into a file as well
    #[arg(long, value_name = "FILE.svg")]
    plot: Option<PathBuf>,
    /// Looks at everything after every event, and stops at the first thing that is wrong
    #[arg(long)]
    check: bool,
}

/// Runs a scenario and prints its tables.
///
/// # Errors
/// The scenario cannot be meant, or a run of it broke an invariant.
pub fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    if args.scenario == "list" {
        let lines = scenario::list().map(|(name, about)| format!("{name:18} {about}\n"));
        said::print(lines.collect::<String>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut sets = args.set.clone();
    if let Some(file) = &args.trace {
        sets.push(trace_of(file, args)?);
    }
    let names: Vec<&str> = match args.scenario.as_str() {
        "all" if args.plot.is_some() => {
            return Err(Failure::usage("--plot draws one scenario: name it instead of all"));
        }
        "all" if !args.set.is_empty() => {
            return Err(Failure::usage("--set changes one scenario: name it instead of all"));
        }
        "all" => scenario::list().map(|(name, _)| name).collect(),
        name => vec![name],
    };
    let reports =
        names.into_iter().map(|name| run(name, &sets, args)).collect::<Result<Vec<_>, _>>()?;
    if let (Some(file), [report]) = (&args.plot, &reports[..]) {
        report::plot(report, file).map_err(|bad| {
            Failure::usage(format!("--plot: {bad}: use a file that can be written"))
        })?;
    }
    print(&reports, args)?;
    Ok(ExitCode::SUCCESS)
}

/// The key of the scenario that names the file.
fn trace_of(file: &Path, args: &SimArgs) -> Result<Set, Failure> {
    if args.scenario == "all" {
        return Err(Failure::usage("--trace is for one scenario: name it instead of all"));
    }
    let name = file.to_str().filter(|name| !name.contains(char::is_control));
    let name = name.ok_or_else(|| {
        Failure::usage(format!("--trace {}: use a name in plain UTF-8", file.display()))
    })?;
    format!("trace.file={name:?}").parse().map_err(|bad| Failure::usage(format!("--trace: {bad}")))
}

fn run(name: &str, sets: &[Set], args: &SimArgs) -> Result<Report, Failure> {
    let checking = if args.check { Checking::EveryEvent } else { Checking::Off };
    let options = Options { seed: args.seed, checking };
    scenario::run(name, sets, &options).map_err(|failure| match failure {
        scenario::Failure::Bad(bad) => Failure::usage(bad),
        scenario::Failure::Broken(what) => Failure::unavailable(format!("{name}: {what}")),
    })
}

fn print(reports: &[Report], args: &SimArgs) -> Result<(), Failure> {
    let texts: Vec<_> = reports
        .iter()
        .map(|report| if args.json { report.json() } else { report.to_string() })
        .collect();
    said::print(match (args.json, &texts[..]) {
        (true, [one]) => format!("{one}\n"),
        (true, _) => format!("[\n{}\n]\n", texts.join(",\n")),
        (false, _) => texts.join("\n"),
    })
}
