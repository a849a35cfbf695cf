//! `userswap demo`: the main job, small enough to watch.
//!
//! A workload of four times its RAM budget runs as any program would, as a child of
//! `userswap run`; then, where that is possible, the same on the kernel's own swap. The report shows
//! what it took and what the time went to.

mod chart;
pub mod load;
mod svg;
mod watch;

use std::fs;
use std::io::{BufRead, BufReader, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Args;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use userswap::ByteSize;
use userswap::internals::open::default_directory;
use userswap_bench::kernel::{self, KernelError};

use crate::failure::Failure;
use crate::memory::PAGE_BYTES;
use crate::{library, outputs, ram, said};
use chart::Colours;
use load::{Line, PASSES};
use watch::{Sample, Watch};

/// Enough to see rates, little enough to take seconds.
const RAM_DEFAULT_BYTES: u64 = 128 << 20;

/// The workload's size in budgets.
const LOAD_BUDGETS: u64 = 4;

/// Options of `demo`.
#[derive(Args)]
pub struct DemoArgs {
    /// RAM budget; the workload is four times as large
    #[arg(long, value_name = "SIZE", value_parser = ram::parse_ram, allow_hyphen_values = true,
          default_value_t = RAM_DEFAULT_BYTES, hide_default_value = true)]
    ram: u64,
    /// Leave out the comparison with the kernel's own swap
    #[arg(long)]
    no_kernel: bool,
    /// Write the picture of the run to this file as well
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
}

/// What a run of the workload took.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Figures {
    verified_bytes: u64,
    pass_ends: [Duration; PASSES as usize],
    passes: usize,
    user: Duration,
    system: Duration,
    all: Duration,
}

impl Figures {
    fn add(&mut self, line: Line) {
        match line {
            Line::Progress(_) => {}
            Line::Pass(time) => {
                if let Some(end) = self.pass_ends.get_mut(self.passes) {
                    *end = time;
                }
                self.passes += 1;
            }
            Line::OwnTime { user, system } => (self.user, self.system) = (user, system),
            Line::AllTime(time) => self.all = time,
            Line::Verified(bytes) => self.verified_bytes = bytes,
        }
    }

    fn wall(&self) -> Duration {
        self.pass_ends.last().copied().unwrap_or_default()
    }

    fn is_complete(&self, load_bytes: u64) -> bool {
        self.passes == PASSES as usize && self.verified_bytes == load_bytes * PASSES
    }
}

