//! Which devices fill on a machine with more nodes than devices (the case that led to the removal of per-node lists in
//! 2025), and what that costs; and on one with a device for each node.

use serde::Deserialize;
use userswap_policy::devices::Placement;
use userswap_policy::named_choice;

use super::load::{self, Finished, Tasks};
use super::{Failure, Options};
use crate::machine::{Bytes, Device, Machine, Source};
use crate::memory::{Costs, Memory, Replacement, Rules, Setup};
use crate::report::{Report, Row, Table};

named_choice! {
    /// How devices are listed.
    pub enum Listing, "listing" {
        /// As before 2017: in the order of swapon, the first until it is full.
        OneList = "one-list",
        /// A list per node, its own devices first.
        Near = "near",
        /// All equal, as since late 2025.
        Spread = "spread",
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    machine: Machine,
    cost: Costs,
    device: Vec<Device>,
    load: Load,
    published: Option<Published>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    tasks_per_node: Tasks,
    size_per_task: toml::Spanned<Bytes>,
}

/// GiB on each device, and how much faster `spread` was than `near`.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
struct Published {
    one_list: Vec<f64>,
    near: Vec<f64>,
    spread: Vec<f64>,
    spread_over_near: f64,
}

impl Published {
    fn of(&self, listing: Listing) -> &[f64] {
        match listing {
            Listing::OneList => &self.one_list,
            Listing::Near => &self.near,
            Listing::Spread => &self.spread,
        }
    }
}

/// What one run came to.
struct Found {
    gib: Vec<f64>,
    seconds: f64,
    events: u64,
}

/// Runs the load with every listing.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &file.device).map_err(|bad| source.refuse(&bad))?;
    let (tasks, size) = (u64::from(file.load.tasks_per_node.get()), &file.load.size_per_task);
    let tasks = tasks * u64::from(file.machine.nodes());
    load::check(tasks, file.machine.pages(*size.get_ref()), size.span())
        .map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut rows, mut seconds) = (Vec::new(), Vec::new());
    for listing in Listing::ALL {
        let found = simulate(&file, listing, options)?;
        report.events += found.events;
        seconds.push(found.seconds);
        let published = file.published.as_ref().map(|published| published.of(listing));
        for (device, gib) in found.gib.iter().enumerate() {
            let published = published.and_then(|of| of.get(device).copied());
            rows.push(Row::predicted(format!("{listing}, device {device}"), published, *gib));
        }
    }
    report.tables.push(Table::new("in use on each device, GiB", rows));
    let published = file.published.as_ref().map(|published| published.spread_over_near);
    let times = vec![
        Row::predicted("one-list, time", None, seconds[0]),
        Row::predicted("near, time", None, seconds[1]),
        Row::predicted("spread, time", None, seconds[2]),
        Row::predicted("near / spread", published, seconds[1] / seconds[2]),
    ];
    report.tables.push(Table::new("time of the scaled load, s", times));
    Ok(report)
}

fn simulate(file: &File, listing: Listing, options: &Options) -> Result<Found, Failure> {
    let pages = file.machine.pages(*file.load.size_per_task.get_ref()) as u32;
    let tasks = file.load.tasks_per_node.get() * file.machine.nodes();
    let placement = match listing {
        Listing::OneList | Listing::Near => Placement::Near,
        Listing::Spread => Placement::Spread,
    };
    let rules = Rules { placement, replacement: Replacement::Queue, ..Rules::default() };
    let setup = Setup { pages: pages * tasks, costs: file.cost.clone(), rules, seed: options.seed };
    let mut devices = file.device.clone();
    if listing == Listing::OneList {
        devices.iter_mut().for_each(|device| device.is_listed_by_node = false);
    }
    let memory = Memory::start(&file.machine, &devices, setup);
    let finished = Finished::default();
    for task in 0..tasks {
        let node = task % file.machine.nodes();
        load::start(&memory, node, (task * pages..(task + 1) * pages, 1), &finished);
    }
    load::finish(&memory, options)?;
    let scale = *file.machine.scale.get_ref() as f64;
    let gib = |pages: u32| f64::from(pages) * scale * 4.0 / f64::from(1 << 20);
    let used = memory.swap().stores.iter().map(|store| gib(store.slots.borrow().used()));
    let seconds = finished.last() as f64 / 1e9;
    Ok(Found { gib: used.collect(), seconds, events: memory.sim().events() })
}
