//! Runs a job natively, then on all sides in turns.

use super::args::Plan;
use super::job::Job;
use super::row::{Row, State};
use super::verdict::{JobPart, Verdict, parts};
use super::workshop::{NotInstalled, Workshop};
use crate::interrupt::Interrupt;
use crate::kernel::{self, Limits};
use crate::outside::alternate::BenchError;
use crate::outside::budget::{Budget, Ended};
use crate::process::{self, Course, Figures, Finished, Part, RunError};
use crate::watch::Watch;
use serde::{Serialize, Serializer};
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use userswap::{FaultMode, Poll};

/// A run may take so many times as long as the native one, and so much more.
const LIMIT_TIMES: u32 = 20;
const LIMIT_MORE: Duration = Duration::from_secs(180);
/// The kernel's swap for each byte that a job needs natively: a collector that is slower may let more garbage lie.
const SWAP_TIMES: u64 = 2;
const SWAP_MORE_BYTES: u64 = 256 << 20;

/// Where a job runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Side {
    Native,
    Kernel,
    Userswap(FaultMode),
}

impl fmt::Display for Side {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Native => out.write_str("native"),
            Self::Kernel => out.write_str("kernel"),
            Self::Userswap(fault) => write!(out, "{fault}"),
        }
    }
}

impl Serialize for Side {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(super) struct Run {
    pub(super) side: Side,
    #[serde(flatten)]
    pub(super) figures: Figures,
    /// The most anonymous memory in RAM of all processes together.
    pub(super) anon_bytes_max: u64,
    pub(super) parts: Vec<JobPart>,
    #[serde(flatten)]
    pub(super) verdict: Verdict,
}

impl Run {
    fn new(side: Side, finished: &Finished, verdict: Verdict) -> Self {
        Self {
            side,
            figures: finished.figures(),
            anon_bytes_max: finished.seen.map_or(0, |seen| seen.anon_bytes_max),
            parts: parts(&finished.stderr),
            verdict,
        }
    }
}

/// What all measurements of a plan share.
pub(super) struct Bench<'a> {
    plan: &'a Plan,
    exe: &'a Path,
    workshop: Workshop<'a>,
    swap_directory: PathBuf,
    /// Held over all runs, so that a signal between two of them counts for the next.
    interrupt: Interrupt,
}

impl<'a> Bench<'a> {
    pub(super) fn new(plan: &'a Plan, exe: &'a Path) -> Result<Self, BenchError> {
        let swap_directory = plan.devices.swap_directory();
        if let Some(rival) = plan.rival {
            rival.place(&swap_directory, None).check()?;
        }
        let interrupt = Interrupt::hold().map_err(RunError::from)?;
        let workshop = Workshop::new(exe, &plan.venv).map_err(BenchError::Workshop)?;
        Ok(Self { plan, exe, workshop, swap_directory, interrupt })
    }

    /// All runs of `job`.
    pub(super) fn measure(&self, job: Job) -> Result<Row, BenchError> {
        let words = match self.workshop.prepare(job, self.plan.scale)? {
            Ok(words) => words,
            Err(NotInstalled(what)) => {
                say!("{job}: not installed: {what}");
                return Ok(Row { job, state: State::NotInstalled { what } });
            }
        };
        let unlimited = Given { limit: None, swap_bytes: 0 };
        let native = self.finish(Side::Native, &words, unlimited)?;
        let expected = &native.finished.stdout;
        let first = self.judged(job, Side::Native, &native, expected);
        let limit = self.limit(native.finished.wall);
        let given = Given { limit: Some(limit), swap_bytes: swap_bytes(first.anon_bytes_max) };
        let mut runs = vec![first];
        // Without a native result there is nothing to hold the others against.
        let turns = if runs[0].verdict == Verdict::Same { self.plan.runs } else { 0 };
        for _ in 0..turns {
            for side in self.sides() {
                // A side that took too long once does not get the time again.
                let is_slow = |run: &Run| run.side == side && run.verdict == Verdict::TooLong;
                if !runs.iter().any(is_slow) {
                    let ended = self.finish(side, &words, given)?;
                    runs.push(self.judged(job, side, &ended, expected));
                }
            }
        }
        let count = job.count(self.plan.scale);
        Ok(Row { job, state: State::Measured { count, limit_s: limit.as_secs_f64(), runs } })
    }

    fn sides(&self) -> Vec<Side> {
        let ours = self.plan.faults.iter().map(|&fault| Side::Userswap(fault));
        ours.chain(self.plan.rival.map(|_| Side::Kernel)).collect()
    }

    fn limit(&self, native: Duration) -> Duration {
        self.plan.limit.unwrap_or(native * LIMIT_TIMES + LIMIT_MORE)
    }

    /// Runs the program on one side, well or not.
    fn finish(&self, side: Side, words: &[OsString], given: Given) -> Result<Ended, BenchError> {
        self.interrupt.check().map_err(RunError::from)?;
        let watch = Some(Watch { limit: given.limit });
        let course = Course { watch, ..Course::new(Part::Whole) };
        let Plan { ram_bytes, rival, ref swap, compress, .. } = *self.plan;
        let mut command = Command::new(&words[0]);
        command.args(&words[1..]);
        match (side, rival) {
            (Side::Userswap(fault), _) => {
                Budget { exe: self.exe, ram_bytes, fault, poll: Poll::Auto, swap, compress }
                    .run(words, course)
            }
            (Side::Kernel, Some(rival)) => {
                let place = rival.place(&self.swap_directory, None);
                let Given { swap_bytes, .. } = given;
                let limits = Limits { ram_bytes, swap_bytes, place, pool_bytes_max: None };
                Ok(Ended::unlimited(kernel::run(&mut command, &limits, &course)?.finished))
            }
            (Side::Native | Side::Kernel, _) => {
                Ok(Ended::unlimited(process::run(&mut command, &course)?))
            }
        }
    }

    /// The figures of a run, told as they come.
    fn judged(&self, job: Job, side: Side, ended: &Ended, expected: &str) -> Run {
        let verdict = Verdict::of(job, &ended.finished, expected).within(ended.excess.as_ref());
        let run = Run::new(side, &ended.finished, verdict);
        match run.verdict.complaint() {
            Some(complaint) => say!("{job}: {side}: {complaint}"),
            None if run.verdict == Verdict::TooLong => {
                say!("{job}: {side}: killed after {:.2} s", run.figures.wall_s);
            }
            None => say!("{job}: {side}: {:.2} s", run.figures.wall_s),
        }
        run
    }
}

/// What a run may take.
#[derive(Debug, Clone, Copy)]
struct Given {
    limit: Option<Duration>,
    swap_bytes: u64,
}

fn swap_bytes(anon_bytes: u64) -> u64 {
    anon_bytes * SWAP_TIMES + SWAP_MORE_BYTES
}
