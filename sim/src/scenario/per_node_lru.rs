//! Lists of reclaimable objects: one for all, or one for each node (2013), under walkers that fill and shrink them.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Deserialize;
use userswap_policy::lru::sublists::Link;
use userswap_policy::lru::{Code, ListNumber, Sublists, Walk};

use super::load::Tasks;
use super::{Failure, Options};
use crate::clock::{Class, Cpus, Lock, Ns, Sim, Stop, Thread, Times, Waiting};
use crate::machine::{Impossible, Machine, Source, Time, Whole};
use crate::report::{Report, Row, Standing, Table};

/// Nodes for which the cost of counting all objects is shown.
const COUNTED: [u32; 4] = [1, 4, 64, 1024];
/// Bits of a cache line: so many nodes have their mask in one.
const LINE_BITS: u32 = 512;
/// Objects on all lists and on their way between them, at most.
const OBJECTS_MAX: u64 = 1 << 26;

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

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    walkers: Tasks,
    objects_per_walker: Whole<1, { u32::MAX }>,
    limit_per_node: toml::Spanned<u32>,
    work: Time,
    add_hold: Time,
    walk_hold: Time,
    dispose: Time,
    batch: Whole<1, { 1 << 20 }>,
    lock_lines: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    before: f64,
    after: f64,
    adding: f64,
}

/// What a run came to.
#[derive(Clone, Copy)]
struct Found {
    /// Waiting for list locks, per cent of CPU time.
    waiting: f64,
    /// Of this, by those who add, per cent.
    adding: f64,
    /// CPU time for each object.
    object_ns: f64,
    events: u64,
}

/// Who runs: walkers, on lists.
#[derive(Clone, Copy)]
struct Case {
    walkers: u32,
    lists: u32,
}

/// Runs one list and one for each node, and the controls.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &[]).map_err(|bad| source.refuse(&bad))?;
    file.check_limit().map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (nodes, walkers) = (file.machine.nodes(), file.load.walkers.get());
    let mut of = |case: Case| {
        let runs = (0..file.runs.max(1)).map(|run| simulate(&file, case, options.seed + run));
        let found = runs.collect::<Result<Vec<_>, _>>()?;
        report.events += found.iter().map(|found| found.events).sum::<u64>();
        Ok::<_, Failure>(found)
    };
    let one = of(Case { walkers, lists: 1 })?;
    let many = of(Case { walkers, lists: nodes })?;
    let alone = [of(Case { walkers: 1, lists: 1 })?, of(Case { walkers: 1, lists: nodes })?];
    let published = &file.published;
    let waiting = |found: &Found| found.waiting;
    let shares = vec![
        row("one list", Some(published.before), &one, waiting).standing(Standing::Calibrated),
        row("a list per node", Some(published.after), &many, waiting),
        // On one node the lists of nodes are one list: what a user without nodes gets.
        row("a list per node, on one node", Some(published.before), &one, waiting),
        row("one list, 1 walker", None, &alone[0], waiting),
        row("a list per node, 1 walker", None, &alone[1], waiting),
    ];
    report.tables.push(Table::new("waiting for list locks, % of CPU time", shares));
    let adding = vec![row("one list", Some(published.adding), &one, |found| found.adding)];
    report.tables.push(Table::new("of this by those who add, %", adding));
    let cost = |found: &Found| found.object_ns;
    let costs = vec![
        row("one list", None, &one, cost),
        row("a list per node", None, &many, cost),
        row("one list, 1 walker", None, &alone[0], cost),
        row("a list per node, 1 walker", None, &alone[1], cost),
    ];
    report.tables.push(Table::new("CPU time per object, ns", costs));
    report.tables.push(Table::new("counting all objects, ns", counting(&file.machine)));
    Ok(report)
}

fn row(case: &str, published: Option<f64>, found: &[Found], of: impl Fn(&Found) -> f64) -> Row {
    let values: Vec<_> = found.iter().map(of).collect();
    Row::predicted(case, published, values[0]).over(&values)
}

impl File {
    fn check_limit(&self) -> Result<(), Impossible> {
        let Load { walkers, batch, limit_per_node, .. } = &self.load;
        let (nodes, limit) = (self.machine.nodes(), *limit_per_node.get_ref());
        let held = u64::from(walkers.get()) * (u64::from(batch.get()) + 2);
        let objects = u64::from(nodes) * (u64::from(limit) + held);
        if limit > 0 && objects <= OBJECTS_MAX {
            return Ok(());
        }
        let message = format!(
            "{limit} objects on each of {nodes} nodes, and batches of {batch} for each of {walkers} walkers there: \
             use 1 object or more, {OBJECTS_MAX} in all"
        );
        Err(Impossible::new(limit_per_node.span(), message))
    }
}

