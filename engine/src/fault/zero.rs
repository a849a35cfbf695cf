//! First touch: pages of zeros, in growing runs when faults follow each other.
//!
//! The run is the stream's window (`policy::stream`), as for reads. What the fault itself does not need is filled
//! only while the node has pages to spare; nothing is reclaimed for it.
use crate::base::counters::count;
use crate::base::index::{PageIndex, PageRange};
use crate::base::limits::{RUN_MAX, ZERO_RUN_MAX};
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use crate::state::page::PageState;
use crate::transfer::lru_add::Origin;
use std::ops::Range;
use userswap_policy::readahead::Limits;
use userswap_policy::stream::Window;

/// Pages of the first window of a stream of first touches: twice that of reads, as a wrong guess wastes no read.
const ZERO_FIRST: u32 = 4;

impl Core {
    /// First touch. Sequential ones are served in growing runs.
    pub(crate) fn fill_with_zeros(&self, page: PageIndex, near: &Node) -> Option<Step> {
        let Some(region) = self.arena.region_of(page) else { return Some(Step::Foreign) };
        // Zeros need no reading ahead, and no window that goes another way.
        let fault = self.fault_without_slot(page, near.id);
        let window = self.stream_window(&fault, &self.zero_limits());
        let is_run = window.step == 1;
        let after = if is_run { window.count - window.index_of(page) } else { 1 };
        let claimed = self.claim_untouched(page, after.min(region.end() - page))?;
        // The program goes on after this one; the rest is mapped in as few calls as possible.
        let (node, grant) = self.obtain(near, claimed.count.min(RUN_MAX));
        let first = grant.pages();
        let mapped = self.map_zeroed(node, PageRange { first: page, count: first }, grant);
        let rest = PageRange { first: page + mapped, count: claimed.count - mapped };
        if mapped < first {
            count(&self.counters.pgzero, u64::from(mapped));
            return Some(self.give_up_fault(page, rest));
        }
        let done = first + self.fill_ahead(node, rest);
        let before = if is_run { window.first.max(region.first)..page } else { page..page };
        let skipped = self.fill_skipped(node, before);
        count(&self.counters.pgzero, u64::from(done + skipped));
        self.streams.lock().on_served(page, Window::run(page, done), 0);
        Some(Step::Done)
    }

    /// Pages that the program has passed over for the moment; returns how many were filled.
    fn fill_skipped(&self, node: &Node, mut pages: Range<PageIndex>) -> u32 {
        let mut filled = 0;
        while let Some(first) = pages.find(|page| self.pages.state(*page) == PageState::Untouched) {
            let Some(claimed) = self.claim_untouched(first, pages.end - first) else { continue };
            let done = self.fill_ahead(node, claimed);
            filled += done;
            if done < claimed.count {
                break;
            }
            pages.start = claimed.end();
        }
        filled
    }

    /// Fills claimed pages as far as the node has pages to spare, and gives up the others; returns how many
    /// were filled.
    fn fill_ahead(&self, node: &Node, claimed: PageRange) -> u32 {
        let mut done = 0;
        while done < claimed.count {
            let rest = claimed.after(done);
            let grant = node.lock().grant(rest.count, Asker::ZerosAhead, &self.pages);
            let Some(grant) = grant else {
                self.give_up(rest);
                break;
            };
            let range = PageRange { first: rest.first, count: grant.pages() };
            let mapped = self.map_zeroed(node, range, grant);
            done += mapped;
            if mapped < range.count {
                let first = claimed.first + done;
                self.give_up(PageRange { first, count: claimed.count - done });
                break;
            }
        }
        done
    }

    /// Maps zeros up to the first page whose mapping has gone; returns how many pages. The others are still owned.
    fn map_zeroed(&self, node: &Node, range: PageRange, grant: Grant) -> u32 {
        let count = self.map_zeros(node, range, grant);
        if count > 0 {
            let mapped = PageRange { first: range.first, count };
            self.publish_resident(node, mapped, Origin::New, |_| None);
        }
        count
    }

    /// The mapping of the fault's page, or of one after it, has gone: the fault's message is older than what is mapped
    /// there by now. Its thread looks again.
    fn give_up_fault(&self, page: PageIndex, rest: PageRange) -> Step {
        self.give_up(rest);
        self.announce_freed();
        self.wake_faults(PageRange { first: page, count: 1 });
        Step::Done
    }

    /// Claims untouched pages that follow each other, at most `most`; None when the first is not to be had.
    fn claim_untouched(&self, first: PageIndex, most: u32) -> Option<PageRange> {
        let claims = |page: &PageIndex| {
            let seen = self.pages.load(*page);
            seen.state() == PageState::Untouched
                && self.pages.claim(*page, seen, PageState::Filling { slot: None })
        };
        let claimed = (first..first + most).take_while(claims).count() as u32;
        (claimed > 0).then_some(PageRange { first, count: claimed })
    }

    /// Claimed pages that had no content are untouched again.
    fn give_up(&self, range: PageRange) {
        for page in range.first..range.end() {
            self.publish(page, PageState::Untouched);
        }
    }

    /// How far first touches may run ahead of the program.
    fn zero_limits(&self) -> Limits {
        let run_max = ZERO_RUN_MAX.min(self.readahead.room());
        Limits { page_cluster: 0, run_first: ZERO_FIRST, run_max, ahead_max: 0 }
    }
}
