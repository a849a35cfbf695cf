//! The experiment of the 2017 patch: threads write at random places of memory larger than RAM, over
//! several devices; measured is the time to free it all at the end, when slots that follow each other in
//! memory are on different devices.
use super::{Outcome, Random, Row, median};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::sync::Barrier;
use std::time::Instant;
use userswap::size::parse_size;
use userswap::{Builder, Error, Region};
use userswap_policy::free_batch::FreeOrder;

/// In which order a batch is freed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Order {
    /// First entry's device, then the others sorted (the patch of 2017)
    Sorted,
    /// All sorted once there was a second device (what Linux 4.13 merged)
    Merged,
    /// As they come
    Unsorted,
}

/// Options of `bench slot-free`.
#[derive(Debug, Clone, Args)]
pub struct SlotFreeArgs {
    /// Numbers of devices, in memory, of equal priority
    #[arg(long, value_name = "N", default_values_t = [2, 4],
          value_parser = clap::value_parser!(u32).range(1..=32))]
    devices: Vec<u32>,
    /// Orders to compare
    #[arg(long, value_name = "ORDER", value_enum,
          default_values_t = [Order::Sorted, Order::Merged, Order::Unsorted])]
    free: Vec<Order>,
    /// Threads that write, and free
    #[arg(long, value_name = "N", default_value_t = 16,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    tasks: u32,
    /// RAM budget
    #[arg(long, value_name = "SIZE", default_value = "64M", value_parser = parse_size)]
    ram: u64,
    /// Memory of all threads together
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = parse_size)]
    size: u64,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 3)]
    runs: u32,
    /// Print one JSON object instead of a table
    #[arg(long)]
    pub(super) json: bool,
}

/// One variant.
#[derive(Debug, Serialize)]
pub(super) struct FreeRow {
    order: &'static str,
    devices: u32,
    free_s: f64,
    slots_freed: u64,
    device_locks: u64,
    lock_waits: u64,
    locks_per_64: f64,
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
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.order.to_owned(),
            self.devices.to_string(),
            format!("{:.3} s", self.free_s),
            self.slots_freed.to_string(),
            self.device_locks.to_string(),
            self.lock_waits.to_string(),
            format!("{:.2}", self.locks_per_64),
        ]
    }
}

pub(super) fn measure(args: &SlotFreeArgs) -> Outcome<FreeRow> {
    let mut rows = Vec::new();
    for &devices in &args.devices {
        let mut runs: Vec<Vec<FreeRow>> = args.free.iter().map(|_| Vec::new()).collect();
        for _ in 0..args.runs {
            for (place, order) in args.free.iter().enumerate() {
                runs[place].push(one_run(args, devices, *order)?);
            }
        }
        for mut of_order in runs {
            let free_s = median(of_order.iter().map(|run| run.free_s).collect());
            rows.extend(of_order.pop().map(|run| FreeRow { free_s, ..run }));
        }
    }
    Ok(rows)
}

fn one_run(args: &SlotFreeArgs, devices: u32, order: Order) -> Result<FreeRow, Error> {
    let (name, order) = match order {
        Order::Sorted => ("sorted", FreeOrder::Sorted),
        Order::Merged => ("merged", FreeOrder::Merged),
        Order::Unsorted => ("unsorted", FreeOrder::Unsorted),
    };
    let spec = format!("mem:{},pri=1", args.size * 2 / u64::from(devices) + (64 << 20));
    let spec = spec.parse().expect("a specification of ours");
    let builder =
        (0..devices).fold(Builder::new(args.ram), |builder, _| builder.swap(spec_of(&spec)));
    let engine = builder.build()?;
    engine.core().devices.set_free_order(order);
    let share = (args.size / u64::from(args.tasks)) as usize;
    let mut regions = (0..args.tasks).map(|_| engine.map(share)).collect::<Result<Vec<_>, _>>()?;
    std::thread::scope(|scope| {
        for (task, region) in regions.iter_mut().enumerate() {
            scope.spawn(move || write_at_random(region, task as u64));
        }
    });
    let uses = || {
        let uses = engine.core().devices.list().map(|device| {
            let freed = device.freed.load(std::sync::atomic::Ordering::Relaxed);
            (device.freeing.read(), freed)
        });
        uses.fold((0, 0, 0), |sum, ((taken, waits), freed)| {
            (sum.0 + taken, sum.1 + waits, sum.2 + freed)
        })
    };
    let before = uses();
    let start = Barrier::new(args.tasks as usize + 1);
    let free_s = std::thread::scope(|scope| {
        let tasks: Vec<_> = regions
            .drain(..)
            .map(|region| {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    drop(region);
                })
            })
            .collect();
        start.wait();
        let begin = Instant::now();
        tasks.into_iter().for_each(|task| task.join().expect("dropping does not panic"));
        begin.elapsed().as_secs_f64()
    });
    let after = uses();
    let (device_locks, slots_freed) = (after.0 - before.0, after.2 - before.2);
    Ok(FreeRow {
        order: name,
        devices,
        free_s,
        slots_freed,
        device_locks,
        lock_waits: after.1 - before.1,
        locks_per_64: device_locks as f64 * 64.0 / slots_freed.max(1) as f64,
    })
}

fn spec_of(spec: &userswap::device::spec::SwapSpec) -> userswap::device::spec::SwapSpec {
    spec.clone()
}

/// As many writes as there are pages, each to a page of its own, in no order.
fn write_at_random(region: &mut Region, seed: u64) {
    let words = region.as_typed_mut::<u64>();
    let pages = words.len() / 512;
    let mut order: Vec<u32> = (0..pages as u32).collect();
    let mut random = Random::new(seed + 1);
    for place in (1..pages).rev() {
        order.swap(place, random.below(place + 1));
    }
    for page in order {
        words[page as usize * 512] = u64::from(page) + seed + 1;
    }
}
