//! What threads wait for, and waking them: a page's next state, frames and slots that became free, a reclaimer that
//! is needed.
use crate::base::choice::FaultMode;
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::device::SlotSpan;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{PageState, Waiters};
use crate::sys::PAGE_BYTES;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// How long a thread that must have a page's content, or a frame, waits before it looks again.
const WAIT_NS: u64 = 1_000_000;

/// Frames and slots that threads wait for.
#[derive(Debug, Default)]
pub struct Shortage {
    /// Counts frames becoming free; slept on by threads that find none.
    pub freed: AtomicU32,
    /// Nodes whose reclaimers are not woken, see [`Node::hopeless`].
    pub hopeless: AtomicU32,
    /// No device had room the last time one was asked.
    pub devices_full: AtomicBool,
    /// One more than `freed` was when nothing was found that could leave; 0 as long as that has not been.
    pub nothing_left_after: AtomicU64,
    /// The warning that the budget is exceeded was given.
    pub warned_full: AtomicBool,
}

impl Core {
    /// Ends the ownership of a page with its next state, and wakes the threads that waited for it.
    pub fn publish(&self, page: PageIndex, state: PageState) {
        if self.pages.publish(page, state) == Waiters::Some {
            self.wake_faults(PageRange { first: page, count: 1 });
        }
    }

    /// Lets faults in a range be tried again.
    pub(crate) fn wake_faults(&self, range: PageRange) {
        if self.tuning.fault == FaultMode::Thread {
            self.uffd.wake(self.page_address(range.first), range.count as usize * PAGE_BYTES);
        }
    }

    /// Frees consecutive slots of one device.
    pub(crate) fn free_slots(&self, span: SlotSpan) {
        // The device of a swapoff takes no other pages instead.
        let gives_room = !self.devices.is_leaving(span.first);
        self.devices.free(span);
        if gives_room {
            self.shortage.devices_full.store(false, Ordering::Relaxed);
            self.note_progress();
        }
    }

    /// Frees one slot.
    pub(crate) fn free_slot(&self, slot: Slot) {
        self.free_slots(SlotSpan { first: slot, count: 1 });
    }

    /// Tells the threads that wait for frames that some may have become free.
    pub(crate) fn announce_freed(&self) {
        self.note_progress();
        self.shortage.freed.fetch_add(1, Ordering::Release);
        crate::sys::futex::wake_all(&self.shortage.freed);
    }

    /// Waits until frames may have become free since the counter said `seen`, for 1 ms at most.
    pub(crate) fn wait_for_freed(&self, seen: u32) {
        crate::sys::futex::wait_for(&self.shortage.freed, seen, WAIT_NS);
    }

    /// Something happened that may let reclaim succeed: hopeless nodes get another chance.
    pub(crate) fn note_progress(&self) {
        // Almost always there is none: a load is all that this costs.
        if self.shortage.hopeless.load(Ordering::Relaxed) == 0 {
            return;
        }
        for node in &self.nodes {
            if node.hopeless.swap(false, Ordering::AcqRel) {
                self.shortage.hopeless.fetch_sub(1, Ordering::AcqRel);
                node.lock().health.on_progress();
                self.wake_reclaim(node);
            }
        }
    }

    /// Wakes a node's reclaimer if it sleeps, unless that is hopeless.
    pub fn wake_reclaim(&self, node: &Node) {
        if node.hopeless.load(Ordering::Relaxed) {
            return;
        }
        if !node.reclaim_awake.swap(true, Ordering::AcqRel) {
            crate::base::counters::count(&self.counters.pageoutrun, 1);
            node.reclaim_wanted.signal();
        }
    }
}
