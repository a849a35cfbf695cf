//! `bench all`: every case that the README shows, each with both ways of serving faults, the worst row first.
//!
//! A row is measured as `bench CASE` measures it: faults by message and the rival in turns, faults by signal right after.

use super::alternate::{BenchError, disk, measure};
use super::args::BenchArgs;
use super::case::Case;
use super::cells::{figure, none, ratio, seconds};
use super::report::{Engine, Report};
use crate::choice;
use crate::format::{Format, Shown};
use crate::interrupt::Interrupt;
use crate::kernel::Rival;
use crate::machine::{self, Machine};
use crate::process::RunError;
use crate::size;
use crate::usemem::Data;
use clap::Args;
use serde::Serialize;
use std::process::ExitCode;
use userswap::{Compress, FaultMode, Poll};

/// The options of `userswap bench all`; those that a case has too mean the same.
#[derive(Debug, Clone, Args)]
pub struct TableArgs {
    /// Cases to measure [default: all]
    #[arg(long, value_name = "CASE", value_delimiter = ',', num_args = 1..)]
    case: Vec<Case>,
    /// RAM budget of each load
    #[arg(long, value_name = "SIZE", default_value = "512M", allow_hyphen_values = true)]
    ram: String,
    /// Memory that each load works on; of gc-heap half
    #[arg(long, value_name = "SIZE", default_value = "2G", allow_hyphen_values = true)]
    size: String,
    /// Numbers of tasks, of the cases that are measured with several
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values = ["1", "4", "16"])]
    tasks: Vec<String>,
    /// Runs of each side
    #[arg(long, value_name = "N", default_value = "3", allow_hyphen_values = true)]
    runs: String,
    /// How faults reach the engine, one column each
    #[arg(long, value_name = "MODE", value_delimiter = ',', num_args = 1.., default_values = ["thread", "signal"])]
    fault: Vec<FaultMode>,
    /// How the engine waits for faults, as for `userswap run`
    #[arg(long, value_name = "WAY", default_value_t = Poll::Auto)]
    poll: Poll,
    /// Swap device of the engine, as for `userswap run`; may be repeated
    #[arg(long, value_name = "SPEC", allow_hyphen_values = true)]
    swap: Vec<String>,
    /// Compressed memory in front of its devices, as for `userswap run`
    #[arg(long, value_name = "SIZE|auto", allow_hyphen_values = true)]
    compress: Option<Compress>,
    /// What the loads write; but for index, only cases that have no data of their own
    #[arg(long, value_name = "KIND", default_value = "index")]
    data: Data,
    /// Measure this beside it, in turns
    #[arg(long, value_name = "RIVAL")]
    vs: Option<Rival>,
    #[command(flatten)]
    format: Format,
}

/// Measures every row and prints the table; a row that fails is named, and the status is 1 then.
pub(crate) fn run(args: &TableArgs) -> ExitCode {
    let loads = loads(args);
    if let Some(error) = loads.iter().find_map(|load| load.check().err()) {
        return BenchError::from(error).told();
    }
    // Held over all rows: what ends the next one does not lose those before it.
    let interrupt = match Interrupt::hold() {
        Ok(interrupt) => interrupt,
        Err(error) => return BenchError::from(RunError::from(error)).told(),
    };
    let mut table =
        Table { rows: Vec::new(), machine: Machine::this(), kernel: machine::kernel_release() };
    let mut status = ExitCode::SUCCESS;
    for (number, load) in loads.iter().enumerate() {
        say!("{} of {}: {}", number + 1, loads.len(), arguments(load));
        match measured(args, load, &interrupt) {
            Ok(row) => table.rows.push(row),
            Err(error) => {
                let is_interrupted = error.interrupted().is_some();
                status = error.told();
                if is_interrupted {
                    break;
                }
            }
        }
    }
    table.rows.sort_by(|one, other| one.worst().total_cmp(&other.worst()));
    match table.print(args.format) {
        Ok(()) => status,
        Err(error) => BenchError::Print(error).told(),
    }
}

/// The command line of a row, for faults by the first of the modes.
fn load(args: &TableArgs, case: Case, tasks: &str) -> BenchArgs {
    BenchArgs {
        case,
        ram: args.ram.clone(),
        size: if case == Case::GcHeap { half(&args.size) } else { args.size.clone() },
        tasks: tasks.to_owned(),
        runs: args.runs.clone(),
        fault: args.fault[0],
        poll: args.poll,
        swap: args.swap.clone(),
        compress: args.compress,
        vs: args.vs,
        json: false,
        step: None,
        repeat: "1".to_owned(),
        data: args.data,
    }
}

