//! Where pages go that were read: into their regions, or on to another device.
//!
//! Pages are mapped in runs, where both pages and frames follow each other. A budget that has not been used
//! up still takes pages from the kernel, which copies the content into them as it allocates them; the frames that
//! were read into serve the next request. Otherwise the frames themselves move to the region.
use crate::base::index::PageRange;
use crate::base::limits::BATCH;
use crate::device::SlotSpan;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Victim};
use crate::swapoff::room::room_in_ram;
use crate::swapoff::task::{Goal, READ_PAGES, READERS};
use crate::transfer::lru_add::Origin;
use userswap_policy::frames::FrameRun;

/// As long as a pool has no more free frames than this, those that were read into are kept for the next
/// request.
const FRAMES_KEPT: u32 = READERS * READ_PAGES;

impl Core {
    /// Maps pages of one node, owned in Filling with their content in held frames, or writes them to another device;
    /// then the slots they had are free, unless they may keep them.
    pub(crate) fn place(&self, goal: Goal, victims: &[Victim], scratch: &mut Scratch) {
        let Some(first) = victims.first() else { return };
        let node = self.node_of_frame(first.frame);
        let keeps_slots = goal == Goal::Fill && !self.devices.is_crowded();
        let maps = match goal {
            Goal::Fill => true,
            Goal::Empty => room_in_ram(node) > 0 || self.devices.room().free <= 0,
        };
        if maps {
            self.map_held(node, victims, keeps_slots);
        } else {
            victims.chunks(BATCH).for_each(|part| self.write_elsewhere(node, part, scratch));
        }
        if !keeps_slots {
            self.free_slots_of(victims);
        }
    }

    fn map_held(&self, node: &Node, victims: &[Victim], keeps_slots: bool) {
        let follows =
            |one: &Victim, next: &Victim| next.page == one.page + 1 && next.frame == one.frame + 1;
        for run in victims.chunk_by(follows) {
            let range = PageRange { first: run[0].page, count: run.len() as u32 };
            let frames = FrameRun { first: run[0].frame, count: range.count };
            let copied = self.copy_to_spare(node, range, frames, FRAMES_KEPT);
            if copied < range.count {
                self.map_in(node, range.after(copied), frames.after(copied));
            }
            let slot = |page| run[(page - range.first) as usize].slot.filter(|_| keeps_slots);
            self.publish_resident(node, range, Origin::Unasked, slot);
        }
    }

    /// Writes pages to another device from their frames, which are free then: no fault has asked for these pages.
    /// What no device takes is mapped.
    fn write_elsewhere(&self, node: &Node, victims: &[Victim], scratch: &mut Scratch) {
        scratch.clear();
        victims.iter().for_each(|victim| scratch.add_held(*victim));
        self.write_at_once(node, scratch);
        for victim in victims {
            let seen = self.pages.load(victim.page);
            let PageState::Cached { frame, slot: Some(slot), .. } = seen.state() else { continue };
            if frame == victim.frame && self.uncache(victim.page, seen, PageState::Swapped { slot })
            {
                node.lock().put_free(FrameRun { first: frame, count: 1 });
            }
        }
        self.announce_freed();
    }

    /// Slots that follow each other are freed together.
    fn free_slots_of(&self, victims: &[Victim]) {
        let number = |victim: &Victim| victim.slot.map_or(0, |slot| slot.0.get());
        // Never from one device to the next: there the header lies between them.
        let follows = |one: &Victim, next: &Victim| number(next) == number(one) + 1;
        for run in victims.chunk_by(follows) {
            if let Some(first) = run[0].slot {
                self.free_slots(SlotSpan { first, count: run.len() as u32 });
            }
        }
    }
}
