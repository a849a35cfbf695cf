//! The report: one JSON object for programs, a table for people.

use super::args::Plan;
use super::case::{self, Case, Latency};
use crate::choice;
use crate::disk::Disk;
use crate::figures::{Spread, median};
use crate::format::Shown;
use crate::machine::{self, Machine};
use crate::process::Figures;
use crate::size;
use comfy_table::{CellAlignment, Table, presets};
use serde::{Serialize, Serializer};
use std::fmt;
use userswap::FaultMode;

/// What gave the load its memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Engine {
    Userswap,
    Kernel,
}

impl fmt::Display for Engine {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::Userswap => "userswap",
            Self::Kernel => "kernel",
        })
    }
}

fn as_text<T: fmt::Display, S: Serializer>(value: &T, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// The parts of a budget on the kernel's side.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct Within {
    pub(crate) limit_bytes: u64,
    pub(crate) compressed_bytes_max: u64,
}

/// The figures of one run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub(crate) struct Run {
    pub(crate) engine: Engine,
    #[serde(flatten)]
    pub(crate) figures: Figures,
    pub(crate) throughput_kbs: u64,
    /// What faults took, of a load that looks.
    pub(crate) latency: Option<Latency>,
    /// What the kernel's side had, where its zram is part of the budget.
    pub(crate) within: Option<Within>,
    /// What compressed pages took at most of the kernel's side, where they are not: on top of its limit.
    pub(crate) compressed_bytes_on_top: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
struct Medians {
    userswap: Option<f64>,
    kernel: Option<f64>,
}

/// All figures of a benchmark. The fields are the keys of the JSON object.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Report {
    case: Case,
    tasks: usize,
    ram_bytes: u64,
    size_bytes: u64,
    step_bytes: Option<u64>,
    repeat: usize,
    #[serde(serialize_with = "as_text")]
    fault: FaultMode,
    runs: Vec<Run>,
    median_wall_s: Medians,
    median_major_faults: Medians,
    /// Of the operations of a load that takes a page for each, those that did not have to wait for a device.
    hit_rate: Medians,
    ratio: Option<f64>,
    ideal_s: Option<f64>,
    disk: Option<Disk>,
    /// What userswap reaches of the disk's read speed, where nothing but reading is measured.
    share_of_disk: Option<f64>,
    machine: Machine,
    kernel: String,
}

impl Shown for Report {
    fn text(&self) -> String {
        let mut lines = vec![self.headline(), self.table().to_string()];
        if let Some(ratio) = self.ratio {
            lines.push(format!("kernel / userswap  {ratio:.2}"));
        }
        lines.extend(self.ideal_line());
        lines.extend(
            self.share_of_disk.map(|share| {
                format!("userswap reads at {:.0} % of the disk's speed", share * 100.0)
            }),
        );
        lines.extend(self.hit_rate_line());
        lines.extend(self.latency_line());
        lines.extend(self.compressed_line());
        if self.case == Case::Swapin || self.case.is_single() {
            lines.push("All figures are those of the work after the memory was filled.".into());
        }
        lines.push(format!("{}, Linux {}", self.machine, self.kernel));
        lines.push(String::new());
        lines.join("\n")
    }
}

impl Report {
    pub(crate) fn new(
        plan: &Plan,
        runs: Vec<Run>,
        ideal_s: Option<f64>,
        disk: Option<Disk>,
    ) -> Self {
        let wall = |engine| median(of(&runs, engine).map(|run| run.figures.wall_s));
        let median_wall_s =
            Medians { userswap: wall(Engine::Userswap), kernel: wall(Engine::Kernel) };
        let ratio = median_wall_s.kernel.zip(median_wall_s.userswap);
        let faults = |engine| median(of(&runs, engine).filter_map(Run::major_faults));
        let median_major_faults =
            Medians { userswap: faults(Engine::Userswap), kernel: faults(Engine::Kernel) };
        // What streams past the lookups of a join takes pages too.
        let is_join = plan.case == Case::HashJoin;
        let operations = case::page_operations(plan).filter(|_| !is_join);
        let reading_s =
            disk.filter(|_| plan.case == Case::Swapin).and_then(|disk| disk.read_s(plan));
        Self {
            case: plan.case,
            tasks: plan.tasks,
            ram_bytes: plan.ram_bytes,
            size_bytes: plan.size_bytes,
            step_bytes: plan.step_bytes,
            repeat: plan.repeat,
            fault: plan.fault,
            runs,
            median_wall_s,
            median_major_faults,
            hit_rate: median_major_faults.share_left_of(operations),
            ratio: ratio.map(|(kernel, userswap)| kernel / userswap),
            ideal_s,
            disk,
            share_of_disk: reading_s.zip(median_wall_s.userswap).map(|(least, wall)| least / wall),
            machine: Machine::this(),
            kernel: machine::kernel_release(),
        }
    }