/// A line for each node's counter, or the mask of nodes that have any and one node's counter.
fn counting(machine: &Machine) -> Vec<Row> {
    let line = machine.line_other_node.0;
    let of = |nodes: u32| {
        let mask = Ns::from(nodes.div_ceil(LINE_BITS)) + 1;
        [
            Row::predicted(
                format!("{nodes} nodes, every counter"),
                None,
                (line * Ns::from(nodes)) as f64,
            ),
            Row::predicted(format!("{nodes} nodes, mask"), None, (line * mask) as f64),
        ]
    };
    COUNTED.into_iter().flat_map(of).collect()
}

/// A list under its lock.
struct List {
    lock: Lock,
    items: RefCell<Sublists<Vec<Link>>>,
    /// Objects that no walker uses.
    free: RefCell<Vec<u32>>,
}

struct World {
    sim: Sim,
    cpus: Rc<Cpus>,
    times: Rc<Times>,
    load: Load,
    lists: Vec<List>,
    limit: i64,
    waited_adding: Cell<Ns>,
    waited_walking: Cell<Ns>,
}

fn simulate(file: &File, case: Case, seed: u64) -> Result<Found, Failure> {
    let sim = Sim::with_jitter(seed, file.machine.jitter_permille.get());
    let limit = file.load.limit_per_node.get_ref() * file.machine.nodes() / case.lists;
    // Objects that are being given back are on no list.
    let room = limit + case.walkers * (file.load.batch.get() + 2);
    let list = |_| List {
        lock: Lock::new(Waiting::Ticket, file.load.lock_lines),
        items: RefCell::new(Sublists::new(vec![Link::default(); room as usize], 1)),
        free: RefCell::new((0..room).collect()),
    };
    let world = Rc::new(World {
        sim: sim.clone(),
        cpus: file.machine.cpus(),
        times: Rc::default(),
        load: file.load.clone(),
        lists: (0..case.lists).map(list).collect(),
        limit: limit.into(),
        waited_adding: Cell::new(0),
        waited_walking: Cell::new(0),
    });
    for walker in 0..case.walkers {
        let world = Rc::clone(&world);
        let home = walker % file.machine.nodes();
        sim.program(async move { world.walk_files(home).await });
    }
    match sim.run(Ns::MAX, || Ok(())) {
        Stop::Done => Ok(world.found(case)),
        stop => Err(Failure::Broken(format!("seed {seed}: {stop:?}"))),
    }
}

impl World {
    async fn walk_files(&self, home: u32) {
        let thread = Thread::new(&self.sim, &self.cpus, &self.times, home);
        for _ in 0..self.load.objects_per_walker.get() {
            thread.charge(Class::System, self.load.work.0);
            thread.settle().await;
            let list = &self.lists[thread.node() as usize % self.lists.len()];
            while list.items.borrow().count() >= self.limit {
                self.shrink(&thread, list).await;
            }
            let since = self.sim.now();
            thread.lock(&list.lock).await;
            self.waited_adding.set(self.waited_adding.get() + self.sim.now() - since);
            let object = list.free.borrow_mut().pop().expect("the limit leaves room");
            assert!(list.items.borrow_mut().add(ListNumber::UNGROUPED, object).is_some());
            thread.charge(Class::System, self.load.add_hold.0);
            thread.unlock(&list.lock).await;
        }
    }

    /// Isolates the oldest objects of a list, and gives them back outside its lock.
    async fn shrink(&self, thread: &Thread, list: &List) {
        thread.settle().await;
        let since = self.sim.now();
        thread.lock(&list.lock).await;
        self.waited_walking.set(self.waited_walking.get() + self.sim.now() - since);
        let mut isolated = Vec::new();
        {
            let mut items = list.items.borrow_mut();
            let (mut walk, mut budget) =
                (Walk::new(ListNumber::UNGROUPED), self.load.batch.get().into());
            while let Some(object) = walk.next(&items, &mut budget) {
                walk.isolate(&mut items);
                walk.done(&mut items, Code::Removed);
                isolated.push(object);
            }
        }
        thread.charge(Class::System, self.load.walk_hold.0 * isolated.len() as Ns);
        thread.unlock(&list.lock).await;
        thread.charge(Class::System, self.load.dispose.0 * isolated.len() as Ns);
        thread.settle().await;
        list.free.borrow_mut().extend(isolated);
    }

    fn found(&self, case: Case) -> Found {
        assert!(self.lists.iter().all(|list| list.items.borrow().is_valid()), "counts are lengths");
        let cpu = self.times.user.get() + self.times.system.get();
        let waited = self.waited_adding.get() + self.waited_walking.get();
        let objects = u64::from(case.walkers) * u64::from(self.load.objects_per_walker.get());
        Found {
            waiting: waited as f64 * 100.0 / cpu as f64,
            adding: self.waited_adding.get() as f64 * 100.0 / waited.max(1) as f64,
            object_ns: cpu as f64 / objects as f64,
            events: self.sim.events(),
        }
    }
}
