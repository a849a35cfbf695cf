//! `userswap doctor`: what this machine allows, and for what it does not the exact fix.
//!
//! The engine's own probes and `run`'s own checks are asked, so that what is said here is what `run` will meet.

mod disk;
mod finding;
mod kernel;
mod limits;
mod machine;

use std::path::Path;
use std::process::ExitCode;

use clap::Args;
use userswap::internals::means;
use userswap::{SwapPath, SwapSpec};

use crate::failure::Failure;
use crate::said;
use crate::{defaults, library, run};
use finding::{Finding, works};
use machine::Machine;

/// Slower than this a disk makes every fault wait for long.
const READS_PER_S_MIN: f64 = 1000.0;

/// Options of `doctor`.
#[derive(Args)]
pub struct DoctorArgs {
    /// Do not measure the disk, which takes five seconds
    #[arg(long)]
    no_disk: bool,
    /// One JSON object
    #[arg(long)]
    json: bool,
}

/// Looks at everything and prints it; the status says whether `run` works here.
///
/// # Errors
/// Nobody reads it; what is wrong is a finding.
pub fn doctor(args: &DoctorArgs) -> Result<ExitCode, Failure> {
    let findings = examine(args);
    said::print(match args.json {
        true => finding::json(&findings),
        false => finding::text(&findings),
    })?;
    Ok(if works(&findings) { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn examine(args: &DoctorArgs) -> Vec<Finding> {
    let (machine, means) = (Machine::here(), means());
    let mut findings = vec![kernel::userfaultfd(&means, &machine)];
    findings.extend(kernel::features(&means, &userswap::probe()));
    findings.extend(kernel::speed(&means, &machine));
    findings.extend(machine.memory());
    findings.extend(limits::limits());
    findings.push(machine.container());
    findings.extend(directories());
    let defaults = match defaults::of_run() {
        Ok(defaults) => defaults,
        Err(failure) => {
            findings.push(Finding::missing("defaults", failure.message, "as it says"));
            return findings;
        }
    };
    findings.push(Finding::good("defaults", &defaults.sources));
    findings.extend(swap(args, &defaults.run));
    findings
}

/// Where the injected library and the control socket go.
fn directories() -> Vec<Finding> {
    let library = match library::install() {
        Ok(path) => Finding::good("library", path.display()),
        Err(failure) => Finding::missing("library", failure.message, "set TMPDIR as it says"),
    };
    let control = match library::private_directory() {
        Ok(path) => Finding::good("control", path.display()),
        Err(failure) => Finding::limited(
            "control",
            failure.message,
            "set XDG_RUNTIME_DIR to a directory of yours",
        ),
    };
    vec![library, control]
}

/// What `run` would say of its devices, and how fast their directories are.
fn swap(args: &DoctorArgs, defaults: &run::RunArgs) -> Vec<Finding> {
    let checked = match run::checked(defaults) {
        Ok(checked) => checked,
        Err(failure) => return vec![Finding::missing("swap", failure.message, "as it says")],
    };
    let mut findings = Vec::new();
    for warning in checked.warnings {
        let fix = "have --swap, TMPDIR or the file of defaults name a directory on a disk";
        findings.push(Finding::limited("swap", warning, fix));
    }
    for swap in &checked.swaps {
        findings.push(match &swap.path {
            SwapPath::Path(path) if path.is_dir() && !args.no_disk => speed(swap, path),
            SwapPath::Path(path) => {
                Finding::good("swap", format!("{}: can be used", path.display()))
            }
            SwapPath::Compressed(_) => {
                Finding::good("swap", format!("{swap}: compressed memory, within the budget"))
            }
            SwapPath::Remote(_) | SwapPath::S3(_) => {
                Finding::good("swap", format!("{swap}: answers, and takes pages"))
            }
            SwapPath::Memory => {
                Finding::limited("swap", swap, "mem: is plain memory, for tests: name a disk")
            }
        });
    }
    findings
}

fn speed(swap: &SwapSpec, path: &Path) -> Finding {
    let path = path.display();
    let speed = match disk::measure(swap, disk::FIVE_SECONDS) {
        Ok(speed) => speed,
        Err(error) => {
            let fix = "name another directory with --swap, or use --no-disk";
            return Finding::limited(
                "disk speed",
                format!("{path}: cannot be measured: {error}"),
                fix,
            );
        }
    };
    let found = format!(
        "{path}: writes {:.0} MB/s in order; reads {:.0} pages/s at random one by one, {:.0} by 16 threads",
        speed.write_mb_per_s, speed.reads_per_s, speed.reads_together_per_s
    );
    match speed.reads_per_s < READS_PER_S_MIN {
        true => Finding::limited("disk speed", found, "name a directory on an SSD with --swap"),
        false => Finding::good("disk speed", found),
    }
}
