//! Workloads under each rule of replacement and placement: the table that a change of policy must not change unseen.

use std::rc::Rc;

use serde::Deserialize;
use userswap_policy::devices::Placement;
use userswap_policy::named_choice;

use super::load::{self, Tasks};
use super::{Failure, Options};
use crate::clock::Random;
use crate::machine::{Device, Machine, Source, Whole};
use crate::memory::{Access, Costs, Memory, Outcome, Replacement, Rules, Setup, Shared};
use crate::report::{Report, Row, Table};

named_choice! {
    /// How a program goes through its pages.
    pub enum Workload, "workload" {
        /// One after the other, again and again.
        Loop = "loop",
        /// Any page.
        Random = "random",
        /// Two of three times one of a tenth of the pages.
        Hot = "hot and cold",
        /// A few pages again and again, in between all the others once.
        Scan = "hot and a scan",
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
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    tasks: Tasks,
    /// Of each task.
    pages: toml::Spanned<u32>,
    accesses: Whole<1, { u32::MAX }>,
}

/// Runs every workload with every rule.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &file.device).map_err(|bad| source.refuse(&bad))?;
    let (tasks, pages) = (file.load.tasks.get(), &file.load.pages);
    load::check(tasks.into(), (*pages.get_ref()).into(), pages.span())
        .map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut misses, mut times) = (Vec::new(), Vec::new());
    for workload in Workload::ALL {
        for replacement in Replacement::ALL {
            for placement in Placement::ALL {
                let rules = Rules { replacement, placement, ..Rules::default() };
                let memory = simulate(&file, workload, rules, options)?;
                let case = format!("{workload}, {replacement}, {placement}");
                let accesses = f64::from(tasks) * f64::from(file.load.accesses.get());
                let share = memory.counts.swapped_in.get() as f64 * 100.0 / accesses;
                misses.push(Row::predicted(case.clone(), None, share));
                times.push(Row::predicted(case, None, memory.sim().now() as f64 / 1e6));
                report.events += memory.sim().events();
            }
        }
    }
    report.tables.push(Table::new("accesses that read a device, %", misses));
    report.tables.push(Table::new("time, ms", times));
    Ok(report)
}

fn simulate(
    file: &File,
    workload: Workload,
    rules: Rules,
    options: &Options,
) -> Result<Shared, Failure> {
    let (tasks, pages) = (file.load.tasks.get(), *file.load.pages.get_ref());
    let accesses = file.load.accesses.get();
    let setup = Setup { pages: pages * tasks, costs: file.cost.clone(), rules, seed: options.seed };
    let memory = Memory::start(&file.machine, &file.device, setup);
    let mut random = Random::new(options.seed);
    for task in 0..tasks {
        let (of_task, mut random) = (Rc::clone(&memory), Random::new(random.number()));
        let home = task % file.machine.nodes();
        memory.sim().program(async move {
            let thread = of_task.program_thread(home);
            for step in 0..accesses {
                let page = task * pages + workload.page(step, pages, &mut random);
                let access = if random.below(2) == 0 { Access::Read } else { Access::Write };
                if let Outcome::NoMemory = of_task.access(&thread, page, access).await {
                    of_task.counts.kill();
                    break;
                }
            }
            thread.settle().await;
        });
    }
    load::finish(&memory, options)?;
    Ok(memory)
}

impl Workload {
    fn page(self, step: u32, pages: u32, random: &mut Random) -> u32 {
        let mut any_of = |count: u32| random.below(u64::from(count.max(1))) as u32;
        match self {
            Workload::Loop => step % pages,
            Workload::Random => any_of(pages),
            Workload::Hot if any_of(3) > 0 => any_of(pages / 10),
            Workload::Hot => any_of(pages),
            Workload::Scan if step.is_multiple_of(2) => any_of(pages / 8),
            Workload::Scan => pages / 8 + step / 2 % (pages - pages / 8),
        }
    }
}
