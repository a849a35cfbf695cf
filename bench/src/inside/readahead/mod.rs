//! Every readahead policy against every order of reading: time, requests, pages read, and what was read
//! for nothing, beside what the disk gives to plain large reads of the same file.
//!
//! One engine serves all runs: the data are written once and paged out before each run. Only one word of
//! each page is read (and checked): what is measured is how pages come, not how they are used.
mod patterns;

use super::words::{PAGE_WORDS, word_at};
use super::{Format, Outcome, RUNS_MAX, Row, median, parse_memory};
use crate::choice;
use crate::disk;
use clap::{Args, ValueEnum};
use patterns::Pattern;
use serde::Serialize;
use std::fs::File;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::time::Instant;
use userswap::internals::{PAGE_BYTES, RA_POLICIES, default_swap_bytes, open};
use userswap::{Builder, ByteSize, Engine, Error, FaultMode, Region, Snapshot};
use userswap::{SwapPath, SwapSpec};
use userswap_policy::readahead::ReadaheadPolicy;

/// Options of `bench readahead`.
#[derive(Debug, Clone, Args)]
pub struct ReadaheadArgs {
    /// Policies to compare, with commas or spaces between them; `off` is always measured, to know what was read for nothing
    #[arg(long, value_name = "POLICY", value_parser = policy, value_delimiter = ',', num_args = 1..,
          default_values_t = [ReadaheadPolicy::Off, ReadaheadPolicy::Scaling, ReadaheadPolicy::Vma, ReadaheadPolicy::Fixed, ReadaheadPolicy::Stream])]
    policy: Vec<ReadaheadPolicy>,
    /// Orders in which pages are read
    #[arg(long, value_name = "PATTERN", value_enum, value_delimiter = ',', num_args = 1..,
          default_values_t = Pattern::value_variants().to_vec())]
    pattern: Vec<Pattern>,
    /// Largest window of the kernel's policies, as a power of two
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u8).range(0..=10))]
    page_cluster: u8,
    /// Swap device, as for `run --swap`
    #[arg(long, value_name = "SPEC", default_value = "/var/tmp", allow_hyphen_values = true)]
    dev: SwapSpec,
    /// How page faults are delivered: thread or signal
    #[arg(long, value_name = "MODE", default_value_t = FaultMode::Thread)]
    fault: FaultMode,
    /// RAM budget
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_memory, allow_hyphen_values = true)]
    ram: u64,
    /// Memory that is read
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_memory, allow_hyphen_values = true)]
    size: u64,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

fn policy(text: &str) -> Result<ReadaheadPolicy, String> {
    text.parse().map_err(|_| format!("{text:?} is not allowed: use {}", RA_POLICIES.values))
}

/// One policy with one order.
#[derive(Debug, Serialize)]
pub(super) struct ReadaheadRow {
    pattern: Pattern,
    policy: &'static str,
    seconds: f64,
    /// Of the pages that the order goes over.
    mb_per_s: f64,
    /// In relation to plain large reads of the same file.
    disk_share: f64,
    requests: f64,
    pages_read: f64,
    pages_used: usize,
    /// Pages that were read beyond those that `off` had to read, of all that were read.
    wasted_share: f64,
    counted_as_wasted: f64,
    hits: f64,
}

impl Row for ReadaheadRow {
    const COLUMNS: &'static [&'static str] = &[
        "pattern",
        "policy",
        "time",
        "MB/s",
        "of disk",
        "requests",
        "pages read",
        "wasted",
        "swap_ra_wasted",
        "swap_ra_hit",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            choice::name(&self.pattern),
            self.policy.to_owned(),
            format!("{:.3} s", self.seconds),
            format!("{:.0}", self.mb_per_s),
            format!("{:.0} %", self.disk_share * 100.0),
            format!("{:.0}", self.requests),
            format!("{:.0}", self.pages_read),
            format!("{:.1} %", self.wasted_share * 100.0),
            format!("{:.0}", self.counted_as_wasted),
            format!("{:.0}", self.hits),
        ]
    }
}

