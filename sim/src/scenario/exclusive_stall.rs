//! Reclaimers that meet at one lock: they wait, all but one pause (2016), or turn to other victims.

use serde::Deserialize;
use userswap_policy::devices::Placement;
use userswap_policy::kernel::contention::Contention;

use super::load::{self, Finished, Tasks};
use super::{Failure, Options};
use crate::machine::{Bytes, Device, Machine, Source, Whole};
use crate::memory::{Costs, Memory, Removal, Replacement, Rules, Setup};
use crate::report::{Report, Row, Standing, Table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    runs: u64,
    machine: Machine,
    cost: Costs,
    device: Vec<Device>,
    load: Load,
    row: Vec<Of>,
    rewrite: Times,
}

impl File {
    /// Of all threads.
    fn pages(&self) -> u64 {
        self.machine.pages(*self.load.size.get_ref())
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    size: toml::Spanned<Bytes>,
    passes: Whole<1, 1000>,
}

/// Published seconds, before and after.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Of {
    threads: Tasks,
    system: [f64; 2],
    elapsed: [f64; 2],
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Times {
    system: [f64; 2],
    elapsed: [f64; 2],
}

/// What reclaimers do.
#[derive(Clone, Copy)]
struct Variant {
    name: &'static str,
    contention: Contention,
    removal: Removal,
}

/// The first is the source's column "before", the second "after".
const VARIANTS: [Variant; 4] = [
    Variant { name: "wait", contention: Contention::Wait, removal: Removal::Batch },
    Variant { name: "stall", contention: Contention::StallBalanced, removal: Removal::Batch },
    Variant { name: "skip", contention: Contention::Skip, removal: Removal::Batch },
    Variant { name: "wait, page by page", contention: Contention::Wait, removal: Removal::Page },
];

/// What one run came to.
#[derive(Clone, Copy, Default)]
struct Found {
    elapsed: f64,
    system: f64,
    direct: f64,
    stalls: f64,
    events: u64,
}

/// Runs of one variant.
type Runs = Vec<Found>;

/// Runs every number of threads with every variant.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &file.device).map_err(|bad| source.refuse(&bad))?;
    for threads in file.row.iter().map(|of| of.threads.get()).chain([1]) {
        let pages = file.pages() / u64::from(threads);
        load::check(threads.into(), pages, file.load.size.span())
            .map_err(|bad| source.refuse(&bad))?;
    }
    let mut report = Report::new(name, &file.about, options.seed);
    let mut tables = Tables::default();
    for of in &file.row {
        let mut found = Vec::new();
        for variant in VARIANTS {
            found.push(simulate(&file, of.threads.get(), variant, options)?);
        }
        report.events += found.iter().flatten().map(|found| found.events).sum::<u64>();
        tables.add(&format!("{} threads", of.threads), (of.elapsed, of.system), &found);
    }
    let mut found = Vec::new();
    for variant in &VARIANTS[..2] {
        found.push(simulate(&file, 1, *variant, options)?);
    }
    report.events += found.iter().flatten().map(|found| found.events).sum::<u64>();
    let of = &file.rewrite;
    tables.close_total();
    tables.add("rewrite of one file", (of.elapsed, of.system), &found);
    report.tables = tables.done();
    Ok(report)
}

#[derive(Default)]
struct Tables {
    elapsed: Vec<Row>,
    system: Vec<Row>,
    ratios: Vec<Row>,
    direct: Vec<Row>,
    cpus: Vec<Row>,
    stalls: Vec<Row>,
    total: Total,
}

/// Sums over all numbers of threads, before and after.
#[derive(Default)]
struct Total {
    published: [f64; 2],
    elapsed: [f64; 2],
    direct: [f64; 2],
}

/// How many times as many pages as before the source saw reclaimed directly.
const DIRECT_PUBLISHED: f64 = 10.0;

impl Total {
    fn add(&mut self, published: [f64; 2], elapsed: f64, direct: [f64; 2]) {
        for (at, elapsed) in [published[0], published[0] * elapsed].into_iter().enumerate() {
            self.published[at] += published[at];
            self.elapsed[at] += elapsed;
            self.direct[at] += direct[at];
        }
    }

    fn rows(&self) -> [Row; 2] {
        let ratio = |of: [f64; 2]| of[1] / of[0];
        let elapsed = Some(ratio(self.published));
        [
            Row::predicted("all threads", elapsed, ratio(self.elapsed)),
            Row::predicted("pages reclaimed directly", Some(DIRECT_PUBLISHED), ratio(self.direct)),
        ]
    }
}

