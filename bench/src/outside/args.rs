//! The command line of `userswap bench`, and the checked plan made of it.

use super::case::{Case, Tasks};
use super::devices::Devices;
use crate::choice;
use crate::kernel::Rival;
use crate::size::{self, SizeError};
use crate::usemem::{Data, SCATTERED_MIN_BYTES};
use clap::Args;
use std::path::PathBuf;
use thiserror::Error;
use userswap::internals::{PAGE_BYTES, RAM_MIN_BYTES};
use userswap::{Compress, FaultMode, Poll};

/// More tasks or runs than this are a mistake.
const TASKS_MAX: usize = 4096;
pub(super) const RUNS_MAX: usize = 10_000;
const REPEAT_MAX: usize = 1_000_000;

/// The options of `userswap bench`.
///
/// Numbers and sizes are texts here, checked by the command, so that a wrong one is answered
/// with one line and status 2.
#[derive(Debug, Clone, Args)]
pub struct BenchArgs {
    /// What to measure
    #[arg(value_name = "CASE")]
    pub case: Case,
    /// RAM budget of the load
    #[arg(long, value_name = "SIZE", default_value = "512M", allow_hyphen_values = true)]
    pub ram: String,
    /// Memory that the load works on, all tasks together
    #[arg(long, value_name = "SIZE", default_value = "2G", allow_hyphen_values = true)]
    pub size: String,
    /// Number of processes or threads, as the case has it
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub tasks: String,
    /// Runs per engine
    #[arg(long, value_name = "N", default_value = "3", allow_hyphen_values = true)]
    pub runs: String,
    /// How faults reach the engine: thread (handler threads read messages) or signal (the thread that
    /// faults gets one)
    #[arg(long, value_name = "MODE", default_value_t = FaultMode::Thread)]
    pub fault: FaultMode,
    /// How the engine waits for faults, as for `userswap run`
    #[arg(long, value_name = "WAY", default_value_t = Poll::Auto, allow_hyphen_values = true)]
    pub poll: Poll,
    /// Swap device of the engine, as for `userswap run`; may be repeated
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    pub swap: Vec<String>,
    /// Compressed memory in front of its devices, as for `userswap run`
    #[arg(long, value_name = "SIZE|auto", allow_hyphen_values = true)]
    pub compress: Option<Compress>,
    /// Measure this beside it, in turns
    #[arg(long, value_name = "RIVAL")]
    pub vs: Option<Rival>,
    // Not a group of its own: the command takes all of these as one that may be absent, and a group in it hides it.
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub json: bool,
    /// Distance of the accesses (default 8; 4096 for the random cases)
    #[arg(long, value_name = "SIZE", allow_hyphen_values = true)]
    pub step: Option<String>,
    /// Passes over the memory; the second one on verifies the data
    #[arg(long, value_name = "N", default_value = "1", allow_hyphen_values = true)]
    pub repeat: String,
    /// What the load writes; but for index whole pages at a time
    #[arg(long, value_name = "KIND", default_value = "index")]
    pub data: Data,
}

/// A command line that cannot be carried out.
#[derive(Debug, Clone, PartialEq, Error)]
pub(crate) enum UsageError {
    #[error("{0}: {1}")]
    Size(&'static str, SizeError),
    #[error("{option}: '{text}' is not usable: give a whole number from 1 to {most}")]
    Number { option: &'static str, text: String, most: usize },
    #[error("{option}: '{text}' is not usable: give a number above 0, up to {most}")]
    Fraction { option: &'static str, text: String, most: f64 },
    #[error("--venv: {0} holds other things: name a directory that does not exist")]
    Venv(PathBuf),
    #[error("--size: '{text}' is less than a page for each of {tasks} tasks: make it larger")]
    Share { text: String, tasks: usize },
    #[error(
        "--ram: '{text}' is too little for {processes} processes, the one that starts the others included: make it at least {least}"
    )]
    Budget { text: String, least: String, processes: u64 },
    #[error("--step: '{text}' is more than the {share} of a task: make it smaller")]
    Step { text: String, share: String },
    #[error("--swap: {0}")]
    Swap(String),
    #[error(
        "--vs {rival}: beside {swap} there is no directory for the kernel's swap file: name one with --swap, or use --vs zram"
    )]
    NoDisk { rival: String, swap: String },
    #[error("{case} does what it does once: leave --step and --repeat away")]
    Single { case: String },
    #[error("{case} has data of its own: leave --data away")]
    OwnData { case: String },
    #[error("--size: '{text}' is too small for {case}: make it at least {least}")]
    Small { text: String, case: String, least: String },
}

/// What is going to be measured, checked.
#[derive(Debug, Clone)]
pub(crate) struct Plan {
    pub(crate) case: Case,
    pub(crate) ram_bytes: u64,
    pub(crate) size_bytes: u64,
    pub(crate) tasks: usize,
    pub(crate) runs: usize,
    pub(crate) fault: FaultMode,
    pub(crate) poll: Poll,
    pub(crate) swap: Vec<String>,
    pub(crate) compress: Option<Compress>,
    /// What these two come to.
    pub(super) devices: Devices,
    pub(crate) rival: Option<Rival>,
    pub(crate) step_bytes: Option<u64>,
    pub(crate) repeat: usize,
    pub(crate) data: Data,
}

