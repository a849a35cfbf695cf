//! The benchmark cases: what each has the load generator do, and which lines must come back.

use super::args::Plan;
use crate::process::MeasureFrom;
use crate::usemem::{PAGE_READS_UNIT, THROUGHPUT_UNIT};
use clap::ValueEnum;
use serde::Serialize;
use userswap::internals::PAGE_BYTES;

/// The step of a random case. With usemem's own of 8 bytes each page would be visited 512 times on
/// average, and nearly every visit would be a fault: hours for what says the same in seconds.
pub(crate) const RANDOM_STEP_BYTES: u64 = PAGE_BYTES as u64;
/// The share of the pages that `page-rand-read` reads, all threads together: 1 in this many.
const PAGES_PER_READ: u64 = 4;
/// Both sides visit the same random positions.
const SEED: &str = "1";

/// What is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Case {
    /// Processes write their memory in order
    SwapWSeq,
    /// Threads write their memory in order
    SwapWSeqMt,
    /// Processes write at random positions
    SwapWRand,
    /// Threads write at random positions
    SwapWRandMt,
    /// Processes write everything, then read it in order; the read is measured
    Swapin,
    /// Threads read random pages of one filled mapping; the reads are measured
    PageRandRead,
}

/// How the tasks of a case are told apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tasks {
    Processes,
    Threads,
}

impl Case {
    pub(crate) fn tasks(self) -> Tasks {
        match self {
            Self::SwapWSeq | Self::SwapWRand | Self::Swapin => Tasks::Processes,
            Self::SwapWSeqMt | Self::SwapWRandMt | Self::PageRandRead => Tasks::Threads,
        }
    }

    pub(crate) fn is_random(self) -> bool {
        matches!(self, Self::SwapWRand | Self::SwapWRandMt)
    }
}

/// One run of the load generator: its arguments and what is expected of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) args: Vec<String>,
    pub(crate) from: MeasureFrom,
    /// One result line of this kind per task.
    unit: &'static str,
    lines: usize,
    /// KB that one of the line's units stands for.
    kilobytes_per_unit: u64,
}

impl Load {
    /// The load of `plan` over `size_bytes`, all tasks together.
    pub(crate) fn new(plan: &Plan, size_bytes: u64) -> Self {
        let tasks = plan.tasks as u64;
        let page = PAGE_BYTES as u64;
        let share = (size_bytes / tasks / page * page).max(page);
        let per_task = match plan.case.tasks() {
            Tasks::Processes => "-n",
            Tasks::Threads => "-t",
        };
        let mut args = vec!["-q".to_owned(), per_task.to_owned(), tasks.to_string()];
        let mut add = |more: &[&str]| args.extend(more.iter().map(|&arg| arg.to_owned()));
        let mut load = Self {
            args: Vec::new(),
            from: MeasureFrom::Start,
            unit: THROUGHPUT_UNIT,
            lines: plan.tasks,
            kilobytes_per_unit: 1,
        };
        match plan.case {
            Case::SwapWSeq | Case::SwapWSeqMt => {}
            Case::SwapWRand | Case::SwapWRandMt => add(&["--random", "--random-seed", SEED]),
            Case::Swapin => {
                add(&["-W"]);
                load.from = MeasureFrom::Signal { waiters: plan.tasks };
            }
            Case::PageRandRead => {
                let reads = page_reads(size_bytes).div_ceil(tasks).to_string();
                add(&["-W", "--random-seed", SEED, "--page-random-read", &reads]);
                load.from = MeasureFrom::Signal { waiters: 1 };
                load.unit = PAGE_READS_UNIT;
                load.kilobytes_per_unit = page / 1024;
            }
        }
        add(&passes(plan).iter().map(String::as_str).collect::<Vec<_>>());
        let bytes = if plan.case == Case::PageRandRead { size_bytes } else { share };
        add(&[&bytes.to_string()]);
        Self { args, ..load }
    }