/// Of the runs of one variant: one number each, as a share of `base`, times `scale`.
fn relative(case: &str, runs: &Runs, (base, scale): (f64, f64), of: fn(&Found) -> f64) -> Row {
    let values: Vec<_> = runs.iter().map(|found| of(found) / base * scale).collect();
    Row::predicted(case, None, values[0]).over(&values)
}

fn median(runs: &Runs, of: fn(&Found) -> f64) -> f64 {
    relative("", runs, (1.0, 1.0), of).simulated
}

impl Variant {
    /// What the source has of it, before or after.
    fn published(&self, of: [f64; 2]) -> Option<f64> {
        match self.name {
            "wait" => Some(of[0]),
            "stall" => Some(of[1]),
            _ => None,
        }
    }

    fn standing(&self) -> Standing {
        if self.name == "wait" { Standing::Calibrated } else { Standing::Predicted }
    }
}

impl Tables {
    fn add(&mut self, case: &str, (elapsed, system): ([f64; 2], [f64; 2]), found: &[Runs]) {
        let wait = &found[0];
        let base = (median(wait, |of| of.elapsed), median(wait, |of| of.system));
        let busy = [system[0] / elapsed[0], system[1] / elapsed[1]];
        for (variant, runs) in VARIANTS.iter().zip(found) {
            let case = format!("{case}, {}", variant.name);
            let row = |published: [f64; 2], base: f64, of: fn(&Found) -> f64| {
                let row = relative(&case, runs, (base, published[0]), of);
                Row { published: variant.published(published), ..row }.standing(variant.standing())
            };
            let plain = |of: fn(&Found) -> f64| relative(&case, runs, (1.0, 1.0), of);
            self.elapsed.push(row(elapsed, base.0, |of| of.elapsed));
            self.system.push(row(system, base.1, |of| of.system));
            self.direct.push(plain(|of| of.direct));
            let published = variant.published(busy);
            self.cpus.push(Row { published, ..plain(|of| of.system / of.elapsed) });
            self.stalls.push(plain(|of| of.stalls));
            if variant.name == "stall" {
                let row = relative(&case, runs, (base.0, 1.0), |of| of.elapsed);
                let direct = |runs: &Runs| runs.iter().map(|of| of.direct).sum::<f64>();
                self.total.add(elapsed, row.simulated, [direct(wait), direct(runs)]);
                self.ratios.push(Row { published: Some(elapsed[1] / elapsed[0]), ..row });
            }
        }
    }

    fn close_total(&mut self) {
        self.ratios.extend(self.total.rows());
    }

    fn done(self) -> Vec<Table> {
        vec![
            Table::new("elapsed, s", self.elapsed),
            Table::new("system, s", self.system),
            Table::new("elapsed, stall / wait", self.ratios),
            Table::new("pages reclaimed directly, % of all", self.direct),
            Table::new("CPUs busy for the system", self.cpus),
            Table::new("pauses", self.stalls),
        ]
    }
}

fn simulate(
    file: &File,
    threads: u32,
    variant: Variant,
    options: &Options,
) -> Result<Runs, Failure> {
    let one = |run| {
        simulate_once(file, threads, variant, &Options { seed: options.seed + run, ..*options })
    };
    (0..file.runs.max(1)).map(one).collect()
}

fn simulate_once(
    file: &File,
    threads: u32,
    variant: Variant,
    options: &Options,
) -> Result<Found, Failure> {
    let rules = Rules {
        placement: Placement::Near,
        contention: variant.contention,
        removal: variant.removal,
        replacement: Replacement::Queue,
    };
    let pages = file.pages() as u32 / threads;
    let setup =
        Setup { pages: pages * threads, costs: file.cost.clone(), rules, seed: options.seed };
    let memory = Memory::start(&file.machine, &file.device, setup);
    let finished = Finished::default();
    for thread in 0..threads {
        let node = thread % file.machine.nodes();
        let region = thread * pages..(thread + 1) * pages;
        load::start(&memory, node, (region, file.load.passes.get()), &finished);
    }
    load::finish(&memory, options)?;
    let counts = &memory.counts;
    let share = |of: u64| of as f64 * 100.0 / counts.swapped_out.get().max(1) as f64;
    Ok(Found {
        elapsed: finished.last() as f64,
        // As the source measured: the time of the program, not that of the kernel's own threads.
        system: memory.programs.system.get() as f64,
        direct: share(counts.direct.get()),
        stalls: counts.stalls.get() as f64,
        events: memory.sim().events(),
    })
}
