//! How much memory compressed pages may take: what was set, or what it brings, where that is left to the engine
//! (`policy::compress`).
use crate::base::error::Error;
use crate::device::compress::Compress;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::sys::{PAGE_BYTES, clock, process};
use std::sync::atomic::Ordering;
use userswap_policy::compress::{Held, Prices, Refaults, Size};

/// What a page behind is taken to cost until some have come back from there, in nanoseconds, and at most.
const BEHIND_NS: u64 = 100_000;
const BEHIND_NS_MAX: u64 = 20_000_000;
/// Fewer pages say nothing about what one costs.
const TELLING: u64 = 256;

/// The size, and what it is decided by.
pub(super) struct Sizing {
    size: Size,
    refaults: Box<Refaults>,
    /// What had been compressed and moved on when this was last decided.
    flow: Flow,
    /// What had been read from the devices behind by then.
    read: Read,
    /// What a page cost when enough were read.
    prices: Prices,
    /// Faults that waited, and pages that were read, by then.
    faults: [u64; 2],
    /// When this was last decided, and what the program and the engine had worked by then.
    at: Moment,
}

#[derive(Clone, Copy)]
struct Moment {
    now_ns: u64,
    work_ns: u64,
}

impl Moment {
    /// Who polls for a device waits for it.
    fn now(core: &Core) -> Self {
        let counters = &core.counters;
        let polled = [&counters.poll_success_ns, &counters.poll_fail_ns]
            .map(|counter| counter.load(Ordering::Relaxed));
        let work_ns = clock::process_cpu_ns().saturating_sub(polled.iter().sum());
        Self { now_ns: clock::now_ns(), work_ns }
    }
}

/// What was read from devices that are not compressed. Writes cost no fault anything: they are large, and nobody waits.
#[derive(Clone, Copy, Default)]
struct Read {
    busy_ns: u64,
    pages: u64,
}

/// Pages that have gone to compressed memory, and on from there.
#[derive(Clone, Copy)]
struct Flow {
    stored: u64,
    demoted: u64,
}

impl Flow {
    fn since(self, before: Self) -> Self {
        let Self { stored, demoted } = before;
        Self { stored: self.stored - stored, demoted: self.demoted - demoted }
    }
}

impl Sizing {
    pub(super) fn new(core: &Core) -> Self {
        let size = Size::new(core.devices.allowance.most_of_budget());
        let (read, flow) = (core.read_behind(), core.compressed_flow());
        Self {
            size,
            refaults: Box::default(),
            flow,
            read,
            prices: Prices::new(BEHIND_NS, 1, 1),
            faults: core.read_by_faults(),
            at: Moment::now(core),
        }
    }

    /// What pages cost of late.
    fn prices_of_late(&mut self, core: &Core) -> Prices {
        let read = core.read_behind();
        let pages = read.pages.saturating_sub(self.read.pages);
        if pages >= TELLING {
            let busy_ns = read.busy_ns.saturating_sub(self.read.busy_ns);
            self.prices.behind_ns = (busy_ns / pages).min(BEHIND_NS_MAX);
            self.read = read;
        }
        let faults = core.read_by_faults();
        let [faulted, pages] = [0, 1].map(|index| faults[index] - self.faults[index]);
        if pages >= TELLING {
            self.prices = Prices::new(self.prices.behind_ns, faulted, pages);
            self.faults = faults;
        }
        let (before, now) = (self.at, Moment::now(core));
        self.at = now;
        let work_ns = now.work_ns.saturating_sub(before.work_ns);
        self.prices.beside(work_ns, now.now_ns - before.now_ns, process::usable_cpus())
    }
}

impl Core {
    /// How much memory compressed pages may take, as it was set; None without compressed memory in front of all devices.
    pub(crate) fn compress(&self) -> Option<Compress> {
        self.tuning.compress.map(|_| self.demotion.compress())
    }

