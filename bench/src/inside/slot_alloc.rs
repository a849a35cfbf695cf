//! Slots per second by threads that allocate single slots, as the kernel's swap-out does: from the engine's
//! devices, and by the kernel's own search, which slot caches were made to relieve.
use super::{Format, Outcome, RUNS_MAX, Row, median, memory_device};
use crate::figures::{Work, time_of};
use clap::Args;
use serde::Serialize;
use std::sync::Barrier;
use std::time::Instant;
use userswap::internals::Topology;
use userswap::internals::lock::{Lock, LockUse};
use userswap::internals::{Devices, SlotMode, open};
use userswap::{Error, NodeId};
use userswap_policy::kernel::scan::{Rotational, Scan, SolidState};
use userswap_policy::slots::ClusterCursor;

/// Options of `bench slot-alloc`.
#[derive(Debug, Clone, Args)]
pub struct SlotAllocArgs {
    /// Numbers of threads
    #[arg(long, value_name = "N", value_delimiter = ',', num_args = 1.., default_values_t = [1, 2, 16],
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
    #[arg(long, value_name = "N", default_value_t = 5,
          value_parser = clap::value_parser!(u32).range(1..=RUNS_MAX))]
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

/// What gives out slots.
#[derive(Debug, Clone, Copy)]
enum Source {
    /// The engine's devices.
    Engine(SlotMode),
    /// The kernel's search from 4.11 to 4.19 on a device where seeking is cheap.
    ScanSolidState,
    /// The same where it is expensive.
    ScanRotational,
}

const SOURCES: [(&str, Source); 5] = [
    ("slot cache", Source::Engine(SlotMode::Cache)),
    ("per-CPU clusters", Source::Engine(SlotMode::Clusters)),
    ("one cluster", Source::Engine(SlotMode::Shared)),
    ("scan-ssd", Source::ScanSolidState),
    ("scan-hdd", Source::ScanRotational),
];

impl SlotAllocArgs {
    /// Each thread takes a batch at least.
    pub(super) fn check(&self) -> Result<(), String> {
        let (threads, batch) = (self.threads.iter().max().copied().unwrap_or(1), self.batch);
        match self.slots >= threads * batch {
            true => Ok(()),
            false => Err(format!(
                "--slots {}: is less than --batch {batch} for each of {threads} threads: use at least {}",
                self.slots,
                threads * batch
            )),
        }
    }
}

pub(super) fn measure(args: &SlotAllocArgs) -> Outcome<AllocRow> {
    let mut rows = Vec::new();
    for &threads in &args.threads {
        let mut runs: [Vec<AllocRow>; SOURCES.len()] = Default::default();
        for _ in 0..args.runs {
            for (index, (name, source)) in SOURCES.into_iter().enumerate() {
                runs[index].push(one_run(args, threads, source)?.row(name));
            }
        }
        rows.extend(runs.into_iter().filter_map(middle));
    }
    Ok(rows)
}

/// The medians of a variant's runs.
fn middle(runs: Vec<AllocRow>) -> Option<AllocRow> {
    let middle = |of: fn(&AllocRow) -> f64| median(runs.iter().map(of));
    let AllocRow { mode, threads, .. } = *runs.first()?;
    Some(AllocRow {
        mode,
        threads,
        slots_per_s: middle(|run| run.slots_per_s)?,
        list_locks_per_64: middle(|run| run.list_locks_per_64)?,
        device_locks_per_64: middle(|run| run.device_locks_per_64)?,
        lock_waits_per_64: middle(|run| run.lock_waits_per_64)?,
    })
}

/// What a run took.
struct Run {
    threads: u32,
    slots: u32,
    seconds: f64,
    list: Uses,
    devices: Uses,
}

/// How often locks of one kind were taken, and how often that meant waiting.
#[derive(Default)]
struct Uses {
    taken: u64,
    waits: u64,
}

impl Uses {
    fn add(self, lock: &LockUse) -> Self {
        let now = lock.read();
        Self { taken: self.taken + now.acquisitions, waits: self.waits + now.waits }
    }
}

impl Run {
    fn row(self, mode: &'static str) -> AllocRow {
        let slots = f64::from(self.slots);
        let per_64 = |count: u64| count as f64 * 64.0 / slots;
        AllocRow {
            mode,
            threads: self.threads,
            slots_per_s: slots / self.seconds,
            list_locks_per_64: per_64(self.list.taken),
            device_locks_per_64: per_64(self.devices.taken),
            lock_waits_per_64: per_64(self.list.waits + self.devices.waits),
        }
    }
}

