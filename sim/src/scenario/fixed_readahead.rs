//! Readahead in swapoff (proposal of 2020): a walk in the order of addresses reads windows in the order of slots.
//!
//! Linux 5.6 asked for readahead at every page without looking whether it was there already, so hits were never counted
//! and the window stayed at two. The proposal fixed the window; 5.8 looks a page up first instead.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use serde::Deserialize;
use userswap_policy::devices::NodeId;
use userswap_policy::kernel::{Cluster, Fixed, Scaling};
use userswap_policy::named_choice;
use userswap_policy::readahead::{Fault, Hint, Limits, ReadWindow, Readahead};

use super::{Failure, Options, load};
use crate::clock::{Class, Ns, Sim, Stop, Thread, Times};
use crate::machine::{Machine, Source, Time, Whole};
use crate::report::{Report, Row, Table};

named_choice! {
    /// How swapoff walks.
    pub enum Walk, "walk" {
        /// As Linux 5.6: readahead at every page, hits never counted.
        Default = "default",
        /// The same with windows of `2^page_cluster`.
        Fixed = "fixed",
        /// The default, with one hit added before each call.
        Bumped = "hits + 1",
        /// The default, with as many hits as the last window.
        Forced = "hits forced",
        /// As Linux 5.8: a page that is there is a hit, and asks for nothing.
        Lookup = "look-up first",
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct File {
    #[serde(rename = "kind")]
    _kind: String,
    about: String,
    machine: Machine,
    load: Load,
    published: Published,
}

impl File {
    fn pages(&self) -> u64 {
        self.load.pages.get_ref() / self.machine.scale.get_ref()
    }
}

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct Load {
    pages: toml::Spanned<u64>,
    run_pages: Whole<1, { 1 << 20 }>,
    streams: Whole<1, { 1 << 20 }>,
    call: Time,
    look_up: Time,
    page_cpu: Time,
    page_transfer: Time,
    request: Time,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Published {
    default: [f64; 8],
    fixed: [f64; 8],
    bumped: f64,
    forced: f64,
    lookup: f64,
}

/// Runs every `page_cluster` with both policies, and the controls.
pub fn run(name: &str, source: &Source, options: &Options) -> Result<Report, Failure> {
    let file: File = source.read()?;
    super::check(&file.machine, &[]).map_err(|bad| source.refuse(&bad))?;
    load::check(1, file.pages(), file.load.pages.span()).map_err(|bad| source.refuse(&bad))?;
    let mut report = Report::new(name, &file.about, options.seed);
    let (mut times, mut ratios, mut requests) = (Vec::new(), Vec::new(), Vec::new());
    let mut time = |walk, page_cluster| {
        let found = simulate(&file, walk, page_cluster, options)?;
        report.events += found.events;
        Ok::<_, Failure>((found.seconds, found.requests))
    };
    let mean = file.published.default.iter().sum::<f64>() / 8.0;
    for (index, page_cluster) in (1..=8).enumerate() {
        let (default, asked) = time(Walk::Default, page_cluster)?;
        let (fixed, asked_fixed) = time(Walk::Fixed, page_cluster)?;
        let of = (file.published.default[index], file.published.fixed[index]);
        times.push(Row::calibrated(format!("default, {page_cluster}"), of.0, default));
        times.push(Row::predicted(format!("fixed, {page_cluster}"), Some(of.1), fixed));
        // The source's default is flat but for its noise: its mean is what was calibrated.
        ratios.push(Row::predicted(format!("{page_cluster}"), Some(mean / of.1), default / fixed));
        requests.push(Row::predicted(format!("default, {page_cluster}"), None, asked));
        requests.push(Row::predicted(format!("fixed, {page_cluster}"), None, asked_fixed));
    }
    let mut controls = Vec::new();
    let published = &file.published;
    for (walk, published) in [
        (Walk::Bumped, published.bumped),
        (Walk::Forced, published.forced),
        (Walk::Lookup, published.lookup),
    ] {
        controls.push(Row::predicted(walk.name(), Some(published), time(walk, 3)?.0));
    }
    report.tables.push(Table::new("swapoff by page_cluster, s", times));
    report.tables.push(Table::new("mean of default / fixed by page_cluster", ratios));
    report.tables.push(Table::new("other walks, page_cluster 3, s", controls));
    report.tables.push(Table::new("requests, thousands", requests));
    Ok(report)
}

struct Found {
    seconds: f64,
    requests: f64,
    events: u64,
}

fn simulate(
    file: &File,
    walk: Walk,
    page_cluster: u8,
    options: &Options,
) -> Result<Found, Failure> {
    let sim = Sim::with_jitter(options.seed, file.machine.jitter_permille.get());
    let scale = *file.machine.scale.get_ref();
    let layout = Layout::new(file.pages() as u32, &file.load);
    let swapoff = Rc::new(Swapoff {
        load: file.load.clone(),
        limits: Limits { page_cluster, run_first: 0, run_max: 0, ahead_max: 0 },
        walk,
        cluster: RefCell::new(Cluster::new()),
        last_window: Cell::new(0),
        cached: RefCell::new(vec![Cached::No; layout.page_at.len()]),
        layout,
        busy_until: Cell::new(0),
        requests: Cell::new(0),
    });
    let (walker, cpus, times) =
        (Rc::clone(&swapoff), file.machine.cpus(), Rc::new(Times::default()));
    let handle = sim.clone();
    sim.program(async move {
        let thread = Thread::new(&handle, &cpus, &times, 0);
        walker.run(&thread).await;
    });
    match sim.run(Ns::MAX, || Ok(())) {
        Stop::Done => {}
        stop => return Err(Failure::Broken(format!("seed {}: {stop:?}", options.seed))),
    }
    Ok(Found {
        seconds: (sim.now() * scale) as f64 / 1e9,
        requests: (swapoff.requests.get() * scale) as f64 / 1e3,
        events: sim.events(),
    })
}

/// Which page is on which slot: runs of neighbours, between which lie runs of other parts of memory.
struct Layout {
    slot_of: Vec<u32>,
    /// By slot; slot 0 is the header.
    page_at: Vec<u32>,
}

impl Layout {
    fn new(pages: u32, load: &Load) -> Self {
        let (run, streams) = (load.run_pages.get(), load.streams.get());
        let stream_pages = pages.div_ceil(streams);
        let (mut slot_of, mut page_at) = (vec![0; pages as usize], vec![u32::MAX]);
        for start in (0..stream_pages).step_by(run as usize) {
            for stream in 0..streams {
                let end = ((stream + 1) * stream_pages).min(pages);
                let first = stream * stream_pages + start;
                for page in first..(first + run).min(end) {
                    slot_of[page as usize] = page_at.len() as u32;
                    page_at.push(page);
                }
            }
        }
        Self { slot_of, page_at }
    }
}

/// What a slot's page is in memory.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Cached {
    No,
    /// Read ahead; there at this moment.
    Marked(Ns),
    /// Read for itself, or used already.
    Yes(Ns),
}

struct Swapoff {
    load: Load,
    limits: Limits,
    walk: Walk,
    cluster: RefCell<Cluster>,
    last_window: Cell<u32>,
    cached: RefCell<Vec<Cached>>,
    layout: Layout,
    busy_until: Cell<Ns>,
    requests: Cell<u64>,
}

impl Swapoff {
    async fn run(&self, thread: &Thread) {
        for page in 0..self.layout.slot_of.len() as u32 {
            let slot = self.layout.slot_of[page as usize];
            if !(self.walk == Walk::Lookup && self.found(slot)) {
                thread.charge(Class::System, self.load.call.0);
                self.read_ahead(thread, page, slot).await;
            }
            let there = match self.cached.borrow()[slot as usize] {
                Cached::Marked(at) | Cached::Yes(at) => at,
                Cached::No => unreachable!("a window has the page that it is for"),
            };
            thread.charge(Class::System, self.load.page_cpu.0);
            if there > thread.sim().now() {
                thread.settle().await;
                let now = thread.sim().now();
                thread.sleep(there.saturating_sub(now)).await;
            }
        }
        thread.settle().await;
    }

    /// Whether a page is in memory; its first use is a hit.
    fn found(&self, slot: u32) -> bool {
        let cached = &mut self.cached.borrow_mut()[slot as usize];
        match *cached {
            Cached::No => false,
            Cached::Yes(_) => true,
            Cached::Marked(at) => {
                *cached = Cached::Yes(at);
                self.cluster.borrow_mut().count_hit();
                true
            }
        }
    }

    /// Reads what of a window is not in memory, as one request.
    async fn read_ahead(&self, thread: &Thread, page: u32, slot: u32) {
        let (first, count) = self.window(thread, page, slot);
        self.last_window.set(count);
        thread.charge(Class::System, self.load.look_up.0 * u64::from(count));
        let missing: Vec<u32> = {
            let cached = self.cached.borrow();
            (first..first + count).filter(|slot| cached[*slot as usize] == Cached::No).collect()
        };
        if missing.is_empty() {
            return;
        }
        thread.settle().await;
        self.requests.set(self.requests.get() + 1);
        let transfer = self.load.page_transfer.0 * missing.len() as Ns;
        let end = self.busy_until.get().max(thread.sim().now()) + transfer;
        self.busy_until.set(end);
        let there = end + self.load.request.0;
        for of in missing {
            let state = if of == slot { Cached::Yes(there) } else { Cached::Marked(there) };
            self.cached.borrow_mut()[of as usize] = state;
        }
    }

    /// First slot and number of slots to read.
    fn window(&self, thread: &Thread, page: u32, slot: u32) -> (u32, u32) {
        let slots = self.layout.page_at.len() as u32;
        let fault = Fault {
            page,
            region_first: 0,
            region_end: slots,
            slot,
            slots,
            node: NodeId(0),
            now_ns: thread.sim().now(),
            hint: Hint::Normal,
        };
        let mut cluster = self.cluster.borrow_mut();
        let hits = match self.walk {
            Walk::Bumped => 1,
            Walk::Forced => self.last_window.get(),
            Walk::Default | Walk::Fixed | Walk::Lookup => 0,
        };
        (0..hits).for_each(|_| cluster.count_hit());
        let window = match self.walk {
            Walk::Fixed => Fixed(&mut cluster).on_fault(&fault, &self.limits),
            _ => Scaling(&mut cluster).on_fault(&fault, &self.limits),
        };
        match window {
            ReadWindow::Slots { first, count } => (first, count),
            ReadWindow::One
            | ReadWindow::Pages { .. }
            | ReadWindow::Block { .. }
            | ReadWindow::Stream(_) => (slot, 1),
        }
    }
}