    /// The sum of the tasks' rates in KB/s, or why there is none.
    pub(crate) fn throughput_kbs(&self, stdout: &str) -> Result<u64, String> {
        let rates: Option<Vec<u64>> =
            stdout.lines().filter_map(|line| self.rate(line)).collect::<Option<Vec<_>>>();
        let found = rates.ok_or_else(|| "a result line has no rate".to_owned())?;
        if found.len() != self.lines {
            return Err(format!("{} result lines, expected {}", found.len(), self.lines));
        }
        Ok(found.iter().sum::<u64>() * self.kilobytes_per_unit)
    }

    /// The rate of a result line; nothing if the line is of another kind.
    fn rate(&self, line: &str) -> Option<Option<u64>> {
        let line = line.strip_suffix(self.unit)?;
        // What a second reading took is a line of its own, which no case asks for.
        let (_, rate) = line.rsplit_once(" usecs = ")?;
        Some(rate.parse().ok())
    }
}

/// The options for the distance of the accesses and the number of passes.
fn passes(plan: &Plan) -> Vec<String> {
    let default_step = plan.case.is_random().then_some(RANDOM_STEP_BYTES);
    let step = plan.step_bytes.or(default_step).map(|step| ["-j".to_owned(), step.to_string()]);
    let repeat = (plan.repeat > 1).then(|| ["-r".to_owned(), plan.repeat.to_string()]);
    step.into_iter().chain(repeat).flatten().collect()
}

/// The page reads of all threads over `size_bytes` of memory.
pub(crate) fn page_reads(size_bytes: u64) -> u64 {
    (size_bytes / PAGE_BYTES as u64 / PAGES_PER_READ).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    fn load(line: &str) -> Load {
        let plan = plan(line);
        Load::new(&plan, plan.size_bytes)
    }

    #[test]
    fn each_case_has_its_load() {
        for (line, args) in [
            ("swap-w-seq", "-q -n 1 2147483648"),
            ("swap-w-seq --tasks 16 --step 4096 --repeat 3", "-q -n 16 -j 4096 -r 3 134217728"),
            ("swap-w-seq-mt --tasks 2", "-q -t 2 1073741824"),
            ("swap-w-rand --size 1G", "-q -n 1 --random --random-seed 1 -j 4096 1073741824"),
            (
                "swap-w-rand-mt --step 64 --size 1G",
                "-q -t 1 --random --random-seed 1 -j 64 1073741824",
            ),
            ("swapin", "-q -n 1 -W 2147483648"),
            (
                "page-rand-read --tasks 16",
                "-q -t 16 -W --random-seed 1 --page-random-read 8192 2147483648",
            ),
        ] {
            assert_eq!(load(line).args.join(" "), args, "{line}");
        }
    }

    #[test]
    fn throughput_is_the_sum_over_all_tasks() {
        let out = "..10 bytes / 1 usecs = 100 KB/s\n5 usecs to free memory\n\
                   10 bytes / 1 usecs = 23 KB/s\n5 usecs to free memory\n";
        assert_eq!(load("swap-w-seq --tasks 2").throughput_kbs(out), Ok(123));
    }

    #[test]
    fn page_reads_count_as_pages() {
        let out = "Read Process 7 is waiting signal\n100 page reads / 1 usecs = 50 reads/s\n";
        let kilobytes = PAGE_BYTES as u64 / 1024;
        assert_eq!(load("page-rand-read").throughput_kbs(out), Ok(50 * kilobytes));
    }

    #[test]
    fn a_missing_line_is_never_a_number() {
        let out = "10 bytes / 1 usecs = 100 KB/s\n";
        assert!(load("swap-w-seq --tasks 2").throughput_kbs(out).is_err());
        assert!(load("swap-w-seq").throughput_kbs("").is_err());
        assert!(load("swap-w-seq").throughput_kbs("1 bytes / 1 usecs = x KB/s\n").is_err());
    }
}