fn one_run(args: &SlotAllocArgs, threads: u32, source: Source) -> Result<Run, Error> {
    // A tenth more than is taken, so that no variant runs into the device's end.
    let bytes = u64::from(args.slots) * 4096 * 11 / 10 / u64::from(args.devices) + (64 << 20);
    let max = (bytes / 4096) as u32;
    match source {
        Source::Engine(mode) => run_engine(args, threads, bytes, mode),
        Source::ScanSolidState => {
            Ok(run_scan(args, threads, || SolidState::new(max, max / 2, &[])))
        }
        Source::ScanRotational => Ok(run_scan(args, threads, || Rotational::new(max, &[]))),
    }
}

fn run_engine(
    args: &SlotAllocArgs,
    threads: u32,
    bytes: u64,
    mode: SlotMode,
) -> Result<Run, Error> {
    let spec = memory_device(bytes);
    let opened = (0..args.devices).map(|_| open::open(&spec, bytes)).collect::<Result<_, _>>()?;
    let devices = Devices::new(opened, &Topology::one())?;
    devices.set_mode(mode);
    let each = args.slots / threads / args.batch;
    let take = |(): &mut ()| {
        let span = devices.allocate(args.batch, NodeId(0));
        span.expect("the devices are large enough")
    };
    let seconds = seconds_of(threads, each, || (), take, |span| devices.free(span));
    Ok(Run {
        threads,
        slots: each * threads * args.batch,
        seconds,
        list: Uses::default().add(&devices.list_lock),
        devices: devices.list().fold(Uses::default(), |sum, device| sum.add(&device.allocation)),
    })
}

/// Slots one at a time, as swap-out did before there were slot caches: the list's lock to find the device
/// whose turn it is, then that device's. Whatever the batch, nothing is asked for at once.
fn run_scan<S: Scan + Send>(args: &SlotAllocArgs, threads: u32, device: impl Fn() -> S) -> Run {
    let devices: Vec<Lock<S>> = (0..args.devices).map(|_| Lock::new(device())).collect();
    let (turn, list_use, device_use) = (Lock::new(0), LockUse::default(), LockUse::default());
    let next_index = || {
        let mut turn = turn.lock_counted(&list_use);
        *turn = (*turn + 1) % devices.len();
        *turn
    };
    let take = |cursors: &mut Vec<ClusterCursor>| {
        let index = next_index();
        let slot = devices[index].lock_counted(&device_use).allocate(&mut cursors[index]);
        Taken { index, slot: slot.expect("the devices are large enough") }
    };
    let each = args.slots / threads;
    let cursors = || vec![ClusterCursor::new(); devices.len()];
    let free = |taken: Taken| devices[taken.index].lock().free(taken.slot);
    let seconds = seconds_of(threads, each, cursors, take, free);
    Run {
        threads,
        slots: each * threads,
        seconds,
        list: Uses::default().add(&list_use),
        devices: Uses::default().add(&device_use),
    }
}

/// A slot, and the index of its device.
struct Taken {
    index: usize,
    slot: u32,
}

/// Seconds until each of so many threads, with a state of its own, has taken `each` times; what was taken
/// is given back when the clock stands.
fn seconds_of<C, T>(
    threads: u32,
    each: u32,
    state: impl Fn() -> C + Sync,
    take: impl Fn(&mut C) -> T + Sync,
    free: impl Fn(T) + Sync,
) -> f64 {
    let [start, end] = [(); 2].map(|()| Barrier::new(threads as usize));
    std::thread::scope(|scope| {
        let work = || {
            scope.spawn(|| {
                let mut taken: Vec<T> = Vec::with_capacity(each as usize);
                let mut state = state();
                start.wait();
                let begin = Instant::now();
                for _ in 0..each {
                    taken.push(take(&mut state));
                }
                let work = Work::since(begin);
                end.wait();
                taken.into_iter().for_each(&free);
                work
            })
        };
        let tasks: Vec<_> = (0..threads).map(|_| work()).collect();
        let works = tasks.into_iter().map(|task| task.join().expect("nothing here panics"));
        time_of(works).as_secs_f64()
    })
}
