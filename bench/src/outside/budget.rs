//! A program under `userswap run`: the command line, and the statistics that its engines leave.

use super::alternate::BenchError;
use super::excess::Excess;
use crate::faults::{Engines, Faults};
use crate::kernel;
use crate::process::{self, Course, Finished};
use std::ffi::OsString;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use userswap::{Compress, FaultMode, Poll};

/// What a program gets from us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Budget<'a> {
    /// The binary that has the verb `run`.
    pub(super) exe: &'a Path,
    pub(super) ram_bytes: u64,
    pub(super) fault: FaultMode,
    pub(super) poll: Poll,
    pub(super) swap: &'a [String],
    pub(super) compress: Option<Compress>,
}

/// A program that has ended, and what it had beyond its budget.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) finished: Finished,
    pub(super) excess: Option<Excess>,
}

impl Ended {
    /// Without a budget of ours.
    pub(super) fn unlimited(finished: Finished) -> Self {
        Self { finished, excess: None }
    }

    /// The program if it kept to its budget; one that failed has a reason of its own.
    pub(super) fn within_budget(self) -> Result<Finished, BenchError> {
        match self.excess.filter(|_| self.finished.status.success()) {
            Some(excess) => Err(BenchError::Exceeded(excess)),
            None => Ok(self.finished),
        }
    }
}

impl Budget<'_> {
    /// Runs the program with its arguments; its major faults are those of its engines, whoever counts in `course`.
    pub(super) fn run(&self, program: &[OsString], course: Course) -> Result<Ended, BenchError> {
        let engines =
            Engines::new(self.exe, &kernel::unique_name()).map_err(BenchError::Statistics)?;
        let mut command = self.command(program, &engines.pattern());
        let faults = Arc::new(Faults::Engine(engines));
        let course = Course { faults: Arc::clone(&faults), ..course };
        let finished = process::run(&mut command, &course)?;
        Ok(Ended { finished, excess: Excess::of(&faults.statistics()) })
    }

    fn command(&self, program: &[OsString], statistics: &Path) -> Command {
        let mut command = Command::new(self.exe);
        command.args(["run", "--no-defaults", "--ram", &self.ram_bytes.to_string()]);
        command.args(["--fault", &self.fault.to_string()]);
        command.args(["--poll", &self.poll.to_string()]);
        for spec in self.swap {
            command.args(["--swap", spec]);
        }
        if let Some(compress) = self.compress {
            command.args(["--compress", &compress.to_string()]);
        }
        command.arg("--stats").arg(statistics).arg("--").args(program);
        command
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_keeps_its_arguments_and_has_one_budget_for_all_its_processes() {
        let swap = ["/a", "/b:1G"].map(str::to_owned);
        let (exe, fault, poll) = (Path::new("us"), FaultMode::Signal, Poll::Micros(30));
        let compress = Some(Compress::Most(64 << 20));
        let budget = Budget { exe, ram_bytes: 512 << 20, fault, poll, swap: &swap, compress };
        let program = ["us", "usemem", "-n", "2"].map(OsString::from);
        let command = budget.command(&program, Path::new("/s/%p.json"));
        let args: Vec<_> = command.get_args().map(|arg| arg.to_str().unwrap()).collect();
        assert_eq!(
            args.join(" "),
            "run --no-defaults --ram 536870912 --fault signal --poll 30 --swap /a --swap /b:1G --compress 64M --stats /s/%p.json -- \
             us usemem -n 2"
        );
    }
}