    /// Sets it. With less than compressed pages take they move on to the devices behind, a little later.
    ///
    /// # Errors
    /// The engine was started without, it was swapped off, or there is no device with room to move on to.
    pub(crate) fn set_compress(&self, compress: Compress) -> Result<(), Error> {
        self.inside_gate(|| {
            // Beside the thread that decides by itself.
            let _changing = self.budget_change.lock();
            if self.tuning.compress.is_none() {
                return Err(Error::CompressMissing);
            }
            if !self.devices.have_compressed_front() {
                return Err(Error::CompressGone);
            }
            let pages = compress.pages();
            let held = self.devices.allowance.taken();
            if pages.is_some_and(|pages| pages < held) && !self.devices.have_room_behind() {
                return Err(Error::CompressStuck(u64::from(held) * PAGE_BYTES as u64));
            }
            self.demotion.set_compress(compress);
            if let Some(pages) = pages {
                self.devices.allowance.set_most(pages);
            }
            self.settle_stored(self.node_here());
            Ok(())
        })?;
        self.demotion.wish();
        Ok(())
    }

    /// Inside the gate: changes the size if it is left to the engine, and time for that.
    pub(super) fn follow(&self, sizing: &mut Option<Sizing>) {
        let _changing = self.budget_change.lock();
        if self.compress() != Some(Compress::Auto) {
            *sizing = None;
            return;
        }
        let allowance = &self.devices.allowance;
        let sizing = sizing.get_or_insert_with(|| {
            let sizing = Sizing::new(self);
            allowance.set_most(sizing.size.memory());
            sizing
        });
        for node in &self.nodes {
            if let Some(refaults) = &mut node.lock().refaults {
                sizing.refaults.take(refaults);
            }
        }
        let (most, flow) = (allowance.most_of_budget(), self.compressed_flow());
        let lately = flow.since(sizing.flow);
        let seen = u64::from(sizing.refaults.count()) + lately.stored + lately.demoted;
        if !Size::is_due(most, seen) {
            return;
        }
        let (held, prices) = (self.held_compressed(lately), sizing.prices_of_late(self));
        sizing.size.decide(&sizing.refaults, held, most, prices);
        sizing.refaults.clear();
        sizing.flow = flow;
        allowance.set_most(sizing.size.memory());
        // There may be room again.
        self.settle_stored(self.node_here());
    }

    fn held_compressed(&self, Flow { stored, demoted }: Flow) -> Held {
        let held = self.devices.list().filter_map(Device::stored);
        let pages = held.map(|held| held.pages).sum::<u64>();
        let resident: u32 = self.nodes.iter().map(|node| node.lock().resident).sum();
        // A page in RAM may have a copy that is counted: of those on devices some are no other content.
        let swapped = self.devices.usage().used.saturating_sub(resident.into()).max(pages);
        let allowance = &self.devices.allowance;
        let (cells, memory) = (allowance.cells(), allowance.taken());
        let pages = pages.min(u32::MAX.into()) as u32;
        Held { pages, cells, memory, swapped, stored, demoted }
    }

    fn compressed_flow(&self) -> Flow {
        let stored = self.counters.zswpout.load(Ordering::Relaxed);
        Flow { stored, demoted: self.demotion.moved_on() }
    }

    fn read_by_faults(&self) -> [u64; 2] {
        let counters = &self.counters;
        [&counters.pgmajfault, &counters.pswpin].map(|counter| counter.load(Ordering::Relaxed))
    }

    fn read_behind(&self) -> Read {
        let behind = self.devices.list().filter(|device| !device.is_compressed());
        behind.fold(Read::default(), |sum, device| {
            let pages = device.traffic.reads.bytes.load(Ordering::Relaxed) / PAGE_BYTES as u64;
            let busy_ns = sum.busy_ns + device.traffic.reading.ns();
            Read { busy_ns, pages: sum.pages + pages }
        })
    }
}
