//! Random programs on random machines whose devices fail, with a look at everything after every event.
//!
//! A seed stands for a case: machine, devices with their faults, programs, swapoffs. Limits cut a case down; a seed that
//! fails is run with ever lower limits, and reported with the lowest that still fail.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;

use serde::Deserialize;

use super::{Checking, Failure, Options, load};
use crate::clock::Random;
use crate::machine::{BadFile, Device, Impossible, Machine, Source};
use crate::memory::{
    Access, Costs, Memory, Outcome, PageId, Removal, Replacement, Rules, Setup, Shared, Swapoff,
};
use crate::report::{Report, Row, Table};
use userswap_policy::devices::{DEVICES_MAX, Placement};
use userswap_policy::kernel::contention::Contention;

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    seeds: u64,
    limit: toml::Spanned<Limit>,
}

/// The most that a case may have of each.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    nodes: u32,
    devices: u32,
    /// Devices that fail.
    faults: u32,
    tasks: u32,
    /// Of each task.
    steps: u32,
    pages_per_task: u32,
    swapoffs: u32,
}

impl Limit {
    /// What would do, if a limit allows no case.
    fn check(&self) -> Result<(), String> {
        let Self { nodes, devices, tasks, pages_per_task, .. } = *self;
        if [nodes, devices, tasks, pages_per_task].contains(&0) {
            return Err("0 nodes, devices, tasks or pages_per_task: use 1 or more".to_owned());
        }
        match devices as usize > DEVICES_MAX {
            true => Err(format!("{devices} devices: use 1 to {DEVICES_MAX}")),
            false => Ok(()),
        }
    }
}

impl Default for Limit {
    fn default() -> Self {
        Self {
            nodes: 3,
            devices: 4,
            faults: 4,
            tasks: 6,
            steps: 400,
            pages_per_task: 120,
            swapoffs: 4,
        }
    }
}

/// Time for reclaimers to end what they are at when the programs have ended.
const AFTERWARDS_NS: u64 = 1_000_000_000;

/// What happened in a case: a test sees from it that everything is reached.
#[derive(Clone, Copy, Default, Debug)]
pub struct Coverage {
    pub events: u64,
    pub swapped_in: u64,
    pub swapped_out: u64,
    pub direct: u64,
    pub io_errors: u64,
    pub lost: u64,
    pub killed: u64,
    pub stalls: u64,
    pub swapoffs_done: u64,
    pub swapoffs_failed: u64,
}

/// Runs as many seeds as the file says.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    let limit = *file.limit.get_ref();
    limit.check().map_err(|message| source.refuse(&Impossible::new(file.limit.span(), message)))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let mut total = Coverage::default();
    for seed in options.seed..options.seed + file.seeds {
        let found = run_case(seed, limit).map_err(|_| Failure::Broken(explain(seed, limit)))?;
        total.add(&found);
    }
    report.events = total.events;
    report
        .tables
        .push(Table::new(format!("{} seeds, every event checked", file.seeds), total.rows()));
    Ok(report)
}

/// One seed, cut down to a limit.
///
/// # Errors
/// What is wrong, in one line.
pub fn run_case(seed: u64, limit: Limit) -> Result<Coverage, String> {
    catch_unwind(AssertUnwindSafe(|| simulate(seed, limit))).unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str);
        Err(text.or(panic.downcast_ref::<&str>().copied()).unwrap_or("a panic").to_owned())
    })
}

/// A failing seed with the lowest limits that still fail, and what it says then.
pub fn explain(seed: u64, limit: Limit) -> String {
    let limit = shrink(seed, limit);
    let said = run_case(seed, limit).err().unwrap_or_default();
    let Limit { nodes, devices, faults, tasks, steps, pages_per_task, swapoffs } = limit;
    format!(
        "seed {seed}: {said}; again with: userswap sim stress --seed {seed} --set seeds=1 \
         --set limit.nodes={nodes} --set limit.devices={devices} --set limit.faults={faults} \
         --set limit.tasks={tasks} --set limit.steps={steps} \
         --set limit.pages_per_task={pages_per_task} --set limit.swapoffs={swapoffs}"
    )
}

/// Lowers one limit after the other as long as the seed fails.
pub fn shrink(seed: u64, limit: Limit) -> Limit {
    let mut limit = limit;
    loop {
        let next = lower(limit).into_iter().find(|lower| run_case(seed, *lower).is_err());
        match next {
            Some(next) => limit = next,
            None => return limit,
        }
    }
}

