//! A list of devices for each node (RFC of 2016): one list, equal priorities, per-node lists.

use serde::Deserialize;
use userswap_policy::devices::Placement;
use userswap_policy::named_choice;

use super::load::{self, Finished, Tasks};
use super::{Failure, Options};
use crate::machine::{Bytes, Device, Machine, Source};
use crate::memory::{Costs, Memory, Replacement, Rules, Setup, Shared};
use crate::report::{Report, Row, Standing, Table};

named_choice! {
    /// How devices are listed.
    pub enum Listing, "listing" {
        /// As before 2017: in the order of swapon, the first until it is full.
        OneList = "one-list",
        /// A user gave all the same priority.
        Equal = "equal",
        /// A list per node, its own devices first.
        Near = "near",
    }
}

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
    run: Vec<Run>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Run {
    tasks: Tasks,
    size_per_task: toml::Spanned<Bytes>,
    published: Option<Published>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Published {
    one_list: f64,
    equal: f64,
    near: f64,
}

impl Published {
    fn of(&self, listing: Listing) -> f64 {
        match listing {
            Listing::OneList => self.one_list,
            Listing::Equal => self.equal,
            Listing::Near => self.near,
        }
    }
}

/// Runs every number of tasks with every listing.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &file.device).map_err(|bad| source.refuse(&bad))?;
    for of in &file.run {
        let pages = file.machine.pages(*of.size_per_task.get_ref());
        load::check(of.tasks.get().into(), pages, of.size_per_task.span())
            .map_err(|bad| source.refuse(&bad))?;
    }
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut rates, mut ratios) = (Vec::new(), Vec::new());
    for of in &file.run {
        let mut found = Vec::new();
        for run in 0..file.runs.max(1) {
            let options = Options { seed: options.seed + run, ..*options };
            let mut rates = [0.0; Listing::ALL.len()];
            for listing in Listing::ALL {
                let (memory, finished) = simulate(&file, of, listing, &options)?;
                report.events += memory.sim().events();
                rates[usize::from(listing.index())] = rate(&finished);
            }
            found.push(rates);
        }
        rates.extend(Listing::ALL.map(|listing| rate_row(of, listing, &found)));
        ratios.extend(ratio_rows(of, &found));
    }
    report.tables.push(Table::new("usemem's rate, KB/s", rates));
    report.tables.push(Table::new("ratios of rates", ratios));
    Ok(report)
}

/// Rates of one run, by listing.
type Rates = [f64; Listing::ALL.len()];

fn rate_row(of: &Run, listing: Listing, found: &[Rates]) -> Row {
    let values: Vec<_> = found.iter().map(|rates| rates[usize::from(listing.index())]).collect();
    let published = of.published.as_ref().map(|published| published.of(listing));
    let standing = match listing {
        Listing::OneList if published.is_some() => Standing::Calibrated,
        _ => Standing::Predicted,
    };
    let case = format!("{} tasks, {listing}", of.tasks);
    Row { case, published, simulated: values[0], range: None, standing }.over(&values)
}

fn ratio_rows(of: &Run, found: &[Rates]) -> [Row; 3] {
    let ratio = |(above, below): (Listing, Listing)| {
        let of_run =
            |rates: &Rates| rates[usize::from(above.index())] / rates[usize::from(below.index())];
        let values: Vec<_> = found.iter().map(of_run).collect();
        let published = of.published.as_ref().map(|rates| rates.of(above) / rates.of(below));
        let case = format!("{} tasks, {above} / {below}", of.tasks);
        Row::predicted(case, published, values[0]).over(&values)
    };
    let (one, equal, near) = (Listing::OneList, Listing::Equal, Listing::Near);
    [(equal, one), (near, one), (near, equal)].map(ratio)
}

/// KB/s as usemem counts them: 9/8 of what is written.
fn rate(finished: &Finished) -> f64 {
    finished.pages_per_second() * 4.0 * 9.0 / 8.0
}

fn simulate(
    file: &File,
    of: &Run,
    listing: Listing,
    options: &Options,
) -> Result<(Shared, Finished), Failure> {
    let pages = file.machine.pages(*of.size_per_task.get_ref()) as u32;
    let rules =
        Rules { placement: Placement::Near, replacement: Replacement::Queue, ..Rules::default() };
    let setup = Setup {
        pages: pages * of.tasks.get(),
        costs: file.cost.clone(),
        rules,
        seed: options.seed,
    };
    let memory = Memory::start(&file.machine, &listed(&file.device, listing), setup);
    let finished = Finished::default();
    for task in 0..of.tasks.get() {
        let node = task % file.machine.nodes();
        load::start(&memory, node, (task * pages..(task + 1) * pages, 1), &finished);
    }
    load::finish(&memory, options)?;
    Ok((memory, finished))
}

/// The devices as a listing has them. Where they are close to costs what it costs, whether the lists know it or not.
fn listed(devices: &[Device], listing: Listing) -> Vec<Device> {
    let as_listed = |device: &Device| {
        let mut device = device.clone();
        match listing {
            Listing::OneList => device.is_listed_by_node = false,
            Listing::Equal => device.priority = Some(1),
            Listing::Near => {}
        }
        device
    };
    devices.iter().map(as_listed).collect()
}