/// What one run took, or the median of several.
#[derive(Debug, Clone, Copy)]
struct Run {
    seconds: f64,
    requests: f64,
    pages_read: f64,
    wasted: f64,
    hits: f64,
}

impl Run {
    /// The median of every figure on its own.
    fn of_medians(runs: &[Self]) -> Self {
        let of =
            |figure: fn(&Self) -> f64| median(runs.iter().map(figure)).expect("there is a run");
        Self {
            seconds: of(|run| run.seconds),
            requests: of(|run| run.requests),
            pages_read: of(|run| run.pages_read),
            wasted: of(|run| run.wasted),
            hits: of(|run| run.hits),
        }
    }
}

/// The one engine of all runs, with the memory that is read.
struct Bench<'a> {
    args: &'a ReadaheadArgs,
    engine: &'a Engine,
    region: &'a Region,
}

impl ReadaheadArgs {
    /// The device has all of the memory at once, and its file is read past the engine.
    pub(super) fn check(&self) -> Result<(), String> {
        let device = self.device();
        if !matches!(device.path, SwapPath::Path(_) | SwapPath::Memory) {
            return Err(format!(
                "--dev {}: its pages are in no file: name a directory, a file or mem:SIZE",
                self.dev
            ));
        }
        let found = open::checked(&device, default_swap_bytes(self.ram))
            .map_err(|error| format!("--dev: {error}"))?;
        // The first page is the header's.
        let least = self.size + PAGE_BYTES as u64;
        match found.bytes >= least {
            true => Ok(()),
            false => Err(format!(
                "--dev {}: has no room for the {} of --size: use a larger one, or a smaller --size",
                self.dev,
                ByteSize(self.size)
            )),
        }
    }

    fn device(&self) -> SwapSpec {
        let mut spec = self.dev.clone();
        // A device that is more than half full takes the slots of pages that are read, which are written again.
        if matches!(&spec.path, SwapPath::Path(path) if path.is_dir()) {
            spec.size = spec.size.or(Some(self.size * 3));
        }
        spec
    }
}

pub(super) fn measure(args: &ReadaheadArgs) -> Outcome<ReadaheadRow> {
    let engine = Builder::new(args.ram).fault(args.fault).swap(args.device()).build()?;
    engine.set("vma_ra_enabled", "false")?;
    let mut region = engine.map(args.size as usize)?;
    let words = region.as_typed_mut::<u64>();
    words.iter_mut().enumerate().for_each(|(index, word)| *word = word_at(index));
    let bench = Bench { args, engine: &engine, region: &region };
    let mut rows = Vec::new();
    for &pattern in &args.pattern {
        rows.extend(bench.compare(pattern)?);
    }
    Ok(rows)
}