/// Limits that are lower in one respect, the largest steps first.
fn lower(limit: Limit) -> Vec<Limit> {
    let mut lower = Vec::new();
    let mut offer = |from: u32, least: u32, with: fn(Limit, u32) -> Limit| {
        for to in [least, from / 2, from.saturating_sub(from / 8), from.saturating_sub(1)] {
            if (least..from).contains(&to) {
                lower.push(with(limit, to));
            }
        }
    };
    offer(limit.tasks, 1, |limit, tasks| Limit { tasks, ..limit });
    offer(limit.swapoffs, 0, |limit, swapoffs| Limit { swapoffs, ..limit });
    offer(limit.faults, 0, |limit, faults| Limit { faults, ..limit });
    offer(limit.devices, 1, |limit, devices| Limit { devices, ..limit });
    offer(limit.nodes, 1, |limit, nodes| Limit { nodes, ..limit });
    offer(limit.steps, 1, |limit, steps| Limit { steps, ..limit });
    offer(limit.pages_per_task, 1, |limit, pages_per_task| Limit { pages_per_task, ..limit });
    lower
}

fn simulate(seed: u64, limit: Limit) -> Result<Coverage, String> {
    let mut random = Random::new(seed);
    let (machine, devices) = machine(&mut random, limit)?;
    let tasks = (1 + random.below(6) as u32).min(limit.tasks);
    let pages = (20 + random.below(100) as u32).min(limit.pages_per_task);
    let contention = Contention::ALL[random.below(3) as usize];
    let placement = Placement::ALL[random.below(2) as usize];
    let removal = Removal::ALL[random.below(2) as usize];
    let replacement = Replacement::ALL[random.below(2) as usize];
    let rules = Rules { placement, contention, removal, replacement };
    let costs = costs().map_err(|bad| bad.to_string())?;
    let memory =
        Memory::start(&machine, &devices, Setup { pages: pages * tasks, costs, rules, seed });
    for task in 0..tasks {
        let steps = (50 + random.below(350) as u32).min(limit.steps);
        let random = Random::new(random.number());
        program(&memory, task % machine.nodes(), task * pages..(task + 1) * pages, (steps, random));
    }
    let swapped_off = swapoffs(&memory, (random.below(5) as u32).min(limit.swapoffs), random);
    memory.sim().linger(AFTERWARDS_NS);
    let options = Options { seed, checking: Checking::EveryEvent };
    load::end(&memory, &options).map_err(|failure| failure.to_string())?;
    memory.check_end()?;
    let found = Coverage::of(&memory, &swapped_off.borrow());
    if found.lost > 0 && found.io_errors == 0 {
        return Err(format!("{} pages are lost, and no device has failed", found.lost));
    }
    Ok(found)
}

fn costs() -> Result<Costs, BadFile> {
    Source::new("costs", include_str!("../../scenarios/stress-costs.toml")).read()
}

/// A small machine, some of whose devices fail.
fn machine(random: &mut Random, limit: Limit) -> Result<(Machine, Vec<Device>), String> {
    #[derive(Deserialize)]
    struct Parts {
        machine: Machine,
        device: Vec<Device>,
    }
    let nodes = (1 + random.below(3) as u32).min(limit.nodes);
    let mut text = format!(
        "[machine]\nnodes = {nodes}\ncpus_per_node = {}\nmemory_per_node = \"{} KiB\"\n\
         line_same_node = \"40 ns\"\nline_other_node = \"120 ns\"\njitter_permille = 300\n",
        1 + random.below(3),
        4 * (64 + random.below(64)),
    );
    // The same case for each limit up to the usual one.
    let most = limit.devices.max(Limit::default().devices);
    let count = (1 + random.below(most.into()) as u32).min(limit.devices);
    for index in 0..count {
        let fault = fault(random);
        text += &device(random, nodes);
        if index < limit.faults {
            text += &fault;
        }
    }
    let parts: Parts = Source::new("case", &text).read().map_err(|bad| bad.to_string())?;
    Ok((parts.machine, parts.device))
}

fn device(random: &mut Random, nodes: u32) -> String {
    let kind = if random.below(2) == 0 { "copy" } else { "queue" };
    let mut text = format!(
        "[[device]]\nkind = \"{kind}\"\nsize = \"{} KiB\"\npage = \"{} ns\"\nrequest = \"{} us\"\n",
        4 * (20 + random.below(300)),
        500 + random.below(3000),
        random.below(80),
    );
    if random.below(2) == 0 {
        text += &format!("node = {}\n", random.below(nodes.into()));
    }
    if random.below(3) == 0 {
        text += &format!("priority = {}\n", random.below(3));
    }
    text
}

