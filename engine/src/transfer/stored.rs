//! The memory of compressed pages is charged to the budget, after the fact.
//!
//! What compressed pages take when pages are written is a debt of the node that wrote, which its reclaimer repays; so
//! nothing has to wait for memory in order to free some. How far that can go is a part of the budget.
use crate::base::counters::count;
use crate::base::index::Slot;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use std::sync::atomic::Ordering;

impl Core {
    /// Inside the gate: charges to a node what the memory of compressed pages has grown by, or gives back what is not
    /// needed any more.
    pub(crate) fn settle_stored(&self, node: &Node) {
        if !self.devices.trim_compressed() {
            return;
        }
        // Held to the end: what one thread is about to charge another would find missing.
        let allowance = &self.devices.allowance;
        let settling = allowance.settling.lock();
        let change = allowance.take_unsettled();
        if change > 0 {
            node.lock().on_stored(change as u32);
        }
        let mut left = change.min(0).unsigned_abs() as u32;
        for node in std::iter::once(node).chain(&self.nodes) {
            left -= node.lock().on_unstored(left);
        }
        drop(settling);
        assert_eq!(left, 0, "no more memory is given back than was charged");
        match change {
            0 => {}
            1.. => self.wake_reclaim(node),
            _ => self.announce_freed(),
        }
    }

    /// Counts pages that were read from the device of this slot.
    pub(crate) fn count_read(&self, slot: Slot, pages: u32) {
        count(&self.counters.pswpin, pages.into());
        if self.devices.device_of(slot).is_compressed() {
            count(&self.counters.zswpin, pages.into());
        }
    }

    /// Counts pages that were written to the device of this slot.
    pub(crate) fn count_written(&self, slot: Slot, pages: u32) {
        count(&self.counters.pswpout, pages.into());
        if self.devices.device_of(slot).is_compressed() {
            count(&self.counters.zswpout, pages.into());
            let counted = self.counters.zswpout.load(Ordering::Relaxed);
            self.demotion.tell(counted, pages.into());
        } else if self.devices.list().any(Device::is_compressed) {
            count(&self.counters.zswp_rejected, pages.into());
        }
    }

    /// Tells compressed devices what the budget is.
    pub(crate) fn limit_stored(&self) {
        let budget = self.budget_pages();
        self.devices.allowance.set_budget(budget);
    }
}

impl NodeState {
    /// So many pages of memory more hold compressed pages. Nobody waits for them: what is not spare is a debt.
    fn on_stored(&mut self, pages: u32) {
        let from_spare = self.spare.min(pages);
        self.spare -= from_spare;
        self.debt += pages - from_spare;
        self.stored += pages;
    }

    /// Up to so many of them were given back to the kernel; returns how many were this node's.
    fn on_unstored(&mut self, pages: u32) -> u32 {
        let given = self.stored.min(pages);
        self.stored -= given;
        self.on_released(given);
        given
    }
}
