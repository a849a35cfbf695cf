//! The benchmark cases: what each has the load generator do, and which lines must come back.

use super::args::Plan;
use crate::choice;
use crate::process::Part;
use crate::usemem::{
    Data, LATENCY_UNIT, OPERATIONS_UNIT, PAGE_READS_UNIT, Scattered, THROUGHPUT_UNIT,
};
use clap::ValueEnum;
use serde::Serialize;
use userswap::internals::PAGE_BYTES;

/// The step of a random case. With usemem's own of 8 bytes each page would be visited 512 times on
/// average, and nearly every visit would be a fault: hours for what says the same in seconds.
pub(crate) const RANDOM_STEP_BYTES: u64 = PAGE_BYTES as u64;
/// The share of the pages that `page-rand-read` reads, all threads together: 1 in this many.
const PAGES_PER_READ: u64 = 4;
/// The same for the operations of the other loads of scattered pages, which are measured more often.
const PAGES_PER_OPERATION: u64 = 8;
/// Pages of the heap for one that `gc-heap` replaces: its collection costs as much as many replacements.
const PAGES_PER_REPLACEMENT: u64 = 64;
/// The heap with a garbage collector, for python3.
const GC_HEAP: &str = include_str!("gc_heap.py");
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
    /// Threads read pages of one filled mapping, drawn by zipf's law (0.99); the reads are measured
    ZipfRead,
    /// The same, but they write
    ZipfWrite,
    /// Threads look rows up in a hash table and write what they join; that is measured
    HashJoin,
    /// Threads follow pointers from page to page; that is measured
    PointerChase,
    /// Processes of python3 replace parts of a heap and collect its garbage; that is measured
    GcHeap,
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
            Self::SwapWSeq | Self::SwapWRand | Self::Swapin | Self::GcHeap => Tasks::Processes,
            Self::SwapWSeqMt | Self::SwapWRandMt | Self::PageRandRead => Tasks::Threads,
            Self::ZipfRead | Self::ZipfWrite | Self::HashJoin | Self::PointerChase => {
                Tasks::Threads
            }
        }
    }

    /// The load generator's name for what it does to scattered pages.
    fn scattered(self) -> Option<Scattered> {
        match self {
            Self::ZipfRead => Some(Scattered::ZipfRead),
            Self::ZipfWrite => Some(Scattered::ZipfWrite),
            Self::HashJoin => Some(Scattered::HashJoin),
            Self::PointerChase => Some(Scattered::PointerChase),
            _ => None,
        }
    }

    /// Whether it does one thing once, so that there is no distance and no second pass.
    pub(crate) fn is_single(self) -> bool {
        matches!(self, Self::PageRandRead | Self::GcHeap) || self.scattered().is_some()
    }

    /// The operations of a load whose operations take a page each, over `size_bytes`, before they are shared out.
    fn page_operations(self, size_bytes: u64) -> Option<u64> {
        let pages_per_one = match self {
            Self::PageRandRead => Some(PAGES_PER_READ),
            _ => self.scattered().map(|_| PAGES_PER_OPERATION),
        };
        pages_per_one.map(|pages| (size_bytes / PAGE_BYTES as u64 / pages).max(1))
    }

    /// Whether what it writes is a kind of data of the command line's choice.
    pub(crate) fn has_data(self) -> bool {
        self != Self::GcHeap && self.scattered().is_none()
    }

    pub(crate) fn is_random(self) -> bool {
        matches!(self, Self::SwapWRand | Self::SwapWRandMt)
    }
}

/// What runs a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Program {
    Usemem,
    Python,
}

/// What the faults of one run took, in microseconds.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Latency {
    pub(crate) p50_us: f64,
    pub(crate) p99_us: f64,
}

/// One run of a load: its arguments and what is expected of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Load {
    pub(crate) program: Program,
    pub(crate) args: Vec<String>,
    pub(crate) part: Part,
    /// One result line of this kind per task.
    unit: &'static str,
    lines: usize,
    /// KB that one of the line's units stands for.
    kilobytes_per_unit: u64,
}

impl Load {
    /// The load of `plan` over `size_bytes`, all tasks together.
    pub(crate) fn new(plan: &Plan, size_bytes: u64) -> Self {
        match (plan.case, plan.case.scattered()) {
            (_, Some(kind)) => Self::scattered(plan, kind, size_bytes),
            (Case::PageRandRead, None) => Self::page_reads(plan, size_bytes),
            (Case::GcHeap, None) => Self::gc_heap(plan, size_bytes),
            (_, None) => Self::passes(plan, size_bytes),
        }
    }

    /// A load of usemem's whose figures are `unit`, all of it measured.
    fn usemem(plan: &Plan, unit: &'static str) -> Self {
        let per_task = match plan.case.tasks() {
            Tasks::Processes => "-n",
            Tasks::Threads => "-t",
        };
        let mut args = words(&["-q", per_task, &plan.tasks.to_string()]);
        if plan.data != Data::Index {
            args.extend(words(&["--data", &choice::name(&plan.data)]));
        }
        Self {
            program: Program::Usemem,
            args,
            part: Part::Whole,
            unit,
            lines: plan.tasks,
            kilobytes_per_unit: 1,
        }
    }

    fn with(mut self, more: &[&str]) -> Self {
        self.args.extend(words(more));
        self
    }

