//! How much memory compressed pages may take, where that is left to the engine (`policy::compress`).
use crate::device::compress::Compress;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use std::sync::atomic::Ordering;
use userswap_policy::compress::{Held, Refaults, Size};

/// What a page behind is taken to cost until some have come back from there, in nanoseconds, and at most.
const BEHIND_NS: u64 = 100_000;
const BEHIND_NS_MAX: u64 = 20_000_000;
/// Fewer pages say nothing about what one costs.
const TELLING: u64 = 256;

/// The size, and what it is decided by.
pub(super) struct Sizing {
    size: Size,
    refaults: Box<Refaults>,
    /// Pages moved on, when this was last decided.
    demoted: u64,
    /// What the devices behind had done by then.
    work: Work,
    /// What a page there cost when enough were transferred.
    behind_ns: u64,
}

/// What the devices that are not compressed have done.
#[derive(Clone, Copy, Default)]
struct Work {
    busy_ns: u64,
    pages: u64,
}

impl Sizing {
    /// None where the size is not left to the engine.
    pub(super) fn new(core: &Core) -> Option<Self> {
        if core.tuning.compress != Some(Compress::Auto) {
            return None;
        }
        let size = Size::new(core.devices.allowance.most_of_budget());
        core.devices.allowance.set_most(size.memory());
        let (work, behind_ns) = (Work::default(), BEHIND_NS);
        Some(Self { size, refaults: Box::default(), demoted: 0, work, behind_ns })
    }
}

impl Core {
    /// Inside the gate: changes the size if it is time for that.
    pub(super) fn follow(&self, sizing: &mut Sizing) {
        for node in &self.nodes {
            if let Some(refaults) = &mut node.lock().refaults {
                sizing.refaults.take(refaults);
            }
        }
        let most = self.devices.allowance.most_of_budget();
        let demoted = self.counters.swap_demoted.load(Ordering::Relaxed);
        let events = u64::from(sizing.refaults.count()) + demoted - sizing.demoted;
        if !Size::is_due(most, events) {
            return;
        }
        let work = self.work_behind();
        let pages = work.pages.saturating_sub(sizing.work.pages);
        if pages >= TELLING {
            let busy_ns = work.busy_ns.saturating_sub(sizing.work.busy_ns);
            sizing.behind_ns = (busy_ns / pages).min(BEHIND_NS_MAX);
            sizing.work = work;
        }
        sizing.size.decide(&sizing.refaults, self.held_compressed(), most, sizing.behind_ns);
        sizing.refaults.clear();
        sizing.demoted = demoted;
        self.devices.allowance.set_most(sizing.size.memory());
        // There may be room again.
        self.settle_stored(self.node_here());
    }

    fn held_compressed(&self) -> Held {
        let stored = self.devices.list().filter_map(Device::stored);
        let (pages, bytes) = stored.fold((0, 0), |(pages, bytes), stored| {
            (pages + stored.pages, bytes + stored.slab_bytes)
        });
        let of = |pages: u64| pages.min(u32::MAX.into()) as u32;
        Held { pages: of(pages), memory: of(bytes / PAGE_BYTES as u64) }
    }

    fn work_behind(&self) -> Work {
        let behind = self.devices.list().filter(|device| !device.is_compressed());
        behind.fold(Work::default(), |sum, device| {
            let traffic = &device.traffic;
            let bytes =
                [&traffic.reads, &traffic.writes].map(|flow| flow.bytes.load(Ordering::Relaxed));
            Work {
                busy_ns: sum.busy_ns + traffic.busy.ns(),
                pages: sum.pages + bytes.iter().sum::<u64>() / PAGE_BYTES as u64,
            }
        })
    }
}