    /// Seconds of wall time of one side's runs.
    pub(crate) fn wall_s(&self, engine: Engine) -> Option<Spread> {
        Spread::of(of(&self.runs, engine).map(|run| run.figures.wall_s))
    }

    pub(crate) fn major_faults(&self, engine: Engine) -> Option<f64> {
        self.median_major_faults.of(engine)
    }

    pub(crate) fn hit_rate(&self, engine: Engine) -> Option<f64> {
        self.hit_rate.of(engine)
    }

    pub(crate) fn ideal_s(&self) -> Option<f64> {
        self.ideal_s
    }

    pub(crate) fn fault(&self) -> FaultMode {
        self.fault
    }

    fn headline(&self) -> String {
        let tasks = if self.tasks == 1 { "task" } else { "tasks" };
        let passes =
            if self.repeat == 1 { String::new() } else { format!(", {} passes", self.repeat) };
        format!(
            "{}: {} {tasks}, {} through {} of RAM{passes}, faults by {}",
            choice::name(&self.case),
            self.tasks,
            size::display(self.size_bytes),
            size::display(self.ram_bytes),
            self.fault
        )
    }

    fn hit_rate_line(&self) -> Option<String> {
        let percent = |engine: &str, rate: Option<f64>| {
            rate.map(|rate| format!("{engine} {:.1} %", rate * 100.0))
        };
        let rates =
            [percent("userswap", self.hit_rate.userswap), percent("kernel", self.hit_rate.kernel)];
        let rates: Vec<String> = rates.into_iter().flatten().collect();
        (!rates.is_empty())
            .then(|| format!("operations without a wait for a device: {}", rates.join(", ")))
    }

    fn latency_line(&self) -> Option<String> {
        let engines = [Engine::Userswap, Engine::Kernel].into_iter();
        let said = engines.filter_map(|engine| {
            let Latency { p50_us, p99_us } = median_latency(&self.runs, engine)?;
            Some(format!("{engine} {p50_us:.1} µs, p99 {p99_us:.1} µs"))
        });
        let said: Vec<String> = said.collect();
        (!said.is_empty()).then(|| format!("a read that faulted, median: {}", said.join("; ")))
    }

    fn compressed_line(&self) -> Option<String> {
        let run = of(&self.runs, Engine::Kernel).last()?;
        if let Some(bytes) = run.compressed_bytes_on_top {
            return Some(format!(
                "kernel: {} MiB of compressed pages on top of its limit of {}, which are not counted, as none are on our side",
                bytes >> 20,
                size::display(self.ram_bytes)
            ));
        }
        let Within { limit_bytes, compressed_bytes_max } = run.within?;
        let (limit, compressed) = (limit_bytes >> 20, compressed_bytes_max >> 20);
        Some(format!(
            "kernel: a limit of {limit} MiB, and {compressed} MiB of compressed pages beside it"
        ))
    }

    fn ideal_line(&self) -> Option<String> {
        let (ideal, disk) = (self.ideal_s?, self.disk?);
        let mib = |bytes: f64| bytes / f64::from(1 << 20);
        Some(format!(
            "ideal  {ideal:.2} s (disk: {:.0} MiB/s write, {:.0} MiB/s read)",
            mib(disk.write_bytes_per_s),
            mib(disk.read_bytes_per_s)
        ))
    }

