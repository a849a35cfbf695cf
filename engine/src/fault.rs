//! One fault: from a page's word to a mapped page. Both deliveries, by message and by signal, come here.
use crate::arena::PageRange;
use crate::arrival::Arrival;
use crate::core::{Core, frame_flag};
use crate::counters::count;
use crate::device::{SlotEnd, SlotSpan};
use crate::jobs::ReadJob;
use crate::node::{Asker, Grant, Node};
use crate::page::{FrameIndex, PageIndex, PageState, Slot, Word};
use crate::sys::{PAGE_BYTES, pages};
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;
use userswap_policy::readahead::Hint;
use userswap_policy::stream::Window;

/// What became of a fault.
#[derive(Debug)]
pub enum Step {
    /// The page is there, or its fault was told to try again.
    Done,
    /// Somebody else owns the page; the owner's publication wakes the fault.
    Busy,
    /// The caller reads this, at once or with others in flight, and finishes it then.
    Read(ReadJob),
    /// The page belongs to no region.
    Foreign,
}

impl Core {
    /// Serves a fault on `page` by a CPU of `near`; safe in a signal handler.
    pub fn handle_fault(&self, page: PageIndex, near: &Node) -> Step {
        count(&self.counters.pgfault, 1);
        loop {
            let seen = self.pages.load(page);
            let step = match seen.state() {
                PageState::Untouched => self.fill_with_zeros(page, near),
                PageState::Filling { .. } | PageState::Leaving { .. } => {
                    count(&self.counters.fault_busy, 1);
                    self.pages.note_waiter(page).then_some(Step::Busy)
                }
                PageState::Resident { .. } => self.confirm_resident(page, seen),
                PageState::Cached { .. } => self.map_cached(page, seen, near),
                PageState::Writing { frame, slot } => {
                    self.take_from_write(page, seen, (frame, slot))
                }
                PageState::Swapped { .. } => self.start_read(page, near).map(Step::Read),
                PageState::Lost => self.poison_again(page, seen),
            };
            if let Some(step) = step {
                return step;
            }
        }
    }

    /// Makes a page that the caller owns raise SIGBUS for who touches it.
    pub fn poison(&self, page: PageIndex) {
        // Before Linux 6.6 the fault stays: the program stops there rather than read something wrong.
        let _ = self.uffd.poison(self.page_address(page));
    }

    /// A lost page that faults has no poison (a fork took it, or it came too late for who faulted).
    fn poison_again(&self, page: PageIndex, seen: Word) -> Option<Step> {
        if !self.pages.claim(page, seen, PageState::Filling { slot: None }) {
            return None;
        }
        self.poison(page);
        self.publish(page, PageState::Lost);
        self.wake_faults(PageRange { first: page, count: 1 });
        Some(Step::Done)
    }