fn fault(random: &mut Random) -> String {
    let moment = random.below(5_000_000);
    match random.below(6) {
        0 => "fault = { reads_ppm = 20000 }\n".to_owned(),
        1 => "fault = { writes_ppm = 50000 }\n".to_owned(),
        2 => "fault = { reads_ppm = 2000, writes_ppm = 300000 }\n".to_owned(),
        3 => format!("fault = {{ slow_from = \"{moment} ns\" }}\n"),
        4 => format!("fault = {{ dead_from = \"{moment} ns\" }}\n"),
        _ => String::new(),
    }
}

/// A program that remembers what it wrote, and compares.
fn program(
    memory: &Shared,
    node: u32,
    pages: std::ops::Range<PageId>,
    (steps, mut random): (u32, Random),
) {
    let memory = Rc::clone(memory);
    memory.sim().clone().program(async move {
        let thread = memory.program_thread(node);
        let mut written = vec![0; pages.len()];
        for _ in 0..steps {
            let index = random.below(written.len() as u64) as usize;
            let page = pages.start + index as PageId;
            let access = if random.below(3) == 0 { Access::Read } else { Access::Write };
            if random.below(20) == 0 {
                memory.discard(&thread, page).await;
                written[index] = 0;
                continue;
            }
            match memory.access(&thread, page, access).await {
                Outcome::Done(version) => {
                    written[index] += u32::from(access == Access::Write);
                    assert_eq!(version, written[index], "page {page} is read as it was written");
                }
                Outcome::Lost => {
                    memory.discard(&thread, page).await;
                    written[index] = 0;
                }
                Outcome::NoMemory => {
                    memory.counts.kill();
                    break;
                }
            }
        }
        thread.settle().await;
    });
}

type SwappedOff = Rc<std::cell::RefCell<Vec<Swapoff>>>;

/// Swaps random devices off and on again, while programs run.
fn swapoffs(memory: &Shared, count: u32, mut random: Random) -> SwappedOff {
    let found = SwappedOff::default();
    let (memory, results) = (Rc::clone(memory), Rc::clone(&found));
    memory.sim().clone().program(async move {
        let thread = memory.system_thread(0);
        let devices = memory.swap().stores.len() as u64;
        for _ in 0..count {
            thread.sleep(random.below(2_000_000)).await;
            let device = random.below(devices) as u8;
            let result = memory.swapoff(&thread, device).await;
            results.borrow_mut().push(result);
            thread.sleep(random.below(1_000_000)).await;
            (0..devices as u8).for_each(|device| _ = memory.swapon_again(device));
        }
    });
    found
}

impl Coverage {
    fn of(memory: &Memory, swapped_off: &[Swapoff]) -> Self {
        let counts = &memory.counts;
        let ended = |how| swapped_off.iter().filter(|of| **of == how).count() as u64;
        Self {
            events: memory.sim().events(),
            swapped_in: counts.swapped_in.get(),
            swapped_out: counts.swapped_out.get(),
            direct: counts.direct.get(),
            io_errors: counts.io_errors.get(),
            lost: counts.lost.get(),
            killed: counts.killed.get(),
            stalls: counts.stalls.get(),
            swapoffs_done: ended(Swapoff::Done),
            swapoffs_failed: ended(Swapoff::NoRoom),
        }
    }

    fn add(&mut self, other: &Self) {
        self.events += other.events;
        self.swapped_in += other.swapped_in;
        self.swapped_out += other.swapped_out;
        self.direct += other.direct;
        self.io_errors += other.io_errors;
        self.lost += other.lost;
        self.killed += other.killed;
        self.stalls += other.stalls;
        self.swapoffs_done += other.swapoffs_done;
        self.swapoffs_failed += other.swapoffs_failed;
    }

    fn rows(&self) -> Vec<Row> {
        [
            ("pages swapped in", self.swapped_in),
            ("pages swapped out", self.swapped_out),
            ("of these, directly", self.direct),
            ("requests that failed", self.io_errors),
            ("pages lost to failing devices", self.lost),
            ("programs without memory", self.killed),
            ("reclaimers that paused", self.stalls),
            ("swapoffs", self.swapoffs_done),
            ("swapoffs that found no room", self.swapoffs_failed),
        ]
        .map(|(case, count)| Row::predicted(case, None, count as f64))
        .into()
    }
}

#[cfg(test)]
mod tests;
