//! One request of a swapoff: the slots whose pages are still on them are claimed, read, and checked.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, Slot};
use crate::base::log::Loss;
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::page::PageState;
use crate::state::scratch::Victim;
use crate::swapoff::task::Task;
use crate::sys::PAGE_BYTES;
use crate::sys::request::Pieces;
use std::io;
use std::ops::Range;
use userswap_policy::frames::FrameRun;
use userswap_policy::spans::SlotMap;

impl Core {
    /// Inside the gate: reads slots into as many frames, all of one node. Returns the good pages, owned in Filling, in
    /// the order of their slots; the frames of the others are free again.
    pub(crate) fn read_slots(
        &self,
        task: Task<'_>,
        map: &SlotMap,
        slots: Range<u32>,
        mut frames: FrameSet,
    ) -> Vec<Victim> {
        let Some(run) = frames.runs().first() else { return Vec::new() };
        let node = self.node_of_frame(run.first);
        let claim = |number: u32| {
            let page = map.page_at(number)?;
            let slot = task.device.slot(number);
            let filling = PageState::Filling { slot: Some(slot) };
            self.pages.change(page, PageState::Swapped { slot }, filling).then_some(page)
        };
        let claimed: Vec<Option<PageIndex>> = slots.clone().map(claim).collect();
        let Some(first) = claimed.iter().position(Option::is_some) else {
            self.put_back_frames(node, &mut frames, 0);
            return Vec::new();
        };
        let last = claimed.iter().rposition(Option::is_some).expect("there is a first one");
        self.put_back_frames(node, &mut frames, last as u32 + 1);
        let pieces = self.pieces_from(&frames, first as u32);
        let slot = task.device.slot(slots.start + first as u32);
        let outcome = self.devices.read_patiently(slot, &pieces, node.id);
        let mut victims = Vec::with_capacity(claimed.len());
        for (index, page) in (0..frames.pages()).zip(claimed) {
            let frame = frames.run_at(index, 1).first;
            let slot = task.device.slot(slots.start + index);
            let Some(page) = page else {
                node.lock().put_free(FrameRun { first: frame, count: 1 });
                continue;
            };
            match self.bring(slot, frame, &outcome) {
                Ok(()) => {
                    let checksum = self.devices.checksum(slot);
                    victims.push(Victim { page, slot: Some(slot), frame, checksum });
                }
                Err(loss) => self.lose_page(page, slot, frame, loss),
            }
        }
        self.count_read(slot, victims.len() as u32);
        victims
    }

    /// Sees to it that a request has brought a slot's content into a frame, or one for the slot alone does.
    fn bring(&self, slot: Slot, frame: FrameIndex, outcome: &io::Result<()>) -> Result<(), Loss> {
        if outcome.is_ok() && self.has_arrived(slot, frame) {
            return Ok(());
        }
        count(&self.counters.swap_read_errors, 1);
        let pieces = Pieces::one(self.frame_address(frame), PAGE_BYTES);
        let near = self.node_of_frame(frame).id;
        let outcome = self.devices.read_again_patiently(slot, &pieces, near);
        match outcome {
            Err(_) => Err(Loss::Unreadable),
            Ok(()) if self.has_arrived(slot, frame) => Ok(()),
            Ok(()) => Err(Loss::Other),
        }
    }

    /// The memory of a set's frames from an index on.
    fn pieces_from(&self, frames: &FrameSet, mut index: u32) -> Pieces {
        let mut pieces = Pieces::default();
        while index < frames.pages() {
            let run = frames.run_at(index, frames.pages() - index);
            let bytes = run.count as usize * PAGE_BYTES;
            let pushed = pieces.push(self.frame_address(run.first), bytes);
            assert!(pushed, "a set has fewer runs than a request has pieces");
            index += run.count;
        }
        pieces
    }
}
