//! The experiment of the 2016 kswapd series: reclaimers of several nodes, and the threads that need pages,
//! unmap pages of the same memory; what does it cost when they meet, with each of the policies?
//!
//! The loads have the shape of the series' own: threads that touch each page of their share again and again
//! (usemem with a step of a page), in 1 to 8 threads, and one writer that rewrites one large region. Devices
//! are memory, as the RAM disk was there. What is printed are user-visible costs: elapsed and system time,
//! the share of direct reclaim, and how often and how long threads waited for an unmap lock.
use super::words::PAGE_WORDS;
use super::{Format, Outcome, RUNS_MAX, Row, in_turns, memory_device, parse_memory};
use crate::choice;
use crate::figures::{Spread, median, median_count};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::time::Instant;
use userswap::FaultMode;
use userswap::internals::bench::process::used_by_us;
use userswap::{Builder, Engine, Error, Region};
use userswap_policy::kernel::contention::Contention;

/// What is done to memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Load {
    /// Threads that write once to each page of their share, in order, in several passes
    Usemem,
    /// One thread that rewrites all of one large region, word by word
    Rewrite,
}

/// Options of `bench contention`.
#[derive(Debug, Clone, Args)]
pub struct ContentionArgs {
    /// Loads to compare the policies with
    #[arg(long, value_name = "LOAD", value_enum, value_delimiter = ',', num_args = 1.., default_values_t = [Load::Usemem, Load::Rewrite])]
    load: Vec<Load>,
    /// Numbers of threads (of usemem)
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 3, 5, 7, 8],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    tasks: Vec<u32>,
    /// Made-up nodes, each with a reclaimer
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    nodes: u32,
    /// RAM budget
    #[arg(long, value_name = "SIZE", default_value = "128M", value_parser = parse_memory, allow_hyphen_values = true)]
    ram: u64,
    /// Memory of all threads together
    #[arg(long, value_name = "SIZE", default_value = "512M", value_parser = parse_memory, allow_hyphen_values = true)]
    size: u64,
    /// Passes over it
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..))]
    passes: u32,
    /// How faults are delivered: thread or signal
    #[arg(long, value_name = "HOW", default_value = "thread")]
    fault: FaultMode,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// One policy under one load.
#[derive(Debug, Serialize)]
pub(super) struct ContentionRow {
    load: Load,
    tasks: u32,
    policy: &'static str,
    elapsed_s: f64,
    elapsed_min_s: f64,
    elapsed_max_s: f64,
    system_s: f64,
    direct_share: f64,
    removals: u64,
    waits: u64,
    wait_s: f64,
    stalled: u64,
    skipped: u64,
}

impl Row for ContentionRow {
    const COLUMNS: &'static [&'static str] = &[
        "load", "threads", "policy", "elapsed", "range", "system", "direct", "removals", "waits",
        "waited", "stalled", "skipped",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            choice::name(&self.load),
            self.tasks.to_string(),
            self.policy.to_owned(),
            format!("{:.2} s", self.elapsed_s),
            format!("{:.2}-{:.2}", self.elapsed_min_s, self.elapsed_max_s),
            format!("{:.2} s", self.system_s),
            format!("{:.2} %", self.direct_share * 100.0),
            self.removals.to_string(),
            self.waits.to_string(),
            format!("{:.1} ms", self.wait_s * 1e3),
            self.stalled.to_string(),
            self.skipped.to_string(),
        ]
    }
}

/// What is measured once.
#[derive(Debug, Clone, Copy)]
struct Variant {
    load: Load,
    tasks: u32,
    contention: Contention,
}

/// The time of one run.
#[derive(Debug, Clone, Copy)]
struct Time {
    elapsed_s: f64,
    system_s: f64,
}

pub(super) fn measure(args: &ContentionArgs) -> Outcome<ContentionRow> {
    let mut rows = Vec::new();
    for &load in &args.load {
        let tasks: &[u32] = if load == Load::Usemem { &args.tasks } else { &[1] };
        for &tasks in tasks {
            let variants = Contention::ALL.map(|contention| Variant { load, tasks, contention });
            let runs = in_turns(args.runs, &variants, |variant| one_run(args, variant))?;
            rows.extend(runs.into_iter().filter_map(of_medians));
        }
    }
    Ok(rows)
}

/// The row of a variant: medians of its times and counts.
fn of_medians(runs: Vec<ContentionRow>) -> Option<ContentionRow> {
    let elapsed = Spread::of(runs.iter().map(|run| run.elapsed_s))?;
    let count = |of: fn(&ContentionRow) -> u64| median_count(runs.iter().map(of));
    let time = |of: fn(&ContentionRow) -> f64| median(runs.iter().map(of));
    let ContentionRow { load, tasks, policy, .. } = *runs.first()?;
    Some(ContentionRow {
        load,
        tasks,
        policy,
        elapsed_min_s: elapsed.least,
        elapsed_max_s: elapsed.most,
        elapsed_s: elapsed.median,
        system_s: time(|run| run.system_s)?,
        direct_share: time(|run| run.direct_share)?,
        removals: count(|run| run.removals),
        waits: count(|run| run.waits),
        wait_s: time(|run| run.wait_s)?,
        stalled: count(|run| run.stalled),
        skipped: count(|run| run.skipped),
    })
}

fn one_run(args: &ContentionArgs, variant: Variant) -> Result<ContentionRow, Error> {
    let device = memory_device(args.size * 2);
    let builder = Builder::new(args.ram).fake_numa(args.nodes).fault(args.fault).swap(device);
    let engine = builder.build()?;
    engine.core().unmap_locks.set_contention(variant.contention);
    let Variant { load, tasks, .. } = variant;
    let share = (args.size / u64::from(tasks)) as usize;
    let mut regions = (0..tasks).map(|_| engine.map(share)).collect::<Result<Vec<_>, _>>()?;
    let before = used_by_us();
    let begin = Instant::now();
    std::thread::scope(|scope| {
        for region in &mut regions {
            scope.spawn(|| work(region, load, args.passes));
        }
    });
    let elapsed_s = begin.elapsed().as_secs_f64();
    let system_s = (used_by_us().sys - before.sys).as_secs_f64();
    Ok(row_of(&engine, variant, Time { elapsed_s, system_s }))
}

fn row_of(engine: &Engine, variant: Variant, time: Time) -> ContentionRow {
    let counters = engine.counters();
    let removal = engine.core().status().unmap_lock;
    let steals = counters.pgsteal_direct + counters.pgsteal_kswapd;
    ContentionRow {
        load: variant.load,
        tasks: variant.tasks,
        policy: variant.contention.name(),
        elapsed_s: time.elapsed_s,
        elapsed_min_s: time.elapsed_s,
        elapsed_max_s: time.elapsed_s,
        system_s: time.system_s,
        direct_share: counters.pgsteal_direct as f64 / steals.max(1) as f64,
        removals: removal.lock.acquisitions,
        waits: removal.lock.waits,
        wait_s: removal.wait_ns as f64 / 1e9,
        stalled: removal.stalled,
        skipped: removal.skipped,
    }
}

fn work(region: &mut Region, load: Load, passes: u32) {
    let step = if load == Load::Usemem { PAGE_WORDS } else { 1 };
    for pass in 1..=u64::from(passes) {
        region.as_typed_mut::<u64>().iter_mut().step_by(step).for_each(|word| *word = pass);
    }
}
