//! Slots given back at exit: per-CPU buffers, batches sorted by device or not (patch of 2017).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Deserialize;
use userswap_policy::devices::{DEVICES_MAX, DeviceId, DeviceTable, NodeId, Placement, Search};
use userswap_policy::free_batch::{self, Devices, FreeOrder, Invalid};
use userswap_policy::slot_cache::{BATCH, Batch, Put, Returned, Source as From};

use super::load::{self, Tasks};
use super::{Failure, Options};
use crate::clock::{Class, CpuId, Cpus, Lock, Ns, Random, Sim, Stop, Thread, Times, Waiting};
use crate::machine::{Impossible, Machine, Source, Time};
use crate::report::{Report, Row, Standing, Table};

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    runs: u64,
    machine: Machine,
    load: Load,
    published: Published,
}

impl File {
    /// Of each of so many tasks.
    fn pages_of(&self, tasks: u32) -> u64 {
        self.load.pages.get_ref() / self.machine.scale.get_ref() / u64::from(tasks)
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    tasks: Tasks,
    devices: Vec<toml::Spanned<u32>>,
    calibrated_at: u32,
    pages: toml::Spanned<u64>,
    zap: Time,
    slot_hold: Time,
    slot_lines: u32,
    device_lines: u32,
    sort: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    alone: f64,
    before: f64,
    after: f64,
}

/// Seconds and device lock acquisitions per slot.
#[derive(Clone, Copy)]
struct Found {
    seconds: f64,
    locks_per_slot: f64,
    events: u64,
}

/// Runs every number of devices unsorted and sorted.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &[]).map_err(|bad| source.refuse(&bad))?;
    check_devices(&file.load).map_err(|bad| source.refuse(&bad))?;
    for tasks in [1, file.load.tasks.get()] {
        load::check(tasks.into(), file.pages_of(tasks), file.load.pages.span())
            .map_err(|bad| source.refuse(&bad))?;
    }
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut times, mut ratios, mut locks) = (Vec::new(), Vec::new(), Vec::new());
    let alone = simulate(&file, (1, 1), FreeOrder::Unsorted, options.seed)?;
    report.events += alone.events;
    times.push(Row::calibrated("1 task, 1 device, unsorted", file.published.alone, alone.seconds));
    for devices in file.load.devices.iter().map(|devices| *devices.get_ref()) {
        let (mut unsorted, mut sorted) = (Vec::new(), Vec::new());
        for run in 0..file.runs.max(1) {
            for (order, found) in
                [(FreeOrder::Unsorted, &mut unsorted), (FreeOrder::Sorted, &mut sorted)]
            {
                let one =
                    simulate(&file, (file.load.tasks.get(), devices), order, options.seed + run)?;
                report.events += one.events;
                found.push(one);
            }
        }
        times.extend(time_rows(&file, devices, &unsorted, &sorted));
        ratios.push(ratio_row(&file, devices, &unsorted, &sorted));
        for (order, found) in [(FreeOrder::Unsorted, &unsorted), (FreeOrder::Sorted, &sorted)] {
            let case = format!("{devices} devices, {order}");
            locks.push(Row::predicted(case, None, found[0].locks_per_slot));
        }
    }
    report.tables.push(Table::new("time to free, s", times));
    report.tables.push(Table::new("sorted / unsorted", ratios));
    report.tables.push(Table::new("device lock acquisitions per slot", locks));
    Ok(report)
}

fn check_devices(load: &Load) -> Result<(), Impossible> {
    let allowed = 1..=DEVICES_MAX as u32;
    match load.devices.iter().find(|devices| !allowed.contains(devices.get_ref())) {
        None => Ok(()),
        Some(devices) => {
            let message = format!("{} devices: use 1 to {DEVICES_MAX}", devices.get_ref());
            Err(Impossible::new(devices.span(), message))
        }
    }
}

fn time_rows(file: &File, devices: u32, unsorted: &[Found], sorted: &[Found]) -> [Row; 2] {
    let is_calibrated = devices == file.load.calibrated_at;
    let row = |order, published, found: &[Found], standing| {
        let values: Vec<_> = found.iter().map(|of| of.seconds).collect();
        let published = is_calibrated.then_some(published);
        let case = format!("{devices} devices, {order}");
        Row { case, published, simulated: values[0], range: None, standing }.over(&values)
    };
    let standing = if is_calibrated { Standing::Calibrated } else { Standing::Predicted };
    [
        row(FreeOrder::Unsorted, file.published.before, unsorted, standing),
        row(FreeOrder::Sorted, file.published.after, sorted, Standing::Predicted),
    ]
}

fn ratio_row(file: &File, devices: u32, unsorted: &[Found], sorted: &[Found]) -> Row {
    let pairs = unsorted.iter().zip(sorted);
    let values: Vec<_> = pairs.map(|(before, after)| after.seconds / before.seconds).collect();
    // With one device nothing is to be gained.
    let published = if devices == 1 { 1.0 } else { file.published.after / file.published.before };
    Row::predicted(format!("{devices} devices"), Some(published), values[0]).over(&values)
}

