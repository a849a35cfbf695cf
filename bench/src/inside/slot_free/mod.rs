//! The experiment of the 2017 patch: threads write to random pages of memory larger than RAM, over
//! several devices; measured is the time to free it all at the end, when slots that follow each other in
//! memory are on different devices. Beside it the time of the batched free alone (`routine`).
mod routine;

use super::words::PAGE_WORDS;
use super::{Format, Outcome, RUNS_MAX, Row, in_turns, median, memory_device, parse_memory};
use crate::choice;
use crate::figures::{Spread, Work, median_count, time_of};
use crate::random::{Random, shuffled};
use clap::{Args, ValueEnum};
use routine::Shape;
use serde::Serialize;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;
use userswap::{Builder, Engine, Error, Region};
use userswap_policy::free_batch::FreeOrder;

/// In which order a batch is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    /// First entry's device, then the others sorted (the patch of 2017)
    Sorted,
    /// All sorted once there was a second device (what Linux 4.13 merged)
    Merged,
    /// As they come
    Unsorted,
    /// Device by device, without sorting (the default of engines)
    Grouped,
}

impl From<Order> for FreeOrder {
    fn from(order: Order) -> Self {
        match order {
            Order::Sorted => Self::Sorted,
            Order::Merged => Self::Merged,
            Order::Unsorted => Self::Unsorted,
            Order::Grouped => Self::Grouped,
        }
    }
}

/// Options of `bench slot-free`.
#[derive(Debug, Clone, Args)]
pub struct SlotFreeArgs {
    /// Numbers of devices, in memory, of equal priority
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 2, 4],
          value_parser = clap::value_parser!(u32).range(1..=32))]
    devices: Vec<u32>,
    /// Orders to compare
    #[arg(long, value_name = "ORDER", value_enum, value_delimiter = ',', num_args = 1..,
          default_values_t = [Order::Sorted, Order::Merged, Order::Unsorted, Order::Grouped])]
    free: Vec<Order>,
    /// Threads that write, and free
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    tasks: u32,
    /// RAM budget
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_memory, allow_hyphen_values = true)]
    ram: u64,
    /// Memory of all threads together
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_memory, allow_hyphen_values = true)]
    size: u64,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3,
          value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
    runs: u32,
    /// Turns in which the batched free alone is timed, all orders in each
    #[arg(long, value_name = "N", default_value_t = 101,
          value_parser = clap::value_parser!(u32).range(1..=10_000))]
    turns: u32,
    /// Threads that time the batched free together, beside one alone
    #[arg(long, value_name = "N", default_value_t = 4,
          value_parser = clap::value_parser!(u32).range(1..=64))]
    threads: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// One order with one number of devices.
#[derive(Debug, Serialize)]
pub(super) struct FreeRow {
    order: Order,
    devices: u32,
    free_s: f64,
    slots_freed: u64,
    device_locks: u64,
    lock_waits: u64,
    locks_per_64: f64,
    list_locks: u64,
    /// Of the batched free alone, per slot; in relation to unsorted within a turn.
    routine_ns: f64,
    routine_ns_least: f64,
    routine_over_unsorted: f64,
    /// The same by several threads at once.
    threads_ns: f64,
    threads_over_unsorted: f64,
}

impl Row for FreeRow {
    const COLUMNS: &'static [&'static str] = &[
        "order",
        "devices",
        "time to free",
        "slots freed",
        "device locks",
        "waits",
        "locks/64 slots",
        "list locks",
        "alone, ns/slot",
        "least",
        "over unsorted",
        "by threads",
        "over unsorted",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            choice::name(&self.order),
            self.devices.to_string(),
            format!("{:.3} s", self.free_s),
            self.slots_freed.to_string(),
            self.device_locks.to_string(),
            self.lock_waits.to_string(),
            format!("{:.2}", self.locks_per_64),
            self.list_locks.to_string(),
            format!("{:.1}", self.routine_ns),
            format!("{:.1}", self.routine_ns_least),
            format!("{:+.1} %", self.routine_over_unsorted * 100.0),
            format!("{:.1}", self.threads_ns),
            format!("{:+.1} %", self.threads_over_unsorted * 100.0),
        ]
    }
}

pub(super) fn measure(args: &SlotFreeArgs) -> Outcome<FreeRow> {
    let mut rows = Vec::new();
    for &devices in &args.devices {
        let runs = in_turns(args.runs, &args.free, |order| one_run(args, devices, order))?;
        let alone = Alone::measure(args, devices, 1)?;
        let together = Alone::measure(args, devices, args.threads)?;
        let row = |(runs, (alone, together))| of_medians(runs, alone, together);
        rows.extend(runs.into_iter().zip(alone.into_iter().zip(together)).filter_map(row));
    }
    Ok(rows)
}