/// Runs the workload and reports.
///
/// # Errors
/// The workload cannot be run, or its data came back wrong.
pub fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    // Not when all is done and seen.
    args.svg.as_ref().map_or(Ok(()), |file| check_picture(file))?;
    let program = std::env::current_exe()
        .map_err(|error| Failure::unavailable(format!("this program's own path: {error}")))?;
    // Whole pages, so that what is verified is exactly what was asked for.
    let load_bytes = (args.ram * LOAD_BUDGETS).next_multiple_of(PAGE_BYTES);
    let directory = default_directory();
    said::print(format_args!(
        "A program that writes {load} of data and reads it back, {PASSES} times over, gets {ram} of \
         RAM.\nSwap: an unlinked temporary file in {directory}.\n",
        load = ByteSize(load_bytes),
        ram = ByteSize(args.ram),
        directory = directory.display(),
    ))?;
    let statistics = Statistics::at(library::private_directory()?);
    let load = Load { program, bytes: load_bytes, ram_bytes: args.ram };
    let Course { figures, samples } = load.run_under_userswap(&statistics.path)?;
    said::print(report(&figures, &statistics.read()?))?;
    if !args.no_kernel {
        load.compare_with_kernel(&directory, &figures)?;
    }
    said::print(chart::draw(&samples, Colours::of_output()))?;
    if let Some(file) = &args.svg {
        let title = format!(
            "{} of data, written, read back and verified {PASSES} times in {} of RAM: {:.2} s",
            ByteSize(load_bytes),
            ByteSize(args.ram),
            figures.wall().as_secs_f64()
        );
        svg::write(&samples, &title, file)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn check_picture(file: &Path) -> Result<(), Failure> {
    let file = std::path::absolute(file).map_err(Failure::usage)?;
    outputs::check("--svg", &file)
}

/// A run of the workload that was watched.
struct Course {
    figures: Figures,
    samples: Vec<Sample>,
}

/// The workload, and the RAM that it gets.
struct Load {
    program: PathBuf,
    bytes: u64,
    ram_bytes: u64,
}

impl Load {
    fn command(&self) -> [std::ffi::OsString; 3] {
        [self.program.clone().into(), "demo-load".into(), self.bytes.to_string().into()]
    }

    fn run_under_userswap(&self, statistics: &Path) -> Result<Course, Failure> {
        let program = self.program.display();
        let start_error = |error| Failure::unavailable(format!("{program}: {error}"));
        let mut child = Command::new(&self.program)
            .args(["run", "--no-defaults", "--ram", &self.ram_bytes.to_string(), "--stats"])
            .arg(statistics)
            .arg("--")
            .args(self.command())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(start_error)?;
        let output = child.stdout.take().expect("standard output was asked for");
        let mut watch = Watch::of(child.id());
        let figures = follow(BufReader::new(output), self.bytes, |done| watch.look(done));
        let samples = watch.samples();
        let status = child.wait().map_err(start_error)?;
        match status.success() {
            true if figures.is_complete(self.bytes) => Ok(Course { figures, samples }),
            true => Err(Failure::unavailable("the workload did not verify all of its data")),
            false => Err(Failure::unavailable(format!("the workload failed ({status})"))),
        }
    }

    fn compare_with_kernel(&self, directory: &Path, ours: &Figures) -> Result<(), Failure> {
        if !rustix::process::geteuid().is_root() {
            return said::print(
                "kernel        not measured: only root can limit it; run the demo with sudo to see it\n",
            );
        }
        said::print("... and now the same on the kernel's own swap\n")?;
        let [program, rest @ ..] = self.command();
        let mut command = Command::new(program);
        let finished =
            match kernel::run_limited(command.args(rest), self.ram_bytes, self.bytes, directory) {
                Ok(finished) => finished,
                Err(error @ (KernelError::Run(_) | KernelError::LeftOver { .. })) => {
                    return Err(Failure::unavailable(error));
                }
                Err(error) => {
                    return said::print(format_args!("kernel        not measured: {error}\n"));
                }
            };
        let mut kernels = Figures::default();
        let lines = finished.stdout.lines().filter_map(|line| line.parse().ok());
        lines.for_each(|line| kernels.add(line));
        if !finished.status.success() || !kernels.is_complete(self.bytes) {
            let (status, words) = (finished.status, finished.stderr.trim());
            return said::print(format_args!("kernel        failed ({status}): {words}\n"));
        }
        said::print(comparison(ours, &kernels))
    }
}

/// Reads the workload's output to its end and shows how far it is.
fn follow(output: impl BufRead, load_bytes: u64, mut look: impl FnMut(u64)) -> Figures {
    let progress = Progress::new(load_bytes * PASSES * 2);
    let mut figures = Figures::default();
    for line in output.lines().map_while(Result::ok).filter_map(|line| line.parse().ok()) {
        if let Line::Progress(bytes) = line {
            progress.set(bytes);
            look(bytes);
        }
        figures.add(line);
        if let Line::Pass(time) = line {
            progress.pass(figures.passes, time);
        }
    }
    progress.bar.finish_and_clear();
    figures
}

/// A bar on a terminal, a line for each pass elsewhere.
struct Progress {
    bar: ProgressBar,
    lines: bool,
}

impl Progress {
    fn new(total_bytes: u64) -> Progress {
        let is_terminal = std::io::stderr().is_terminal();
        let target = match is_terminal {
            true => ProgressDrawTarget::stderr(),
            false => ProgressDrawTarget::hidden(),
        };
        let bar = ProgressBar::with_draw_target(Some(total_bytes), target).with_style(
            ProgressStyle::with_template("{bar:40} {binary_bytes} of {binary_total_bytes} {eta}")
                .expect("the template is well-formed"),
        );
        Progress { bar, lines: !is_terminal }
    }

    fn set(&self, bytes: u64) {
        self.bar.set_position(bytes);
    }

    fn pass(&self, number: usize, end: Duration) {
        if self.lines {
            // Where nobody reads, the report at the end says so.
            let seconds = end.as_secs_f64();
            let _ = said::print(format_args!(
                "pass {number} of {PASSES} verified after {seconds:.1} s\n"
            ));
        }
    }
}

/// The file for the engine's counters, removed when it has been read.
struct Statistics {
    path: PathBuf,
}

impl Statistics {
    fn at(directory: PathBuf) -> Statistics {
        Statistics { path: directory.join(format!("demo-{}.json", std::process::id())) }
    }

    fn read(&self) -> Result<serde_json::Value, Failure> {
        let path = self.path.display();
        let text = fs::read_to_string(&self.path).map_err(|error| {
            Failure::unavailable(format!("{path}: the engine left no counters ({error})"))
        })?;
        let counters: serde_json::Value = serde_json::from_str(&text)
            .map_err(|error| Failure::unavailable(format!("{path}: the counters: {error}")))?;
        match counters.get("pswpout") {
            Some(_) => Ok(counters),
            None => Err(Failure::unavailable(format!("{path}: has no counter pswpout"))),
        }
    }
}

impl Drop for Statistics {
    fn drop(&mut self) {
        // Missing when the workload never got so far.
        let _ = fs::remove_file(&self.path);
    }
}

fn report(figures: &Figures, counters: &serde_json::Value) -> String {
    let count = |name: &str| counters.get(name).and_then(serde_json::Value::as_u64).unwrap_or(0);
    let pages = |name: &str| ByteSize(count(name) * PAGE_BYTES).rounded();
    let s = |time: Duration| format!("{:.2} s", time.as_secs_f64());
    let waiting = figures.wall().saturating_sub(figures.user + figures.system);
    let engine = figures.all.saturating_sub(figures.user + figures.system);
    [
        format!("\nuserswap      {}, {}", s(figures.wall()), throughput(figures)),
        format!("  passes      {}", passes(figures)),
        format!("  swapped     {} out, {} in", pages("pswpout"), pages("pswpin")),
        format!(
            "  not written {} unchanged since they were read, {} zeros only",
            pages("swpout_clean"),
            pages("swpout_zero")
        ),
        format!(
            "  faults      {}, of them {} waited for a read",
            count("pgfault"),
            count("pgmajfault")
        ),
        format!(
            "  reclaimed   {} in the background, {} by the program waiting for room",
            pages("pgsteal_kswapd"),
            pages("pgsteal_direct")
        ),
        format!(
            "  time        program: {} user, {} system, {} waiting; engine's threads: {} of CPU",
            s(figures.user),
            s(figures.system),
            s(waiting),
            s(engine)
        ),
        format!("  data        {} verified, no byte wrong\n", ByteSize(figures.verified_bytes)),
    ]
    .join("\n")
}

fn passes(figures: &Figures) -> String {
    let [first, end] = figures.pass_ends;
    let second = end.saturating_sub(first);
    format!("first {:.2} s, second {:.2} s", first.as_secs_f64(), second.as_secs_f64())
}

/// Bytes written and read back per second.
fn throughput(figures: &Figures) -> String {
    let seconds = figures.wall().as_secs_f64().max(1e-6);
    format!("{:.0} MB/s written and read back", figures.verified_bytes as f64 * 2.0 / seconds / 1e6)
}

fn comparison(ours: &Figures, kernels: &Figures) -> String {
    let (own_s, kernel_s) = (ours.wall().as_secs_f64(), kernels.wall().as_secs_f64());
    let waiting = kernels.wall().saturating_sub(kernels.user + kernels.system);
    format!(
        "kernel        {kernel_s:.2} s, {}\n  passes      {}\n  time        program: {:.2} s user, {:.2} s system, \
         {:.2} s waiting\nuserswap is {:.1} times as fast\n",
        throughput(kernels),
        passes(kernels),
        kernels.user.as_secs_f64(),
        kernels.system.as_secs_f64(),
        waiting.as_secs_f64(),
        kernel_s / own_s.max(1e-6),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn figures() -> Figures {
        let output = "progress 5\npass 1000000\nnoise\npass 2500000\nown 500000 250000\nall 900000\n\
                      verified 2000000000\n";
        follow(output.as_bytes(), 1_000_000_000, |_| {})
    }

    #[test]
    fn the_workloads_output_becomes_figures() {
        let figures = figures();
        assert!(figures.is_complete(1_000_000_000));
        assert!(!figures.is_complete(1_000_000_001));
        assert_eq!(figures.wall(), Duration::from_millis(2500));
    }

    #[test]
    fn the_report_shows_where_the_time_went() {
        let counters = serde_json::json!({"pswpout": 262_144, "pgfault": 7});
        let report = report(&figures(), &counters);
        for line in [
            "userswap      2.50 s, 1600 MB/s",
            "first 1.00 s, second 1.50 s",
            "1G out, 0 in",
            "0.50 s user, 0.25 s system, 1.75 s waiting; engine's threads: 0.15 s",
        ] {
            assert!(report.contains(line), "{line:?} in {report}");
        }
    }

    #[test]
    fn the_comparison_says_how_many_times_as_fast() {
        let mut kernels = figures();
        kernels.pass_ends[1] *= 3;
        assert!(comparison(&figures(), &kernels).contains("3.0 times as fast"));
    }
}