impl BenchArgs {
    pub(crate) fn check(&self) -> Result<Plan, UsageError> {
        let ram_bytes = bytes("--ram", &self.ram, RAM_MIN_BYTES)?;
        let plan = Plan {
            case: self.case,
            ram_bytes,
            size_bytes: bytes("--size", &self.size, PAGE_BYTES as u64)?,
            tasks: number("--tasks", &self.tasks, TASKS_MAX)?,
            runs: number("--runs", &self.runs, RUNS_MAX)?,
            fault: self.fault,
            poll: self.poll,
            swap: self.swap.clone(),
            compress: self.compress,
            devices: Devices::checked(&self.swap, self.compress, ram_bytes)?,
            rival: self.vs,
            step_bytes: self.step.as_deref().map(|step| bytes("--step", step, 8)).transpose()?,
            repeat: number("--repeat", &self.repeat, REPEAT_MAX)?,
            data: self.data,
        };
        plan.devices.check_beside(plan.rival)?;
        self.check_shares(&plan)?;
        self.check_case(&plan)?;
        Ok(plan)
    }

    /// What each of the tasks has.
    fn check_shares(&self, plan: &Plan) -> Result<(), UsageError> {
        let share = plan.size_bytes / plan.tasks as u64;
        if share < PAGE_BYTES as u64 {
            return Err(UsageError::Share { text: self.size.clone(), tasks: plan.tasks });
        }
        let processes = plan.processes();
        let least = RAM_MIN_BYTES * processes;
        if plan.ram_bytes < least {
            let (text, least) = (self.ram.clone(), size::display(least));
            return Err(UsageError::Budget { text, least, processes });
        }
        match &self.step {
            Some(text) if plan.step_bytes > Some(share) => {
                Err(UsageError::Step { text: text.clone(), share: size::display(share) })
            }
            _ => Ok(()),
        }
    }

    /// What the case can do.
    fn check_case(&self, plan: &Plan) -> Result<(), UsageError> {
        let case = choice::name(&plan.case);
        if plan.case.is_single() && plan.size_bytes < SCATTERED_MIN_BYTES {
            let least = size::display(SCATTERED_MIN_BYTES);
            return Err(UsageError::Small { text: self.size.clone(), case, least });
        }
        if plan.data != Data::Index && !plan.case.has_data() {
            return Err(UsageError::OwnData { case });
        }
        let repeated = plan.step_bytes.is_some() || plan.repeat > 1;
        if plan.case.is_single() && repeated {
            return Err(UsageError::Single { case });
        }
        Ok(())
    }
}

impl Plan {
    /// The processes that share the budget: an engine of each needs its part of it.
    fn processes(&self) -> u64 {
        match self.case.tasks() {
            Tasks::Threads => 1,
            Tasks::Processes if self.tasks == 1 => 1,
            // And the one that starts them.
            Tasks::Processes => self.tasks as u64 + 1,
        }
    }
}

pub(super) fn bytes(option: &'static str, text: &str, least: u64) -> Result<u64, UsageError> {
    size::parse(text, least).map_err(|error| UsageError::Size(option, error))
}

pub(super) fn number(option: &'static str, text: &str, most: usize) -> Result<usize, UsageError> {
    let number = text.parse().ok().filter(|number| (1..=most).contains(number));
    number.ok_or_else(|| UsageError::Number { option, text: text.to_owned(), most })
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: BenchArgs,
    }

    fn check(line: &str) -> Result<Plan, UsageError> {
        Line::try_parse_from(line.split_whitespace()).unwrap().args.check()
    }

    /// The plan of a command line that is right.
    pub(crate) fn plan(line: &str) -> Plan {
        check(line).unwrap()
    }

    #[test]
    fn the_defaults_are_a_load_four_times_its_budget_run_three_times() {
        let plan = plan("swap-w-seq");
        assert_eq!((plan.ram_bytes, plan.size_bytes), (512 << 20, 2 << 30));
        assert_eq!((plan.tasks, plan.runs, plan.repeat), (1, 3, 1));
        assert_eq!((plan.fault, plan.rival), (FaultMode::Thread, None));
    }

    #[test]
    fn each_process_needs_the_least_budget_and_threads_have_it_together() {
        assert_eq!(plan("swap-w-seq --ram 16M").processes(), 1);
        assert_eq!(plan("swap-w-seq --ram 80M --tasks 4").processes(), 5);
        assert_eq!(plan("swap-w-seq-mt --ram 16M --tasks 4").processes(), 1);
        let refusal = check("swap-w-seq --ram 79M --tasks 4").unwrap_err().to_string();
        assert!(refusal.contains("'79M'") && refusal.contains("80 MiB"), "{refusal}");
    }

    #[test]
    fn a_wrong_value_is_named_on_one_line() {
        for (line, value) in [
            ("--ram 12Q", "\"12Q\""),
            ("--ram 0", "\"0\""),
            ("--ram -1", "\"-1\""),
            ("--ram 15M", "\"15M\""),
            ("--size 0", "\"0\""),
            ("--tasks 0", "'0'"),
            ("--runs -1", "'-1'"),
            ("--step 4", "\"4\""),
            ("--step 1T", "'1T'"),
            ("--tasks 4 --size 64K --step 32K", "'32K'"),
            ("--swap mem:1K", "1K is too small"),
            ("--swap mem", "\"mem\""),
            ("--swap mem:1G --vs kernel", "mem:1G"),
            ("--swap mem:1G --vs zswap", "zswap"),
            ("--repeat x", "'x'"),
            ("--tasks 1024", "'512M'"),
            ("--ram 1G --size 4K --tasks 2", "'4K'"),
        ] {
            let text = check(&format!("swap-w-seq {line}")).unwrap_err().to_string();
            assert!(text.contains(value), "'{line}' gave: {text}");
            assert!(!text.contains('\n'), "'{line}' gave: {text}");
        }
        for line in [
            "zipf-read --data heap",
            "page-rand-read --repeat 2",
            "zipf-read --step 4096",
            "hash-join --size 16K",
        ] {
            let text = check(line).unwrap_err().to_string();
            assert!(
                text.contains(line.split_whitespace().next().unwrap()),
                "'{line}' gave: {text}"
            );
        }
    }
}
