//! Slots per second by threads that allocate single slots, as the kernel's swap-out does.
use super::{Format, Outcome, Row, median};
use clap::Args;
use serde::Serialize;
use std::sync::Barrier;
use std::time::Instant;
use userswap::SwapSpec;
use userswap::internals::Topology;
use userswap::internals::{Devices, SlotMode, SlotSpan, open};
use userswap::{Error, NodeId};

/// Options of `bench slot-alloc`.
#[derive(Debug, Clone, Args)]
pub struct SlotAllocArgs {
    /// Numbers of threads
    #[arg(long, value_name = "N", default_values_t = [1, 2, 16],
          value_parser = clap::value_parser!(u32).range(1..=256))]
    threads: Vec<u32>,
    /// Slots that all threads together allocate
    #[arg(long, value_name = "N", default_value_t = 2_000_000,
          value_parser = clap::value_parser!(u32).range(1000..=50_000_000))]
    slots: u32,
    /// Slots asked for at once
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=256))]
    batch: u32,
    /// Devices of equal priority, in memory
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=32))]
    devices: u32,
    /// Runs of each variant
    #[arg(long, value_name = "N", default_value_t = 5)]
    runs: u32,
    #[command(flatten)]
    pub(super) format: Format,
}

/// One variant.
#[derive(Debug, Serialize)]
pub(super) struct AllocRow {
    mode: &'static str,
    threads: u32,
    slots_per_s: f64,
    list_locks_per_64: f64,
    device_locks_per_64: f64,
    lock_waits_per_64: f64,
}

impl Row for AllocRow {
    const COLUMNS: &'static [&'static str] = &[
        "slots from",
        "threads",
        "million slots/s",
        "list locks/64",
        "device locks/64",
        "waits/64",
    ];

    fn cells(&self) -> Vec<String> {
        vec![
            self.mode.to_owned(),
            self.threads.to_string(),
            format!("{:.2}", self.slots_per_s / 1e6),
            format!("{:.2}", self.list_locks_per_64),
            format!("{:.2}", self.device_locks_per_64),
            format!("{:.3}", self.lock_waits_per_64),
        ]
    }
}

const MODES: [(&str, SlotMode); 3] = [
    ("slot cache", SlotMode::Cache),
    ("per-CPU clusters", SlotMode::Clusters),
    ("one cluster", SlotMode::Shared),
];

pub(super) fn measure(args: &SlotAllocArgs) -> Outcome<AllocRow> {
    let mut rows = Vec::new();
    for &threads in &args.threads {
        let mut runs: [Vec<AllocRow>; MODES.len()] = Default::default();
        for _ in 0..args.runs {
            for (place, mode) in MODES.into_iter().enumerate() {
                runs[place].push(one_run(args, threads, mode)?);
            }
        }
        rows.extend(runs.into_iter().filter_map(middle));
    }
    Ok(rows)
}

/// The run with the median rate, its counts as they were.
fn middle(mut runs: Vec<AllocRow>) -> Option<AllocRow> {
    let rate = median(runs.iter().map(|run| run.slots_per_s))?;
    runs.sort_by(|a, b| a.slots_per_s.total_cmp(&b.slots_per_s));
    let mut run = runs.into_iter().rev().find(|run| run.slots_per_s <= rate)?;
    run.slots_per_s = rate;
    Some(run)
}

fn one_run(
    args: &SlotAllocArgs,
    threads: u32,
    (name, mode): (&'static str, SlotMode),
) -> Result<AllocRow, Error> {
    let each = args.slots / threads / args.batch;
    // A tenth more than is taken, so that no variant runs into the device's end.
    let bytes = u64::from(args.slots) * 4096 * 11 / 10 / u64::from(args.devices) + (64 << 20);
    let spec: SwapSpec = format!("mem:{bytes},pri=1").parse().expect("a specification of ours");
    let opened = (0..args.devices).map(|_| open::open(&spec, bytes)).collect::<Result<_, _>>()?;
    let devices = Devices::new(opened, &Topology::one())?;
    devices.set_mode(mode);
    let (start, end) = (Barrier::new(threads as usize + 1), Barrier::new(threads as usize + 1));
    let elapsed = std::thread::scope(|scope| {
        for _ in 0..threads {
            scope.spawn(|| {
                let mut taken: Vec<SlotSpan> = Vec::with_capacity(each as usize);
                start.wait();
                for _ in 0..each {
                    let span = devices.allocate(args.batch, NodeId(0));
                    taken.push(span.expect("the devices are large enough"));
                }
                end.wait();
                taken.into_iter().for_each(|span| devices.free(span));
            });
        }
        start.wait();
        let begin = Instant::now();
        end.wait();
        begin.elapsed().as_secs_f64()
    });
    let uses = devices.list().map(|device| device.allocation.read());
    let (device_locks, device_waits) =
        uses.fold((0, 0), |sum, (taken, waits)| (sum.0 + taken, sum.1 + waits));
    let (list_locks, list_waits) = devices.list_lock.read();
    let slots = f64::from(each * threads * args.batch);
    let per_64 = |count: u64| count as f64 * 64.0 / slots;
    Ok(AllocRow {
        mode: name,
        threads,
        slots_per_s: slots / elapsed,
        list_locks_per_64: per_64(list_locks),
        device_locks_per_64: per_64(device_locks),
        lock_waits_per_64: per_64(list_waits + device_waits),
    })
}