/// One lock per device, and what it costs to free under it.
struct World {
    sim: Sim,
    locks: Vec<Lock>,
    order: FreeOrder,
    cpus: Rc<Cpus>,
    times: Rc<Times>,
    load: Load,
    slots: Cell<u64>,
    /// The CPU of each task: one of them wrote last to what a slot shares with others.
    users: RefCell<Vec<CpuId>>,
    random: RefCell<Random>,
}

fn simulate(
    file: &File,
    (tasks, devices): (u32, u32),
    order: FreeOrder,
    seed: u64,
) -> Result<Found, Failure> {
    let sim = Sim::with_jitter(seed, file.machine.jitter_permille.get());
    let lock = |_| Lock::new(Waiting::Queued, file.load.device_lines);
    let world = Rc::new(World {
        sim: sim.clone(),
        locks: (0..devices).map(lock).collect(),
        order,
        cpus: file.machine.cpus(),
        times: Rc::default(),
        load: file.load.clone(),
        slots: Cell::new(0),
        users: RefCell::new(vec![CpuId(0); tasks as usize]),
        random: RefCell::new(Random::new(seed)),
    });
    let scale = *file.machine.scale.get_ref();
    let pages = file.pages_of(tasks) as usize;
    let mut random = Random::new(seed);
    for task in 0..tasks {
        let slots = swapped(pages, devices, &mut random);
        exit(&world, task, task % file.machine.nodes(), slots);
    }
    match sim.run(Ns::MAX, || Ok(())) {
        Stop::Done => {}
        stop => return Err(Failure::Broken(format!("seed {seed}: {stop:?}"))),
    }
    let acquisitions: u64 = world.locks.iter().map(|lock| lock.counts().acquisitions).sum();
    Ok(Found {
        seconds: (sim.now() * scale) as f64 / 1e9,
        locks_per_slot: acquisitions as f64 / world.slots.get() as f64,
        events: sim.events(),
    })
}

/// The device of each page of a task in the order of addresses: it wrote to them at random, and they left in the order in
/// which it had, in turns of a buffer's slots on devices of equal priority.
fn swapped(pages: usize, devices: u32, random: &mut Random) -> Vec<DeviceId> {
    let mut table = DeviceTable::new(1, Placement::Near);
    for _ in 0..devices {
        table.swapon(None, Some(1), u32::MAX - 1).expect("the number of devices was checked");
    }
    let mut order: Vec<usize> = (0..pages).collect();
    random.shuffle(&mut order);
    let mut of_page = vec![DeviceId(0); pages];
    for turn in order.chunks(BATCH) {
        let device = table.next(NodeId(0), &mut Search::new()).expect("no device is full");
        turn.iter().for_each(|page| of_page[*page] = device);
    }
    of_page
}

/// A task that gives up all its pages. A CPU's buffer is the task's here: each has a CPU of its own.
fn exit(world: &Rc<World>, task: u32, home: u32, slots: Vec<DeviceId>) {
    let world = Rc::clone(world);
    world.sim.clone().program(async move {
        let thread = Thread::new(&world.sim, &world.cpus, &world.times, home);
        let mut returned = Returned::new();
        for device in slots {
            thread.charge(Class::System, world.load.zap.0);
            world.users.borrow_mut()[task as usize] = thread.cpu();
            if let Put::Flush(batch) = returned.put(device, From::Buffers) {
                world.free(&thread, batch).await;
            }
        }
        if let Some(batch) = returned.drain() {
            world.free(&thread, batch).await;
        }
        thread.settle().await;
    });
}

impl World {
    /// Frees a batch in the order that policy wants.
    async fn free(&self, thread: &Thread, mut batch: Batch<DeviceId>) {
        let mut script = Script::default();
        let stats =
            free_batch::free_all(self.order, self.locks.len() as u32, batch.slots(), &mut script);
        self.slots.set(self.slots.get() + u64::from(stats.freed));
        thread.charge(Class::System, Ns::from(stats.sorted) * self.load.sort.0);
        for step in script.0 {
            match step {
                Step::Acquire(device) => thread.lock(&self.locks[usize::from(device.0)]).await,
                Step::Free => thread.charge(Class::System, self.hold(thread.cpu())),
                Step::Release(device) => thread.unlock(&self.locks[usize::from(device.0)]).await,
            }
        }
    }
}

impl World {
    /// Time under a device's lock for one slot.
    fn hold(&self, cpu: CpuId) -> Ns {
        let users = self.users.borrow();
        let writer = users[self.random.borrow_mut().below(users.len() as u64) as usize];
        self.load.slot_hold.0 + Ns::from(self.load.slot_lines) * self.cpus.line(writer, cpu)
    }
}

/// What policy does to the devices, written down to be done in virtual time.
#[derive(Default)]
struct Script(Vec<Step>);

enum Step {
    Acquire(DeviceId),
    Free,
    Release(DeviceId),
}

impl Devices for Script {
    type Entry = DeviceId;

    fn device_of(&self, entry: DeviceId) -> DeviceId {
        entry
    }

    fn check(&mut self, _: DeviceId) -> Result<(), Invalid> {
        Ok(())
    }

    fn acquire(&mut self, device: DeviceId) {
        self.0.push(Step::Acquire(device));
    }

    fn release(&mut self, device: DeviceId) {
        self.0.push(Step::Release(device));
    }

    fn free(&mut self, _: DeviceId) -> Result<(), Invalid> {
        self.0.push(Step::Free);
        Ok(())
    }
}