    /// The word says that the page is there: a message older than its answer, or the program took the
    /// page away past us, by a raw madvise; then it gets zeros, as it would from the kernel.
    fn confirm_resident(&self, page: PageIndex, seen: Word) -> Option<Step> {
        let PageState::Resident { slot, pins, node } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Leaving { slot }) {
            return None;
        }
        // Owned: nobody can move it away between the look and the copy, which fails where a page is.
        let _was_missing =
            self.uffd.copy(self.page_address(page), self.zeros_address(), PAGE_BYTES);
        self.publish(page, PageState::Resident { slot, pins, node });
        self.node(node).lock().enlist(&self.pages, page, 1);
        self.wake_faults(PageRange { first: page, count: 1 });
        Some(Step::Done)
    }

    /// First touch. Sequential ones are served in growing runs.
    fn fill_with_zeros(&self, page: PageIndex, near: &Node) -> Option<Step> {
        let Some(region) = self.arena.region_of(page) else { return Some(Step::Foreign) };
        // Zeros need no reading ahead, and no window that goes another way.
        let fault = self.fault_without_slot(page, near.id);
        let window = self.stream_window(&fault, &self.zero_limits());
        let is_run = window.step == 1;
        let behind = if is_run { window.count - window.place_of(page) } else { 1 };
        let wanted = behind.min(region.end() - page);
        let claimed = self.claim_run(page, wanted, |state| state == PageState::Untouched)?;
        // The program goes on after this one; the rest is mapped in as few calls as possible.
        let (node, grant) = self.obtain(near, claimed.count.min(crate::core::RUN_MAX));
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
        self.publish_resident(node, range, Arrival::New, |_| None);
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

    /// Second chance, or the use of a page that was read ahead.
    fn map_cached(&self, page: PageIndex, seen: Word, near: &Node) -> Option<Step> {
        let PageState::Cached { frame, slot, marker } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Filling { slot }) {
            return None;
        }
        count(&self.counters.pgfault_cached, 1);
        let node = self.node_of_frame(frame);
        let (arrival, more) = if marker {
            self.on_marked(page, near.id);
            (Arrival::New, 0)
        } else {
            self.on_lookup(page);
            self.claim_cached_behind(page, frame, node)
        };
        let range = PageRange { first: page, count: 1 + more };
        let slots = self.slots_of(range);
        self.map_in(node, range, FrameRun { first: frame, count: range.count });
        let keep = !self.devices.is_crowded();
        let slot = |page: PageIndex| slots[(page - range.first) as usize];
        self.publish_resident(node, range, arrival, |page| slot(page).filter(|_| keep));
        if !keep {
            (range.first..range.end()).filter_map(slot).for_each(|slot| self.free_slot(slot));
        }
        Some(Step::Done)
    }

    /// A sequential program that comes back for pages on their second chance gets them in runs. That it does
    /// is no sign that they are used again: they may have been read ahead and not used yet.
    fn claim_cached_behind(
        &self,
        page: PageIndex,
        frame: FrameIndex,
        node: &Node,
    ) -> (Arrival, u32) {
        let fault = self.fault_without_slot(page, node.id);
        let window = self.stream_window(&fault, &self.limits());
        if window.count == 1 || fault.hint == Hint::Random {
            return (Arrival::SecondChance, 0);
        }
        if window.step != 1 {
            return (Arrival::New, 0);
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
        let end = (window.count - window.place_of(page)).min(self.pages.pages() - page);
        let claimed = (1..end).take_while(|place| follows(*place)).count() as u32;
        self.streams.lock().on_served(page, Window::run(page, claimed + 1), 0);
        (Arrival::New, claimed)
    }

    fn slots_of(&self, range: PageRange) -> [Option<Slot>; crate::core::RUN_MAX as usize] {
        let mut slots = [None; crate::core::RUN_MAX as usize];
        for (place, slot) in slots[..range.count as usize].iter_mut().enumerate() {
            if let PageState::Filling { slot: kept } = self.pages.state(range.first + place as u32)
            {
                *slot = kept;
            }
        }
        slots
    }

    /// The device still reads from the frame: the page gets a copy, the frame stays with the write.
    fn take_from_write(
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
        self.publish_resident(node, range, Arrival::SecondChance, |_| None);
        Some(Step::Done)
    }

    /// The page of a frame under write has gone: whoever comes last, this call or the write's completion,
    /// frees frame and slot.
    pub fn orphan(&self, frame: FrameIndex, slot: Slot) {
        // AcqRel pairs with the swap in `finish_page`: exactly one of the two sees the other's mark.
        let before = self.frame_flags[frame as usize].swap(frame_flag::ORPHAN, Ordering::AcqRel);
        assert_ne!(before, frame_flag::ORPHAN, "a frame is orphaned once");
        match before {
            frame_flag::FINISHED => self.free_orphan(frame, slot, SlotEnd::Free),
            frame_flag::FAILED => self.free_orphan(frame, slot, SlotEnd::Bad),
            _ => {}
        }
    }

    /// Frees what a write left behind that nobody needs.
    pub fn free_orphan(&self, frame: FrameIndex, slot: Slot, end: SlotEnd) {
        self.frame_flags[frame as usize].store(frame_flag::IDLE, Ordering::Release);
        self.node_of_frame(frame).lock().put_free(FrameRun { first: frame, count: 1 });
        let span = SlotSpan { first: slot, count: 1 };
        match end {
            SlotEnd::Free => self.devices.free(span),
            SlotEnd::Bad => self.devices.mark_bad(span),
        }
        self.announce_freed();
    }
}