    /// Passes over the memory of each task.
    fn passes(plan: &Plan, size_bytes: u64) -> Self {
        let page = PAGE_BYTES as u64;
        let share = (size_bytes / plan.tasks as u64 / page * page).max(page);
        let mut load = Self::usemem(plan, THROUGHPUT_UNIT);
        if plan.case.is_random() {
            load = load.with(&["--random", "--random-seed", SEED]);
        }
        if plan.data != Data::Index && plan.tasks > 1 {
            // What is in use at most must not depend on which task comes to its end first.
            load = load.with(&["-x"]);
        }
        if plan.case == Case::Swapin {
            load = load.with(&["-W"]);
            load.part = Part::AfterSignal { waiters: plan.tasks };
        }
        load.args.extend(passes(plan));
        load.with(&[&share.to_string()])
    }

    fn page_reads(plan: &Plan, size_bytes: u64) -> Self {
        let reads = operations_each(plan, size_bytes).to_string();
        Self {
            part: Part::AfterSignal { waiters: 1 },
            kilobytes_per_unit: PAGE_BYTES as u64 / 1024,
            ..Self::usemem(plan, PAGE_READS_UNIT)
        }
        .with(&["-W", "--random-seed", SEED, "--page-random-read", &reads])
        .with(&[&size_bytes.to_string()])
    }

    fn scattered(plan: &Plan, kind: Scattered, size_bytes: u64) -> Self {
        let operations = operations_each(plan, size_bytes).to_string();
        Self {
            part: Part::BetweenSignals { waiters: 1 },
            kilobytes_per_unit: PAGE_BYTES as u64 / 1024,
            ..Self::usemem(plan, OPERATIONS_UNIT)
        }
        .with(&["-W", "--load", &choice::name(&kind), "--operations", &operations])
        .with(&[&size_bytes.to_string()])
    }

    fn gc_heap(plan: &Plan, size_bytes: u64) -> Self {
        let share = size_bytes / plan.tasks as u64;
        let replacements = (share / PAGE_BYTES as u64 / PAGES_PER_REPLACEMENT).max(1);
        let numbers = [plan.tasks as u64, share, replacements].map(|number| number.to_string());
        let args = ["-I", "-S", "-c", GC_HEAP].map(str::to_owned);
        Self {
            program: Program::Python,
            args: args.into_iter().chain(numbers).collect(),
            part: Part::BetweenSignals { waiters: plan.tasks },
            unit: OPERATIONS_UNIT,
            lines: plan.tasks,
            // What is replaced at once: 16 nodes of about 1 KiB.
            kilobytes_per_unit: 16,
        }
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

    /// What faults took, if the load says so.
    pub(crate) fn latency(&self, stdout: &str) -> Option<Latency> {
        let line = stdout.lines().find_map(|line| line.strip_suffix(LATENCY_UNIT))?;
        let (half, most) =
            line.rsplit_once(" reads were faults: ")?.1.split_once(" usecs half of them, ")?;
        Some(Latency { p50_us: half.parse().ok()?, p99_us: most.parse().ok()? })
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

/// What all tasks of `plan` do together, of a load whose operations take a page each: all of them as much.
pub(crate) fn page_operations(plan: &Plan) -> Option<u64> {
    plan.case.page_operations(plan.size_bytes)?;
    Some(operations_each(plan, plan.size_bytes) * plan.tasks as u64)
}

/// What each task of a load does of all page operations.
fn operations_each(plan: &Plan, size_bytes: u64) -> u64 {
    let all = plan.case.page_operations(size_bytes).expect("such a load has operations");
    all.div_ceil(plan.tasks as u64)
}

fn words(words: &[&str]) -> Vec<String> {
    words.iter().map(|&word| word.to_owned()).collect()
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
            ("swap-w-seq-mt --data 2:1 --tasks 2", "-q -t 2 --data 2:1 -x 1073741824"),
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
            ("zipf-write --tasks 4", "-q -t 4 -W --load zipf-write --operations 16384 2147483648"),
            ("hash-join --size 1G", "-q -t 1 -W --load hash-join --operations 32768 1073741824"),
        ] {
            assert_eq!(load(line).args.join(" "), args, "{line}");
        }
    }

    #[test]
    fn a_heap_is_shared_out_to_processes_of_python() {
        let load = load("gc-heap --tasks 4 --size 1G");
        assert_eq!(
            (load.program, load.part),
            (Program::Python, Part::BetweenSignals { waiters: 4 })
        );
        assert_eq!(load.args[4..], ["4", "268435456", "1024"]);
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
        assert_eq!(load("page-rand-read").latency(out), None);
        let more =
            format!("{out}7 of 100 reads were faults: 4.5 usecs half of them, 12 usecs 99 %\n");
        let latency = Latency { p50_us: 4.5, p99_us: 12.0 };
        assert_eq!(load("page-rand-read").latency(&more), Some(latency));
    }

    #[test]
    fn a_missing_line_is_never_a_number() {
        let out = "10 bytes / 1 usecs = 100 KB/s\n";
        assert!(load("swap-w-seq --tasks 2").throughput_kbs(out).is_err());
        assert!(load("swap-w-seq").throughput_kbs("").is_err());
        assert!(load("swap-w-seq").throughput_kbs("1 bytes / 1 usecs = x KB/s\n").is_err());
    }
}