    fn table(&self) -> Table {
        let mut table = Table::new();
        table.load_preset(presets::UTF8_HORIZONTAL_ONLY);
        table.set_header(["engine", "run", "wall s", "user s", "sys s", "KB/s", "major faults"]);
        for engine in [Engine::Userswap, Engine::Kernel] {
            for (number, run) in of(&self.runs, engine).enumerate() {
                table.add_row(row(engine, &(number + 1).to_string(), run));
            }
        }
        for engine in [Engine::Userswap, Engine::Kernel] {
            if let Some(run) = median_run(&self.runs, engine) {
                table.add_row(row(engine, "median", &run));
            }
        }
        for column in table.column_iter_mut().skip(1) {
            column.set_cell_alignment(CellAlignment::Right);
        }
        table
    }
}

impl Run {
    fn major_faults(&self) -> Option<f64> {
        self.figures.major_faults.map(|faults| faults as f64)
    }
}

impl Medians {
    fn of(self, engine: Engine) -> Option<f64> {
        match engine {
            Engine::Userswap => self.userswap,
            Engine::Kernel => self.kernel,
        }
    }

    /// What is left of 1 without the share that these are of `all`.
    fn share_left_of(self, all: Option<u64>) -> Self {
        let left = |part: Option<f64>| Some(1.0 - part? / all? as f64);
        Self { userswap: left(self.userswap), kernel: left(self.kernel) }
    }
}

fn of(runs: &[Run], engine: Engine) -> impl Iterator<Item = &Run> {
    runs.iter().filter(move |run| run.engine == engine)
}

fn row(engine: Engine, number: &str, run: &Run) -> [String; 7] {
    let seconds = |seconds: f64| format!("{seconds:.2}");
    [
        engine.to_string(),
        number.to_owned(),
        seconds(run.figures.wall_s),
        seconds(run.figures.user_s),
        seconds(run.figures.sys_s),
        run.throughput_kbs.to_string(),
        run.figures.major_faults.map_or_else(|| "-".to_owned(), |faults| faults.to_string()),
    ]
}

fn median_latency(runs: &[Run], engine: Engine) -> Option<Latency> {
    let all = || of(runs, engine).filter_map(|run| run.latency);
    let p50_us = median(all().map(|latency| latency.p50_us))?;
    Some(Latency { p50_us, p99_us: median(all().map(|latency| latency.p99_us))? })
}

