//! First touch: pages of zeros, in growing runs when faults follow each other.
use crate::base::counters::count;
use crate::base::index::{PageIndex, PageRange};
use crate::base::limits::ZERO_RUN_MAX;
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use crate::state::page::PageState;
use crate::sys::pages;
use crate::transfer::lru_add::Origin;
use userswap_policy::readahead::Limits;
use userswap_policy::stream::Window;

/// As [`READ_FIRST`], for first touches, where nothing is read.
const ZERO_FIRST: u32 = 4;

impl Core {
    /// First touch. Sequential ones are served in growing runs.
    pub(crate) fn fill_with_zeros(&self, page: PageIndex, near: &Node) -> Option<Step> {
        let Some(region) = self.arena.region_of(page) else { return Some(Step::Foreign) };
        // Zeros need no reading ahead, and no window that goes another way.
        let fault = self.fault_without_slot(page, near.id);
        let window = self.stream_window(&fault, &self.zero_limits());
        let is_run = window.step == 1;
        let behind = if is_run { window.count - window.index_of(page) } else { 1 };
        let wanted = behind.min(region.end() - page);
        let claimed = self.claim_run(page, wanted, |state| state == PageState::Untouched)?;
        // The program goes on after this one; the rest is mapped in as few calls as possible.
        let (node, grant) = self.obtain(near, claimed.count.min(crate::base::limits::RUN_MAX));
        let mut done = grant.pages();
        self.map_zeroed(node, PageRange { first: page, count: done }, grant);
        while done < claimed.count {
            let rest = PageRange { first: page + done, count: claimed.count - done };
            let grant = node.lock().grant(rest.count, Asker::ZerosAhead, &self.pages);
            let Some(grant) = grant else {
                self.give_up(rest);
                break;
            };
            let range = PageRange { first: rest.first, count: grant.pages() };
            self.map_zeroed(node, range, grant);
            done += range.count;
        }
        let before = if is_run { window.first.max(region.first)..page } else { page..page };
        let skipped = self.fill_skipped(node, before);
        count(&self.counters.pgzero, u64::from(done + skipped));
        self.streams.lock().on_served(page, Window::run(page, done), 0);
        Some(Step::Done)
    }

    /// Pages that the program has passed over for the moment; returns how many.
    fn fill_skipped(&self, node: &Node, mut pages: std::ops::Range<PageIndex>) -> u32 {
        let mut filled = 0;
        while let Some(first) = pages.find(|page| self.pages.state(*page) == PageState::Untouched) {
            let is_untouched = |state| state == PageState::Untouched;
            let Some(claimed) = self.claim_run(first, pages.end - first, is_untouched) else {
                continue;
            };
            let grant = node.lock().grant(claimed.count, Asker::ZerosAhead, &self.pages);
            let count = grant.map_or(0, Grant::pages);
            let range = PageRange { first, count };
            grant.into_iter().for_each(|grant| self.map_zeroed(node, range, grant));
            self.give_up(PageRange { first: range.end(), count: claimed.count - count });
            if count == 0 {
                break;
            }
            filled += count;
            pages.start = range.end();
        }
        filled
    }

    fn map_zeroed(&self, node: &Node, range: PageRange, grant: Grant) {
        match grant {
            Grant::Frames(frames) => {
                pages::zero(self.frame_address(frames.first), frames.count);
                self.map_in(node, range, frames);
            }
            Grant::Spare(_) => self.map_zeros(node, range),
        }
        self.publish_resident(node, range, Origin::New, |_| None);
    }

    /// Claims consecutive pages in a wanted state, the first of which must succeed.
    fn claim_run(
        &self,
        first: PageIndex,
        most: u32,
        wanted: impl Fn(PageState) -> bool,
    ) -> Option<PageRange> {
        let claimed = (0..most)
            .take_while(|place| {
                let seen = self.pages.load(first + place);
                let state = seen.state();
                wanted(state)
                    && self.pages.claim(first + place, seen, PageState::Filling { slot: None })
            })
            .count() as u32;
        (claimed > 0).then_some(PageRange { first, count: claimed })
    }

    /// Claimed pages that had no content go back.
    fn give_up(&self, range: PageRange) {
        for page in range.first..range.end() {
            self.publish(page, PageState::Untouched);
        }
    }

    /// How far first touches may run ahead of the program.
    pub(crate) fn zero_limits(&self) -> Limits {
        let room = self.window_room();
        let run_max = ZERO_RUN_MAX.min(room);
        Limits { page_cluster: 0, run_first: ZERO_FIRST, run_max, ahead_max: 0 }
    }
}