/// Those of all rows.
fn loads(args: &TableArgs) -> Vec<BenchArgs> {
    let one = |case, tasks: &str| load(args, case, tasks);
    let mut loads = vec![
        one(Case::SwapWSeq, "1"),
        BenchArgs {
            step: Some("4096".to_owned()),
            repeat: "3".to_owned(),
            ..one(Case::SwapWSeq, "1")
        },
        one(Case::SwapWSeqMt, "2"),
        one(Case::SwapWSeqMt, "16"),
        one(Case::SwapWRand, "1"),
        one(Case::Swapin, "1"),
    ];
    // With one it would be the same as swap-w-rand.
    let several = args.tasks.iter().filter(|tasks| *tasks != "1");
    loads.extend(several.map(|tasks| one(Case::SwapWRandMt, tasks)));
    let many = [
        Case::PageRandRead,
        Case::ZipfRead,
        Case::ZipfWrite,
        Case::HashJoin,
        Case::PointerChase,
        Case::GcHeap,
    ];
    for case in many {
        loads.extend(args.tasks.iter().map(|tasks| one(case, tasks)));
    }
    loads.into_iter().filter(|load| is_wanted(args, load)).collect()
}

fn is_wanted(args: &TableArgs, load: &BenchArgs) -> bool {
    // With a step, pages of other data would stay empty but for a word.
    let has_data = args.data == Data::Index || load.case.has_data() && load.step.is_none();
    has_data && (args.case.is_empty() || args.case.contains(&load.case))
}

/// A heap of python's takes several times as long for its bytes as the other loads. A text that is no size stays
/// what it is, to be refused by its name.
fn half(text: &str) -> String {
    size::parse(text, 2).map_or_else(|_| text.to_owned(), |bytes| (bytes / 2).to_string())
}

fn measured(args: &TableArgs, load: &BenchArgs, interrupt: &Interrupt) -> Result<Row, BenchError> {
    let mut reports = Vec::new();
    for (number, &fault) in args.fault.iter().enumerate() {
        let vs = load.vs.filter(|_| number == 0);
        let plan = BenchArgs { fault, vs, ..load.clone() }.check()?;
        let disk = if number == 0 { disk(&plan) } else { None };
        interrupt.check().map_err(RunError::from)?;
        reports.push(measure(&plan, disk)?);
    }
    Ok(Row { arguments: arguments(load), reports })
}

fn arguments(load: &BenchArgs) -> String {
    let mut text = choice::name(&load.case);
    let mut add = |more: String| text.extend([" ".to_owned(), more]);
    if load.tasks != "1" {
        add(format!("--tasks {}", load.tasks));
    }
    if load.case == Case::GcHeap {
        add(format!("--size {}", load.size));
    }
    if load.data != Data::Index {
        add(format!("--data {}", choice::name(&load.data)));
    }
    if let Some(step) = &load.step {
        add(format!("--step {step} --repeat {}", load.repeat));
    }
    text
}

/// A load, with a report for each way of serving faults; the rival is in the first.
#[derive(Debug, Serialize)]
struct Row {
    arguments: String,
    reports: Vec<Report>,
}

impl Row {
    /// The lowest of the ratios; without a rival the seconds, upside down.
    fn worst(&self) -> f64 {
        let ratios = self.reports.iter().filter_map(|report| self.ratio(report));
        let slowest = self.reports.iter().filter_map(|report| report.wall_s(Engine::Userswap));
        ratios.reduce(f64::min).unwrap_or_else(|| {
            -slowest.map(|spread| spread.median).reduce(f64::max).unwrap_or_default()
        })
    }

    fn ratio(&self, report: &Report) -> Option<f64> {
        let rival = self.reports.first()?.wall_s(Engine::Kernel)?;
        Some(rival.median / report.wall_s(Engine::Userswap)?.median)
    }

    fn line(&self) -> String {
        let first = &self.reports[0];
        let mut cells =
            vec![format!("`{}`", self.arguments), seconds(first.wall_s(Engine::Kernel))];
        for report in &self.reports {
            cells.push(seconds(report.wall_s(Engine::Userswap)));
            cells.push(self.ratio(report).map_or_else(none, ratio));
        }
        cells.push(first.ideal_s().map_or_else(none, figure));
        cells.push(waits(first, Engine::Kernel));
        cells.extend(self.reports.iter().map(|report| waits(report, Engine::Userswap)));
        format!("| {} |\n", cells.join(" | "))
    }
}

/// Major faults, and the share of operations that had none where the load has operations.
fn waits(report: &Report, engine: Engine) -> String {
    let Some(faults) = report.major_faults(engine) else { return none() };
    match report.hit_rate(engine) {
        Some(rate) => format!("{faults:.0} ({:.1} %)", rate * 100.0),
        None => format!("{faults:.0}"),
    }
}

