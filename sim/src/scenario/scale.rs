//! How cost grows with nodes, devices and tasks.

use serde::Deserialize;
use userswap_policy::devices::{DEVICES_MAX, Placement};

use super::load::{self, Finished, Tasks};
use super::{Failure, Options};
use crate::machine::{Device, Impossible, Machine, Source};
use crate::memory::{Costs, Memory, Replacement, Rules, Setup};
use crate::report::{Report, Row, Table};

/// Bytes of a node's list of devices: a key and a number for each of them, and a length.
const LIST_BYTES: u64 = DEVICES_MAX as u64 * 8 + 8;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    machine: Machine,
    cost: Costs,
    /// The one that each node has.
    device: Vec<Device>,
    nodes: toml::Spanned<Vec<u32>>,
    tasks: toml::Spanned<Vec<u32>>,
    load: Load,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    tasks_per_node: Tasks,
    pages_per_task: u32,
    pages_of_all: u32,
}

/// A machine, and who works on it.
struct Case {
    machine: Machine,
    devices: Vec<Device>,
    tasks: u32,
    pages: u32,
}

impl Case {
    /// Whether it can be; `at` is what made it.
    fn check(&self, at: std::ops::Range<usize>) -> Result<(), Impossible> {
        super::check(&self.machine, &self.devices)
            .map_err(|bad| Impossible::new(at.clone(), bad.message))?;
        load::check(self.tasks.into(), self.pages.into(), at)
    }
}

/// Grows nodes with a device each, then tasks.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &file.device).map_err(|bad| source.refuse(&bad))?;
    let cases = cases_of(&file, &file.nodes, of_nodes).map_err(|bad| source.refuse(&bad))?;
    let crowds = cases_of(&file, &file.tasks, of_tasks).map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut pages, mut waits, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    for case in cases {
        let nodes = case.machine.nodes();
        for placement in Placement::ALL {
            let found = simulate(&file, &case, placement, options)?;
            let name = format!("{nodes} nodes, {} devices, {placement}", case.devices.len());
            pages.push(Row::predicted(name.clone(), None, found.page_ns));
            waits.push(Row::predicted(name, None, found.list_wait));
            report.events += found.events;
        }
        let size = LIST_BYTES * u64::from(nodes);
        bytes.push(Row::predicted(format!("{nodes} nodes"), None, size as f64));
    }
    let mut crowd = Vec::new();
    for case in crowds {
        let found = simulate(&file, &case, Placement::Near, options)?;
        report.events += found.events;
        crowd.push(Row::predicted(format!("{} tasks", case.tasks), None, found.machine_ns));
    }
    report.tables.push(Table::new("time of a task per page, ns", pages));
    report
        .tables
        .push(Table::new("waiting for the lock of the device lists, % of CPU time", waits));
    report.tables.push(Table::new("lists of devices, bytes", bytes));
    report.tables.push(Table::new("time of the four-node machine per page, ns", crowd));
    Ok(report)
}

/// A case for each number, all of which can be.
fn cases_of(
    file: &File,
    numbers: &toml::Spanned<Vec<u32>>,
    case: fn(&File, u32) -> Case,
) -> Result<Vec<Case>, Impossible> {
    let cases = numbers.get_ref().iter().map(|number| case(file, *number));
    cases.map(|case| case.check(numbers.span()).map(|()| case)).collect()
}

/// The file's machine with so many tasks.
fn of_tasks(file: &File, tasks: u32) -> Case {
    let machine = file.machine.clone();
    let devices = devices(file, machine.nodes().min(DEVICES_MAX as u32));
    Case { machine, devices, tasks, pages: (file.load.pages_of_all / tasks.max(1)).max(1) }
}

/// So many nodes, a device each as long as they can be numbered.
fn of_nodes(file: &File, nodes: u32) -> Case {
    let mut machine = file.machine.clone();
    machine.nodes = toml::Spanned::new(file.nodes.span(), nodes);
    let tasks = nodes.saturating_mul(file.load.tasks_per_node.get());
    let devices = devices(file, nodes.min(DEVICES_MAX as u32));
    Case { machine, devices, tasks, pages: file.load.pages_per_task }
}

fn devices(file: &File, count: u32) -> Vec<Device> {
    let on = |node| {
        let mut device = file.device[0].clone();
        device.node = Some(toml::Spanned::new(0..0, node));
        device
    };
    (0..count).map(on).collect()
}

struct Found {
    page_ns: f64,
    machine_ns: f64,
    list_wait: f64,
    events: u64,
}

fn simulate(
    file: &File,
    case: &Case,
    placement: Placement,
    options: &Options,
) -> Result<Found, Failure> {
    let rules = Rules { placement, replacement: Replacement::Queue, ..Rules::default() };
    let pages = case.pages * case.tasks;
    let setup = Setup { pages, costs: file.cost.clone(), rules, seed: options.seed };
    let memory = Memory::start(&case.machine, &case.devices, setup);
    let finished = Finished::default();
    for task in 0..case.tasks {
        let node = task % case.machine.nodes();
        load::start(&memory, node, (task * case.pages..(task + 1) * case.pages, 1), &finished);
    }
    load::finish(&memory, options)?;
    let cpu = memory.programs.user.get() + memory.programs.system.get();
    let cpu = cpu + memory.background.system.get();
    let waited = memory.swap().list_counts().waited;
    Ok(Found {
        page_ns: finished.last() as f64 / f64::from(case.pages),
        machine_ns: finished.last() as f64 / f64::from(pages),
        list_wait: waited as f64 * 100.0 / cpu.max(1) as f64,
        events: memory.sim().events(),
    })
}