impl Bench<'_> {
    /// All policies with one order, in turns, and the disk before each turn.
    fn compare(&self, pattern: Pattern) -> Outcome<ReadaheadRow> {
        let order = pattern.order(self.region.len() / PAGE_BYTES);
        let mut policies = self.args.policy.clone();
        if !policies.contains(&ReadaheadPolicy::Off) {
            policies.push(ReadaheadPolicy::Off);
        }
        let mut runs: Vec<Vec<Run>> = policies.iter().map(|_| Vec::new()).collect();
        let mut disk = Vec::new();
        for _ in 0..self.args.runs {
            self.region.page_out(0..self.region.len())?;
            disk.push(disk_speed(self.engine, self.args.size)?);
            for (of_policy, policy) in runs.iter_mut().zip(&policies) {
                self.engine.set("page_cluster", &self.args.page_cluster.to_string())?;
                self.engine.set("swap_ra_policy", policy.name())?;
                of_policy.push(self.one_run(&order)?);
            }
        }
        let medians: Vec<Run> = runs.iter().map(|runs| Run::of_medians(runs)).collect();
        let off = policies.iter().position(|policy| *policy == ReadaheadPolicy::Off);
        let needed = medians[off.expect("off is always measured")].pages_read;
        let disk = median(disk).expect("there is a run");
        let bytes = (pattern.span(self.region.len() / PAGE_BYTES) * PAGE_BYTES) as f64;
        let row = |(policy, run): (&ReadaheadPolicy, &Run)| ReadaheadRow {
            pattern,
            policy: policy.name(),
            seconds: run.seconds,
            mb_per_s: bytes / run.seconds / 1e6,
            disk_share: bytes / run.seconds / disk,
            requests: run.requests,
            pages_read: run.pages_read,
            pages_used: order.len(),
            wasted_share: (run.pages_read - needed).max(0.0) / run.pages_read.max(1.0),
            counted_as_wasted: run.wasted,
            hits: run.hits,
        };
        Ok(policies.iter().zip(&medians).map(row).collect())
    }

    /// Reads the pages in order, from a start with none of them in RAM.
    fn one_run(&self, order: &[u32]) -> Result<Run, Error> {
        self.region.page_out(0..self.region.len())?;
        let words = self.region.as_typed::<u64>();
        let before = self.engine.counters();
        let begin = Instant::now();
        for page in order {
            let index = *page as usize * PAGE_WORDS;
            assert_eq!(words[index], word_at(index), "page {page} came back wrong");
        }
        let seconds = begin.elapsed().as_secs_f64();
        let after = self.engine.counters();
        let grown = |value: fn(&Snapshot) -> u64| (value(&after) - value(&before)) as f64;
        Ok(Run {
            seconds,
            requests: grown(|counters| counters.swap_reads),
            pages_read: grown(|counters| counters.pswpin),
            wasted: grown(|counters| counters.swap_ra_wasted),
            hits: grown(|counters| counters.swap_ra_hit),
        })
    }
}

/// Bytes per second of plain large reads of the engine's own swap file, O_DIRECT as the engine reads it.
fn disk_speed(engine: &Engine, bytes: u64) -> Result<f64, Error> {
    let device = engine.core().devices.list().next().expect("the engine has its device");
    // It has no name, but a descriptor.
    let path = PathBuf::from(format!("/proc/self/fd/{}", device.descriptor()));
    let direct = File::options().read(true).custom_flags(libc::O_DIRECT).open(&path);
    // Memory is not read directly.
    let file = direct.or_else(|_| File::open(&path)).map_err(Error::Tables)?;
    disk::read_speed(&file, bytes).map_err(Error::Tables)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        args: ReadaheadArgs,
    }

    #[test]
    fn a_device_that_cannot_be_measured_is_refused_by_its_name() {
        let check = |dev: &str| Line::parse_from(["", "--size", "32M", "--dev", dev]).args.check();
        for dev in ["mem:8M", "mem:32M", "zram:64M", "/no/such/place/x"] {
            let refusal = check(dev).unwrap_err();
            assert!(refusal.contains(dev) && refusal.lines().count() == 1, "{refusal}");
        }
        assert_eq!(check("mem:33M"), Ok(()));
        assert_eq!(check("/var/tmp"), Ok(()));
    }

    #[test]
    fn every_policy_reads_every_order_and_off_wastes_nothing() {
        let line = ["", "--ram", "16M", "--size", "24M", "--runs", "1", "--dev", "mem:128M"];
        let rows = measure(&Line::parse_from(line).args).unwrap();
        assert_eq!(rows.len(), Pattern::value_variants().len() * 5);
        for row in rows {
            assert!(row.seconds > 0.0 && row.requests > 0.0 && row.pages_read > 0.0, "{row:?}");
            if row.policy == "off" {
                assert_eq!((row.requests, row.wasted_share), (row.pages_read, 0.0), "{row:?}");
            }
        }
    }
}