/// All rows. The fields are the keys of the JSON object.
#[derive(Debug, Serialize)]
struct Table {
    rows: Vec<Row>,
    machine: Machine,
    kernel: String,
}

impl Shown for Table {
    fn text(&self) -> String {
        let Some(first) = self.rows.first() else { return String::new() };
        let mut head = vec!["arguments".to_owned(), "kernel".to_owned()];
        head.extend(
            first
                .reports
                .iter()
                .flat_map(|report| [report.fault().to_string(), "ratio".to_owned()]),
        );
        head.push("ideal".to_owned());
        head.push("major faults (hits): kernel".to_owned());
        head.extend(first.reports.iter().map(|report| report.fault().to_string()));
        let lines: String = self.rows.iter().map(Row::line).collect();
        format!(
            "| {} |\n|{}\n{lines}\n{}, Linux {}\n",
            head.join(" | "),
            "---|".repeat(head.len()),
            self.machine,
            self.kernel
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::Disk;
    use crate::outside::args::tests::plan;
    use crate::outside::report::Run;
    use crate::process::Figures;
    use clap::Parser;

    #[derive(Debug, Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        args: TableArgs,
    }

    fn table_args(line: &str) -> TableArgs {
        Line::try_parse_from(line.split_whitespace()).unwrap().args
    }

    fn row(case: &str, walls: [f64; 3]) -> Row {
        let run = |engine, wall_s| Run {
            engine,
            figures: Figures { wall_s, user_s: 0.0, sys_s: 0.0, major_faults: Some(8192) },
            throughput_kbs: 1,
            latency: None,
            within: None,
            compressed_bytes_on_top: None,
        };
        let disk = Disk { write_bytes_per_s: 1e9, read_bytes_per_s: 2e9 };
        let thread = vec![run(Engine::Kernel, walls[0]), run(Engine::Userswap, walls[1])];
        let signal = vec![run(Engine::Userswap, walls[2])];
        let report = |fault: &str, runs| {
            Report::new(&plan(&format!("{case} {fault}")), runs, Some(0.5), Some(disk))
        };
        let reports = vec![report("--fault thread", thread), report("--fault signal", signal)];
        Row { arguments: case.to_owned(), reports }
    }

    #[test]
    fn every_case_has_a_row_and_those_with_threads_one_for_each_number() {
        let loads = loads(&table_args("--tasks 1 16"));
        for case in <Case as clap::ValueEnum>::value_variants() {
            assert!(loads.iter().any(|load| load.case == *case), "{case:?}");
        }
        let zipf = loads.iter().filter(|load| load.case == Case::ZipfWrite);
        assert_eq!(zipf.map(|load| load.tasks.as_str()).collect::<Vec<_>>(), ["1", "16"]);
        for load in &loads {
            load.check().unwrap();
        }
    }

    #[test]
    fn a_row_can_be_measured_alone_by_its_arguments() {
        let loads = loads(&table_args("--case swap-w-seq gc-heap --size 64M --tasks 4"));
        let lines: Vec<String> = loads.iter().map(arguments).collect();
        assert_eq!(
            lines,
            [
                "swap-w-seq",
                "swap-w-seq --step 4096 --repeat 3",
                "gc-heap --tasks 4 --size 33554432"
            ]
        );
        let alone = plan(&lines[2]);
        assert_eq!((alone.case, alone.tasks, alone.size_bytes), (Case::GcHeap, 4, 32 << 20));
    }

    #[test]
    fn rows_of_a_kind_of_data_fill_their_pages_with_it() {
        let lines =
            loads(&table_args("--data heap --tasks 4")).iter().map(arguments).collect::<Vec<_>>();
        assert!(lines.iter().all(|line| line.contains("--data heap")), "{lines:?}");
        assert!(
            !lines.iter().any(|line| line.contains("zipf") || line.contains("--step")),
            "{lines:?}"
        );
        assert_eq!(lines.len(), 7);
    }

    #[test]
    fn a_row_has_a_ratio_for_each_mode_and_counts_its_worst() {
        let row = row("zipf-read", [2.0, 4.0, 1.0]);
        assert_eq!(row.worst(), 0.5);
        let line = row.line();
        assert!(
            line.contains("| 4.00 (4.00–4.00) | **0.50** | 1.00 (1.00–1.00) | 2.00 |"),
            "{line}"
        );
        // 65536 operations.
        assert_eq!(line.matches("8192 (87.5 %)").count(), 3, "{line}");
    }

    #[test]
    fn a_wrong_size_is_refused_by_its_own_text() {
        let loads = loads(&table_args("--case gc-heap --size 12Q"));
        assert!(loads[0].check().unwrap_err().to_string().contains("\"12Q\""));
    }
}