/// The median of every figure on its own.
fn median_run(runs: &[Run], engine: Engine) -> Option<Run> {
    let figure = |of_run: fn(&Run) -> f64| median(of(runs, engine).map(of_run));
    Some(Run {
        engine,
        figures: Figures {
            wall_s: figure(|run| run.figures.wall_s)?,
            user_s: figure(|run| run.figures.user_s)?,
            sys_s: figure(|run| run.figures.sys_s)?,
            major_faults: median(of(runs, engine).filter_map(Run::major_faults))
                .map(|faults| faults as u64),
        },
        throughput_kbs: figure(|run| run.throughput_kbs as f64)? as u64,
        latency: median_latency(runs, engine),
        within: None,
        compressed_bytes_on_top: None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    fn run(engine: Engine, wall_s: f64) -> Run {
        Run {
            engine,
            figures: Figures { wall_s, user_s: 0.5, sys_s: 0.25, major_faults: Some(4096) },
            throughput_kbs: 1000,
            latency: Some(Latency { p50_us: 8.25 * wall_s, p99_us: 40.0 }),
            within: None,
            compressed_bytes_on_top: None,
        }
    }

    fn report(line: &str, walls: &[(Engine, f64)]) -> Report {
        let runs = walls.iter().map(|&(engine, wall_s)| run(engine, wall_s)).collect();
        let disk = Disk { write_bytes_per_s: 1e9, read_bytes_per_s: 2e9 };
        Report::new(&plan(line), runs, Some(0.75), Some(disk))
    }

    #[test]
    fn the_json_object_has_all_keys() {
        use Engine::{Kernel, Userswap};
        let walls = [(Userswap, 1.0), (Kernel, 3.0), (Userswap, 2.0), (Kernel, 6.0)];
        let json = serde_json::to_value(report("swap-w-seq --tasks 2", &walls)).unwrap();
        assert_eq!(json["case"], "swap-w-seq");
        assert_eq!(json["tasks"], 2);
        assert_eq!(json["ram_bytes"], 512u64 << 20);
        assert_eq!(json["size_bytes"], 2u64 << 30);
        assert_eq!(json["fault"], "thread");
        assert_eq!(json["runs"].as_array().unwrap().len(), 4);
        assert_eq!(json["runs"][1]["engine"], "kernel");
        for key in ["wall_s", "user_s", "sys_s", "throughput_kbs"] {
            assert!(json["runs"][0][key].is_number(), "{key}");
        }
        assert_eq!(json["median_wall_s"]["userswap"], 1.5);
        assert_eq!(json["median_wall_s"]["kernel"], 4.5);
        assert_eq!(json["ratio"], 3.0);
        assert_eq!(json["ideal_s"], 0.75);
        assert!(json["machine"]["cpus"].is_number() && json["kernel"].is_string());
    }

    #[test]
    fn reading_back_is_held_against_the_disk() {
        // 1.5 GiB at 2 GB/s.
        let report = report("swapin", &[(Engine::Userswap, 1.61)]);
        let share = report.share_of_disk.unwrap();
        assert!((share - 0.5).abs() < 0.01, "{share}");
        assert!(report.text().contains("at 50 % of the disk's speed"), "{}", report.text());
        let writing = self::report("swap-w-seq", &[(Engine::Userswap, 1.61)]);
        assert_eq!(writing.share_of_disk, None);
    }

    #[test]
    fn operations_without_a_major_fault_are_hits() {
        // 65536 reads.
        let report = report("page-rand-read --size 1G", &[(Engine::Userswap, 1.0)]);
        assert_eq!(report.hit_rate.userswap, Some(1.0 - 1.0 / 16.0));
        assert!(report.text().contains("device: userswap 93.8 %"), "{}", report.text());
        // 2048 reads are one for each of the tasks.
        let report = self::report("zipf-read --tasks 4096 --size 64M", &[(Engine::Userswap, 1.0)]);
        assert_eq!(report.hit_rate.userswap, Some(0.0));
        let joining = self::report("hash-join", &[(Engine::Userswap, 1.0)]);
        assert_eq!(joining.hit_rate.userswap, None);
        let writing = self::report("swap-w-rand", &[(Engine::Userswap, 1.0)]);
        assert_eq!(
            (writing.hit_rate.userswap, writing.median_major_faults.userswap),
            (None, Some(4096.0))
        );
    }

    #[test]
    fn what_faults_took_is_said_of_each_side() {
        let walls = [(Engine::Userswap, 1.0), (Engine::Kernel, 2.0), (Engine::Userswap, 2.0)];
        let text = report("page-rand-read", &walls).text();
        let line = "faulted, median: userswap 12.4 µs, p99 40.0 µs; kernel 16.5 µs, p99 40.0 µs";
        assert!(text.contains(line), "{text}");
    }

    #[test]
    fn compressed_pages_that_no_limit_counts_are_said() {
        let on_top = Run { compressed_bytes_on_top: Some(48 << 20), ..run(Engine::Kernel, 2.0) };
        let runs = vec![run(Engine::Userswap, 1.0), on_top];
        let report = Report::new(&plan("page-rand-read"), runs, None, None);
        let line = "kernel: 48 MiB of compressed pages on top of its limit of 512 MiB";
        assert!(report.text().contains(line), "{}", report.text());
        let json = serde_json::to_value(&report).unwrap();
        assert_eq!(json["runs"][1]["compressed_bytes_on_top"], 48u64 << 20);
        assert!(json["runs"][0]["compressed_bytes_on_top"].is_null());
    }

    #[test]
    fn without_a_rival_there_is_no_ratio() {
        let json = serde_json::to_value(report("swapin", &[(Engine::Userswap, 1.0)])).unwrap();
        assert!(json["ratio"].is_null() && json["median_wall_s"]["kernel"].is_null());
    }
}
