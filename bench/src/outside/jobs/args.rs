//! The command line of `userswap bench jobs`, and the checked plan made of it.

use super::job::{Job, Runtime};
use super::venv;
use crate::format::Format;
use crate::kernel::Rival;
use crate::outside::args::{RUNS_MAX, UsageError, bytes, number};
use crate::outside::devices::Devices;
use clap::{Args, ValueEnum};
use std::path::PathBuf;
use std::time::Duration;
use userswap::internals::RAM_MIN_BYTES;
use userswap::{Compress, FaultMode};

/// A larger factor makes jobs of hours.
const SCALE_MAX: f64 = 16.0;
const LIMIT_SECONDS_MAX: f64 = 1e6;

/// The options of `userswap bench jobs`; those that a case has too mean the same.
#[derive(Debug, Clone, Args)]
pub struct JobsArgs {
    /// Jobs to run [default: all]
    #[arg(value_name = "JOB")]
    jobs: Vec<Job>,
    /// Say what the jobs do, and run none
    #[arg(long)]
    pub(super) list: bool,
    /// RAM budget of each job
    #[arg(long, value_name = "SIZE", default_value = "512M", allow_hyphen_values = true)]
    ram: String,
    /// Runs of each side; natively one
    #[arg(long, value_name = "N", default_value = "3", allow_hyphen_values = true)]
    runs: String,
    /// How faults reach the engine, a column each: thread, signal or thread,signal
    #[arg(long, value_name = "MODE", value_delimiter = ',', default_values = ["thread"])]
    fault: Vec<FaultMode>,
    /// Swap device of the engine, as for `userswap run`; may be repeated
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    swap: Vec<String>,
    /// Compressed memory in front of its devices, as for `userswap run`
    #[arg(long, value_name = "SIZE|auto", allow_hyphen_values = true)]
    compress: Option<Compress>,
    /// Measure this beside it, in turns
    #[arg(long, value_name = "RIVAL")]
    vs: Option<Rival>,
    /// Seconds after which a run is killed [default: 20 times the native ones and 180]
    #[arg(long, value_name = "SECONDS", allow_hyphen_values = true)]
    limit: Option<String>,
    /// Size of the jobs, as a factor
    #[arg(long, value_name = "FACTOR", default_value = "1", allow_hyphen_values = true)]
    scale: String,
    /// Where python's packages are, or will be installed [default: ~/.cache/userswap/jobs-venv]
    #[arg(long, value_name = "DIR")]
    venv: Option<PathBuf>,
    #[command(flatten)]
    pub(super) format: Format,
}

/// What is going to be measured, checked.
#[derive(Debug, Clone)]
pub(super) struct Plan {
    pub(super) jobs: Vec<Job>,
    pub(super) ram_bytes: u64,
    pub(super) runs: usize,
    pub(super) faults: Vec<FaultMode>,
    pub(super) swap: Vec<String>,
    pub(super) compress: Option<Compress>,
    /// What these two come to.
    pub(super) devices: Devices,
    pub(super) rival: Option<Rival>,
    pub(super) limit: Option<Duration>,
    pub(super) scale: f64,
    pub(super) venv: PathBuf,
}

impl JobsArgs {
    /// Those that were named, or all.
    pub(super) fn jobs(&self) -> Vec<Job> {
        if self.jobs.is_empty() { Job::value_variants().to_vec() } else { self.jobs.clone() }
    }

    pub(super) fn check(&self) -> Result<Plan, UsageError> {
        let limit = self.limit.as_deref();
        let venv = self.venv.clone().unwrap_or_else(venv::default_directory);
        if self.jobs().iter().any(|job| job.program().runtime == Runtime::Venv) {
            venv::check(&venv)?;
        }
        let ram_bytes = bytes("--ram", &self.ram, RAM_MIN_BYTES)?;
        let devices = Devices::checked(&self.swap, self.compress, ram_bytes)?;
        devices.check_beside(self.vs)?;
        Ok(Plan {
            jobs: self.jobs(),
            ram_bytes,
            runs: number("--runs", &self.runs, RUNS_MAX)?,
            faults: self.fault.clone(),
            swap: self.swap.clone(),
            compress: self.compress,
            devices,
            rival: self.vs,
            limit: limit
                .map(|text| fraction("--limit", text, LIMIT_SECONDS_MAX))
                .transpose()?
                .map(Duration::from_secs_f64),
            scale: fraction("--scale", &self.scale, SCALE_MAX)?,
            venv,
        })
    }
}

/// A number above 0, up to `most`.
fn fraction(option: &'static str, text: &str, most: f64) -> Result<f64, UsageError> {
    let number = text.parse().ok().filter(|number| *number > 0.0 && *number <= most);
    number.ok_or_else(|| UsageError::Fraction { option, text: text.to_owned(), most })
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: JobsArgs,
    }

    fn check(line: &str) -> Result<Plan, UsageError> {
        Line::try_parse_from(line.split_whitespace()).unwrap().args.check()
    }

    /// The plan of a command line that is right.
    pub(in super::super) fn plan(line: &str) -> Plan {
        check(line).unwrap()
    }

    #[test]
    fn without_names_all_jobs_are_meant() {
        assert_eq!(plan("").jobs, Job::value_variants());
        assert_eq!(plan("node java --fault thread,signal").jobs, [Job::Node, Job::Java]);
        assert_eq!(plan("--fault thread,signal").faults, [FaultMode::Thread, FaultMode::Signal]);
    }

    #[test]
    fn a_wrong_value_is_named_on_one_line() {
        for (line, value) in [
            ("--ram 12Q", "\"12Q\""),
            ("--ram 1M", "\"1M\""),
            ("--swap mem:1K", "1K is too small"),
            ("--swap mem:1G --vs kernel", "mem:1G"),
            ("--runs 0", "'0'"),
            ("--scale 0", "'0'"),
            ("--scale 17", "'17'"),
            ("--scale nan", "'nan'"),
            ("--limit -1", "'-1'"),
            ("--limit inf", "'inf'"),
            ("--venv /proc/self", "/proc/self"),
        ] {
            let text = check(line).unwrap_err().to_string();
            assert!(text.contains(value) && !text.contains('\n'), "'{line}' gave: {text}");
        }
    }
}
