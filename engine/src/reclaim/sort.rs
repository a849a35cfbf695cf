//! Unmapped pages are told apart by their content: pages of zeros and clean ones need no write.
//!
//! A page is clean if its checksum is still that of the slot it came from.
use crate::base::checksum::is_zero;
use crate::base::counters::count;
use crate::base::index::Slot;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Victim};
use crate::sys::pages;
use userswap_policy::frames::FrameRun;

impl Core {
    /// Publishes pages of zeros and clean pages; keeps the dirty ones, with their checksums.
    pub(crate) fn sort_out(&self, node: &Node, scratch: &mut Scratch) {
        let mut dirty = 0;
        for index in 0..scratch.count {
            let victim = scratch.victims[index];
            let bytes = pages::bytes(self.frame_address(victim.frame), 1);
            if is_zero(bytes) {
                self.drop_zero(node, victim);
                continue;
            }
            let checksum = self.checksums.of(bytes);
            match victim.slot {
                Some(slot)
                    if self.devices.checksum(slot) == checksum
                        && !self.devices.is_leaving(slot)
                        && !self.promotes(slot) =>
                {
                    count(&self.counters.swpout_clean, 1);
                    self.cache(node, victim, slot);
                }
                old => {
                    if let Some(slot) = old {
                        self.free_slot(slot);
                    }
                    scratch.victims[dirty] = Victim { checksum, slot: None, ..victim };
                    dirty += 1;
                }
            }
        }
        scratch.count = dirty;
    }

    /// Whether a clean page is to leave as one that has changed, to a device in front of its own.
    fn promotes(&self, slot: Slot) -> bool {
        let promotes = self.devices.promotes(slot);
        count(&self.counters.swap_promoted, promotes.into());
        promotes
    }

    /// A page of zeros needs neither frame nor slot.
    fn drop_zero(&self, node: &Node, victim: Victim) {
        count(&self.counters.swpout_zero, 1);
        self.publish(victim.page, PageState::Untouched);
        node.lock().put_free(FrameRun { first: victim.frame, count: 1 });
        if let Some(slot) = victim.slot {
            self.free_slot(slot);
        }
        self.announce_freed();
    }
}
