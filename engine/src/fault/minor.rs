//! A fault on a page whose content is still in a frame: second chance, first use of a page read ahead, write under way.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange, Slot};
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::node::{Grant, Node};
use crate::state::page::{PageState, Word};
use crate::sys::pages;
use crate::transfer::lru_add::Origin;
use userswap_policy::frames::FrameRun;
use userswap_policy::readahead::Hint;
use userswap_policy::stream::Window;

impl Core {
    /// Second chance, or the use of a page that was read ahead.
    pub(crate) fn map_cached(&self, page: PageIndex, seen: Word, near: &Node) -> Option<Step> {
        let PageState::Cached { frame, slot, marker } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Filling { slot }) {
            return None;
        }
        count(&self.counters.pgfault_cached, 1);
        let node = self.node_of_frame(frame);
        let (origin, more) = if marker {
            self.on_marked(page, near.id);
            (Origin::New, 0)
        } else {
            self.on_lookup(page);
            self.claim_cached_after(page, frame, node)
        };
        let range = PageRange { first: page, count: 1 + more };
        let slots = self.slots_of(range);
        self.map_in(node, range, FrameRun { first: frame, count: range.count });
        let keep = !self.devices.is_crowded();
        let slot = |page: PageIndex| slots[(page - range.first) as usize];
        self.publish_resident(node, range, origin, |page| slot(page).filter(|_| keep));
        if !keep {
            (range.first..range.end()).filter_map(slot).for_each(|slot| self.free_slot(slot));
        }
        Some(Step::Done)
    }

    /// A sequential program that comes back for pages on their second chance gets them in runs. That it does
    /// is no sign that they are used again: they may have been read ahead and not used yet.
    fn claim_cached_after(&self, page: PageIndex, frame: FrameIndex, node: &Node) -> (Origin, u32) {
        let fault = self.fault_without_slot(page, node.id);
        let window = self.stream_window(&fault, &self.limits());
        if window.count == 1 || fault.hint == Hint::Random {
            return (Origin::SecondChance, 0);
        }
        if window.step != 1 {
            return (Origin::New, 0);
        }
        let follows = |place: u32| {
            let seen = self.pages.load(page + place);
            match seen.state() {
                PageState::Cached { frame: next, slot, marker: false }
                    if next == frame + place && node.owns(next) =>
                {
                    self.pages.claim(page + place, seen, PageState::Filling { slot })
                }
                _ => false,
            }
        };
        let end = (window.count - window.index_of(page)).min(self.pages.pages() - page);
        let claimed = (1..end).take_while(|place| follows(*place)).count() as u32;
        self.streams.lock().on_served(page, Window::run(page, claimed + 1), 0);
        (Origin::New, claimed)
    }

    fn slots_of(&self, range: PageRange) -> [Option<Slot>; crate::base::limits::RUN_MAX as usize] {
        let mut slots = [None; crate::base::limits::RUN_MAX as usize];
        for (place, slot) in slots[..range.count as usize].iter_mut().enumerate() {
            if let PageState::Filling { slot: kept } = self.pages.state(range.first + place as u32)
            {
                *slot = kept;
            }
        }
        slots
    }

    /// The device still reads from the frame: the page gets a copy, the frame stays with the write.
    pub(crate) fn take_from_write(
        &self,
        page: PageIndex,
        seen: Word,
        held: (FrameIndex, Slot),
    ) -> Option<Step> {
        let (frame, slot) = held;
        if !self.pages.claim(page, seen, PageState::Filling { slot: None }) {
            return None;
        }
        count(&self.counters.pgfault_cached, 1);
        self.on_lookup(page);
        let (node, grant) = self.obtain(self.node_of_frame(frame), 1);
        match grant {
            Grant::Spare(_) => self.map_copy(node, page, frame),
            Grant::Frames(copy) => {
                pages::copy(self.frame_address(copy.first), self.frame_address(frame), 1);
                self.map_in(node, PageRange { first: page, count: 1 }, copy);
            }
        }
        self.orphan(frame, slot);
        let range = PageRange { first: page, count: 1 };
        self.publish_resident(node, range, Origin::SecondChance, |_| None);
        Some(Step::Done)
    }
}
