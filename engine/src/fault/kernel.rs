//! The kernel's own readahead, for comparison: `scaling` and `fixed` read a block in the order of the device, `vma`
//! reads in the order of addresses (`policy::kernel`; the setting `swap_ra_policy` reaches them).
//!
//! Their windows are answered here, and their hits told to them; which of the policies is asked is the dispatch in
//! `readahead.rs`. Device order needs the page of a slot: the devices remember which page was written there last, and
//! the page's word says whether that is still true.
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::base::limits::RUN_MAX;
use crate::device::SlotSpan;
use crate::fault::readahead::ReadPlan;
use crate::state::batch::{Batch, SwapEntry};
use crate::state::core::Core;
use crate::state::wants::{Span, Want};
use std::ops::Range;
use userswap_policy::kernel::{Fixed, Scaling};
use userswap_policy::readahead::{Fault, Limits, ReadWindow, Readahead as _};
use userswap_policy::stream::Ahead;

impl Core {
    /// In the order of addresses, within the region.
    pub(crate) fn vma_window(&self, fault: Fault, limits: &Limits) -> ReadWindow {
        let region = self.arena.region_of(fault.page);
        let region = region.unwrap_or(PageRange { first: fault.page, count: 1 });
        let fault = Fault { region_first: region.first, region_end: region.end(), ..fault };
        self.readahead.with_area(region.first, |area| area.on_fault(&fault, limits))
    }

    /// A block on the device, as large as hits have made it.
    pub(crate) fn scaling_window(
        &self,
        fault: Fault,
        target: SwapEntry,
        limits: &Limits,
    ) -> ReadWindow {
        self.block(fault, target, limits, |fault| {
            Scaling(&mut self.readahead.cluster.lock()).on_fault(fault, limits)
        })
    }

    /// The largest block on the device.
    pub(crate) fn fixed_window(
        &self,
        fault: Fault,
        target: SwapEntry,
        limits: &Limits,
    ) -> ReadWindow {
        self.block(fault, target, limits, |fault| {
            Fixed(&mut self.readahead.cluster.lock()).on_fault(fault, limits)
        })
    }

    /// What `ask` answers for a fault on the device of its entry.
    pub(crate) fn block(
        &self,
        fault: Fault,
        target: SwapEntry,
        limits: &Limits,
        ask: impl FnOnce(&Fault) -> ReadWindow,
    ) -> ReadWindow {
        let fault = Fault { slots: self.slots_beside(target), ..fault };
        bounded(ask(&fault), fault.slot, limits)
    }

    /// Slots of the device of an entry, with the header.
    fn slots_beside(&self, entry: SwapEntry) -> u32 {
        let label = self.devices.device_of(entry.slot).label();
        label.map_or(u32::MAX, |label| label.max)
    }

    /// Swapped pages on `numbers` of the target's device, of the aligned block of [`RUN_MAX`] that the target is in.
    pub(crate) fn find_on_slots(&self, target: SwapEntry, numbers: Range<u32>, found: &mut Batch) {
        let device = self.devices.device_of(target.slot);
        let block = device.number_of(target.slot) / RUN_MAX * RUN_MAX;
        let numbers = numbers.start.max(block)..numbers.end.min(block + RUN_MAX);
        let slots = numbers.map(|number| device.slot(number));
        slots.filter_map(|slot| self.entry_on(slot)).for_each(|entry| found.push(entry));
    }

    /// Leaves a block that the fault's own request does not read all of to the server, which finds what is still
    /// to be read.
    pub(crate) fn settle_block(&self, plan: &ReadPlan, claimed: u32, near: NodeId) {
        let is_rest = plan.found > claimed;
        let span = match plan.window {
            ReadWindow::Slots { first, count } | ReadWindow::Block { first, count, .. }
                if is_rest || count > RUN_MAX =>
            {
                let device = self.devices.device_of(plan.target.slot);
                Span::Slots(SlotSpan { first: device.slot(first), count })
            }
            ReadWindow::Pages { first, count } if is_rest => {
                Span::Pages(PageRange { first, count })
            }
            _ => return,
        };
        self.want(Want::new(span, near));
    }

    /// A page that `vma` had read ahead is used.
    pub(crate) fn vma_hit(&self, page: PageIndex, now_ns: u64, limits: &Limits) -> Option<Ahead> {
        let region = self.arena.region_of(page)?;
        self.readahead.with_area(region.first, |area| area.on_hit(page, now_ns, limits))
    }

    /// A page that `scaling` or `fixed` had read ahead is used: one number counts the hits of both.
    pub(crate) fn cluster_hit(&self) {
        self.readahead.cluster.lock().count_hit();
    }

    /// A page without a mark was found in a frame.
    pub(crate) fn vma_lookup(&self, page: PageIndex) {
        if let Some(region) = self.arena.region_of(page) {
            self.readahead.with_area(region.first, |area| area.on_lookup(page));
        }
    }
}

/// A block of slots that a small budget can hold: the part around the page that is a power of two.
fn bounded(window: ReadWindow, slot: u32, limits: &Limits) -> ReadWindow {
    let ReadWindow::Slots { first, count } = window else { return window };
    let most = 1 << limits.ahead_max.max(1).ilog2();
    if count <= most {
        return window;
    }
    let low = first.max(slot - slot % most);
    ReadWindow::Slots { first: low, count: (first + count).min(slot - slot % most + most) - low }
}
