//! A fault on a page whose content is still in a frame: nothing has to be read.
//!
//! The page is on its second chance, or was read ahead and is used for the first time, and its frame is mapped; or
//! its write is under way, and it gets a copy of the frame.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange, Slot};
use crate::base::limits::RUN_MAX;
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
    /// Second chance, or the use of a page that was read ahead; None if its word has changed.
    pub(crate) fn map_cached(&self, page: PageIndex, seen: Word, near: &Node) -> Option<Step> {
        let PageState::Cached { frame, slot, marker } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Filling { slot }) {
            return None;
        }
        count(&self.counters.pgfault_cached, 1);
        let node = self.node_of_frame(frame);
        let (origin, more) = if marker {
            self.on_marked(page, slot, near.id);
            (Origin::New, 0)
        } else {
            self.on_lookup(page);
            self.claim_cached_after(page, frame, node)
        };
        let range = PageRange { first: page, count: 1 + more };
        let slots = self.slots_of(range);
        self.map_in(node, range, FrameRun { first: frame, count: range.count });
        let slot = |page: PageIndex| slots[(page - range.first) as usize];
        let keep = slots.iter().flatten().all(|slot| self.devices.keeps_copy(*slot));
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
        let follows = |distance: u32| {
            let seen = self.pages.load(page + distance);
            match seen.state() {
                PageState::Cached { frame: next, slot, marker: false }
                    if next == frame + distance && node.owns(next) =>
                {
                    self.pages.claim(page + distance, seen, PageState::Filling { slot })
                }
                _ => false,
            }
        };
        let end = (window.count - window.index_of(page)).min(self.pages.pages() - page);
        let claimed = (1..end).take_while(|distance| follows(*distance)).count() as u32;
        self.streams.lock().on_served(page, Window::run(page, claimed + 1), 0);
        (Origin::New, claimed)
    }

    /// The slots of pages that the caller owns in Filling, at most [`RUN_MAX`], in their order.
    fn slots_of(&self, range: PageRange) -> [Option<Slot>; RUN_MAX as usize] {
        let mut slots = [None; RUN_MAX as usize];
        for (slot, page) in slots.iter_mut().zip(range.first..range.end()) {
            if let PageState::Filling { slot: kept } = self.pages.state(page) {
                *slot = kept;
            }
        }
        slots
    }

    /// The device still reads from the frame: the page gets a copy, the frame stays with the write. None if the
    /// page's word has changed.
    pub(crate) fn copy_from_write(&self, page: PageIndex, seen: Word) -> Option<Step> {
        let PageState::Writing { frame, slot } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Filling { slot: None }) {
            return None;
        }
        count(&self.counters.pgfault_cached, 1);
        self.on_lookup(page);
        let (node, grant) = self.obtain(self.node_of_frame(frame), 1);
        let range = PageRange { first: page, count: 1 };
        match grant {
            Grant::Spare(_) => self.map_copy(node, page, frame),
            Grant::Frames(copy) => {
                self.replace_memory(copy);
                pages::copy(self.frame_address(copy.first), self.frame_address(frame), 1);
                self.map_in(node, range, copy);
            }
        }
        self.orphan(frame, slot);
        self.publish_resident(node, range, Origin::SecondChance, |_| None);
        Some(Step::Done)
    }
}