/// The row of a variant: medians of its times and counts.
fn of_medians(runs: Vec<FreeRow>, alone: Alone, together: Alone) -> Option<FreeRow> {
    let count = |of: fn(&FreeRow) -> u64| median_count(runs.iter().map(of));
    let time = |of: fn(&FreeRow) -> f64| median(runs.iter().map(of));
    let FreeRow { order, devices, .. } = *runs.first()?;
    Some(FreeRow {
        order,
        devices,
        free_s: time(|run| run.free_s)?,
        slots_freed: count(|run| run.slots_freed),
        device_locks: count(|run| run.device_locks),
        lock_waits: count(|run| run.lock_waits),
        locks_per_64: time(|run| run.locks_per_64)?,
        list_locks: count(|run| run.list_locks),
        routine_ns: alone.ns,
        routine_ns_least: alone.ns_least,
        routine_over_unsorted: alone.over_unsorted,
        threads_ns: together.ns,
        threads_over_unsorted: together.over_unsorted,
    })
}

/// The batched free alone, of one order.
#[derive(Debug, Clone, Copy)]
struct Alone {
    ns: f64,
    ns_least: f64,
    over_unsorted: f64,
}

impl Alone {
    /// Of each of the orders, in turns.
    fn measure(args: &SlotFreeArgs, devices: u32, threads: u32) -> Outcome<Self> {
        let mut orders = args.free.clone();
        orders.push(Order::Unsorted);
        let mut turns = Vec::new();
        for turn in 0..args.turns {
            let of = |order: &Order| {
                let order = FreeOrder::from(*order);
                routine::ns_per_slot(Shape { devices, threads, order }, turn.into())
            };
            turns.push(orders.iter().map(of).collect::<Result<Vec<f64>, _>>()?);
        }
        let of_order = |at: usize| {
            let ns = Spread::of(turns.iter().map(|turn| turn[at]))?;
            let unsorted = args.free.len();
            let over = median(turns.iter().map(|turn| turn[at] / turn[unsorted] - 1.0))?;
            Some(Self { ns: ns.median, ns_least: ns.least, over_unsorted: over })
        };
        Ok((0..args.free.len()).filter_map(of_order).collect())
    }
}

fn one_run(args: &SlotFreeArgs, devices: u32, order: Order) -> Result<FreeRow, Error> {
    let spec = memory_device(args.size * 2 / u64::from(devices) + (64 << 20));
    let builder = (0..devices).fold(Builder::new(args.ram), |all, _| all.swap(spec.clone()));
    let engine = builder.build()?;
    engine.core().devices.set_free_order(order.into());
    // Pages that left by the block have slots beside each other.
    engine.set("reclaim_way", "runs")?;
    let share = (args.size / u64::from(args.tasks)) as usize;
    let mut regions = (0..args.tasks).map(|_| engine.map(share)).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        for (task, region) in regions.iter_mut().enumerate() {
            scope.spawn(move || write_at_random(region, task as u64));
        }
    });
    let before = Freed::so_far(&engine);
    let free_s = free_at_once(regions);
    let after = Freed::so_far(&engine);
    let (device_locks, slots_freed) = (after.locks - before.locks, after.slots - before.slots);
    Ok(FreeRow {
        order,
        devices,
        free_s,
        slots_freed,
        device_locks,
        lock_waits: after.waits - before.waits,
        locks_per_64: device_locks as f64 * 64.0 / slots_freed.max(1) as f64,
        list_locks: after.list_locks - before.list_locks,
        routine_ns: 0.0,
        routine_ns_least: 0.0,
        routine_over_unsorted: 0.0,
        threads_ns: 0.0,
        threads_over_unsorted: 0.0,
    })
}

/// What freeing has taken on all devices.
#[derive(Debug, Clone, Copy, Default)]
struct Freed {
    slots: u64,
    locks: u64,
    waits: u64,
    list_locks: u64,
}

impl Freed {
    fn so_far(engine: &Engine) -> Self {
        let devices = &engine.core().devices;
        let list_locks = devices.list_lock.read().acquisitions;
        let before = Self { list_locks, ..Self::default() };
        devices.list().fold(before, |sum, device| {
            let lock = device.freeing.read();
            let slots = sum.slots + device.freed.load(Relaxed);
            let (locks, waits) = (sum.locks + lock.acquisitions, sum.waits + lock.waits);
            Self { slots, locks, waits, ..sum }
        })
    }
}

/// Seconds that it takes to drop all regions, each by a thread of its own.
fn free_at_once(regions: Vec<Region>) -> f64 {
    let start = Barrier::new(regions.len());
    std::thread::scope(|scope| {
        let free = |region| {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                let begin = Instant::now();
                drop(region);
                Work::since(begin)
            })
        };
        let tasks: Vec<_> = regions.into_iter().map(free).collect();
        let works = tasks.into_iter().map(|task| task.join().expect("dropping does not panic"));
        time_of(works).as_secs_f64()
    })
}

/// As many writes as there are pages, each to a page of its own, in no order.
fn write_at_random(region: &mut Region, seed: u64) {
    let words = region.as_typed_mut::<u64>();
    for page in shuffled(words.len() / PAGE_WORDS, &mut Random::new(seed + 1)) {
        words[page as usize * PAGE_WORDS] = u64::from(page) + seed + 1;
    }
}
