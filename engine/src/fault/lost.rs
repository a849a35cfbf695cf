//! Lost pages: their content could not be read from the device, and touching them raises SIGBUS.
//!
//! A page is poisoned while it is owned, so that it cannot be dropped and touched in between; its word says Lost
//! from then on, until a request drops it.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange, Slot};
use crate::base::log::{self, Loss, LostPage};
use crate::device::SlotSpan;
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::page::{PageState, Word};
use userswap_policy::frames::FrameRun;

impl Core {
    /// A page that the caller owns in Filling cannot be read from its slot; the frame for it is free again.
    pub(crate) fn lose_page(&self, page: PageIndex, slot: Slot, frame: FrameIndex, loss: Loss) {
        count(&self.counters.pages_lost, 1);
        let run = FrameRun { first: frame, count: 1 };
        self.node_of_frame(frame).lock().put_free(run);
        let (device, number) = self.devices.describe(self.devices.under(slot));
        let address = self.page_address(page);
        log::lost_page(LostPage { address, device: &device.name, slot: number, loss });
        // What it gave back was not what it got: nothing is put there again.
        count(&self.counters.swap_bad_slots, 1);
        self.devices.mark_bad(SlotSpan { first: slot, count: 1 });
        // The accounting is right before: a thread that touches a poisoned page goes on at once.
        self.poison_owned(page);
    }

    /// A lost page that faults has no poison: a fork took it, or it came too late for the thread that faulted.
    pub(crate) fn poison_again(&self, page: PageIndex, seen: Word) -> Option<Step> {
        if !self.pages.claim(page, seen, PageState::Filling { slot: None }) {
            return None;
        }
        self.poison_owned(page);
        Some(Step::Done)
    }

    fn poison_owned(&self, page: PageIndex) {
        self.poison(page);
        self.publish(page, PageState::Lost);
        self.wake_faults(PageRange { first: page, count: 1 });
    }

    /// Makes a page that the caller owns raise SIGBUS in every thread that touches it.
    pub fn poison(&self, page: PageIndex) {
        // Before Linux 6.6 the fault stays: the program stops there rather than read something wrong.
        let _ = self.uffd.poison(self.page_address(page));
    }
}
