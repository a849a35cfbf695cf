//! Reading pages back: claiming a window, the read, and mapping what was read.
use crate::arena::PageRange;
use crate::core::{Core, RUN_MAX};
use crate::counters::count;
use crate::device::SlotSpan;
use crate::node::{Asker, FrameSet, Node};
use crate::page::{FrameIndex, NodeId, PageIndex, PageState, Slot};
use crate::sys::PAGE_BYTES;
use crate::sys::pages;
use crate::sys::request::{Direction, Pieces};
use std::io;
use std::num::NonZeroU32;
use userswap_policy::frames::FrameRun;
use userswap_policy::stream::{Ahead, Window};

/// Consecutive pages and consecutive slots: one read, into a few runs of frames.
#[derive(Debug)]
#[must_use = "its pages are owned until it is finished"]
pub struct ReadJob {
    pages: PageRange,
    frames: FrameSet,
    slot: Slot,
    node: NodeId,
    marker: Option<PageIndex>,
}

impl ReadJob {
    /// The first slot.
    pub fn slot(&self) -> Slot {
        self.slot
    }

    /// The node whose frames it fills.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// Number of pages.
    pub fn count(&self) -> u32 {
        self.pages.count
    }

    fn slot_of(&self, page: PageIndex) -> Slot {
        let number = self.slot.0.get() + (page - self.pages.first);
        Slot(NonZeroU32::new(number).expect("slots follow a slot"))
    }
}

/// Slots that follow `slot` by `distance` pages, or precede it.
fn shifted(slot: Slot, distance: i64) -> Option<Slot> {
    u32::try_from(i64::from(slot.0.get()) + distance).ok().and_then(NonZeroU32::new).map(Slot)
}

impl Core {
    /// Claims what a fault on a swapped page should read; None if its word has changed.
    pub fn start_read(&self, page: PageIndex, near: &Node) -> Option<ReadJob> {
        let window = self.streams.lock().on_fault(page, self.limits());
        let mut frames = FrameSet::new();
        let (node, first) = self.obtain(near, window.count);
        frames.push(self.frames_of(node, first));
        self.fill_set(node, &mut frames, window.count, Asker::Readahead);
        let (range, slot) = self.claim_for(node, page, window, &mut frames)?;
        count(&self.counters.pgmajfault, 1);
        let ahead = window.ahead.filter(|ahead| ahead.first == range.end());
        let served = Window { first: range.first, count: range.count, ahead };
        self.streams.lock().on_served(page, served);
        if let Some(ahead) = ahead {
            self.want_ahead(ahead, near.id);
        }
        Some(ReadJob { pages: range, frames, slot, node: node.id, marker: None })
    }

    /// Claims pages for the frames at hand; frames that find no page are free again.
    fn claim_for(
        &self,
        node: &Node,
        page: PageIndex,
        window: Window,
        frames: &mut FrameSet,
    ) -> Option<(PageRange, Slot)> {
        let claimed = self.claim_swapped(page, window, frames.pages());
        let used = claimed.map_or(0, |(range, _)| range.count);
        if used < frames.pages() {
            let rest = frames.split_off(used);
            let mut state = node.lock();
            for run in rest.runs() {
                state.put_free(*run);
            }
        }
        claimed
    }

    /// Claims the faulting page and, within the window, neighbours whose slots are neighbours too.
    fn claim_swapped(
        &self,
        page: PageIndex,
        window: Window,
        most: u32,
    ) -> Option<(PageRange, Slot)> {
        let seen = self.pages.load(page);
        let PageState::Swapped { slot } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Filling { slot: Some(slot) }) {
            return None;
        }
        let end = (window.first + window.count).min(self.pages.pages());
        let up = self.claim_neighbours(page, slot, (1, i64::from(end - page)), most - 1);
        let down = self.claim_neighbours(
            page,
            slot,
            (-1, i64::from(page - window.first) + 1),
            most - 1 - up,
        );
        let first_slot = shifted(slot, -i64::from(down)).expect("a claimed neighbour has a slot");
        Some((PageRange { first: page - down, count: 1 + up + down }, first_slot))
    }

    /// Claims pages at distances `step`, 2·`step` … below `bound` while their slots follow.
    fn claim_neighbours(&self, page: PageIndex, slot: Slot, way: (i64, i64), most: u32) -> u32 {
        let (step, bound) = way;
        let claims = |distance: i64| {
            let neighbour = (i64::from(page) + distance * step) as PageIndex;
            let Some(expected) = shifted(slot, distance * step) else { return false };
            let wanted = PageState::Swapped { slot: expected };
            let seen = self.pages.load(neighbour);
            seen.state() == wanted
                && self.devices.same_device(slot, expected)
                && self.pages.claim(neighbour, seen, PageState::Filling { slot: Some(expected) })
        };
        (1..bound).take(most as usize).take_while(|distance| claims(*distance)).count() as u32
    }

    /// Claims the next part of a readahead window, from `first` on; None when nothing can be read there
    /// without taking the node below its low watermark.
    pub fn start_ahead(&self, ahead: Ahead, from: PageIndex, node: &Node) -> Option<ReadJob> {
        let end = ahead.first + ahead.count;
        let mut frames = FrameSet::new();
        self.fill_set(node, &mut frames, (end - from).min(RUN_MAX), Asker::Readahead);
        if frames.pages() == 0 {
            return None;
        }
        let window = Window { first: from, count: frames.pages(), ahead: None };
        let (range, slot) = self.claim_for(node, from, window, &mut frames)?;
        count(&self.counters.swap_ra, u64::from(range.count));
        let marker = range.contains(ahead.marker).then_some(ahead.marker);
        Some(ReadJob { pages: range, frames, slot, node: node.id, marker })
    }

    /// The first page at or behind `from` that a readahead window has to read, if any.
    pub fn next_swapped(&self, from: PageIndex, end: PageIndex) -> Option<PageIndex> {
        (from..end.min(self.pages.pages()))
            .find(|page| matches!(self.pages.state(*page), PageState::Swapped { .. }))
    }

    /// Where a job's bytes go.
    pub fn pieces_of(&self, job: &ReadJob) -> Pieces {
        let mut pieces = Pieces::default();
        for run in job.frames.runs() {
            let (address, bytes) = (self.frame_address(run.first), run.count as usize * PAGE_BYTES);
            assert!(pieces.push(address, bytes), "a set has fewer runs than a request has pieces");
        }
        pieces
    }

    /// Reads on the calling thread, and finishes.
    pub fn read_now(&self, job: ReadJob) {
        let pieces = self.pieces_of(&job);
        let outcome = self.devices.transfer(Direction::Read, job.slot, &pieces, job.node);
        self.finish_read(job, outcome);
    }

    /// Checks what was read, maps it, and publishes the pages. A request that failed is repeated once.
    pub fn finish_read(&self, job: ReadJob, outcome: io::Result<()>) {
        count(&self.counters.pswpin, u64::from(job.pages.count));
        let read = outcome.is_ok() || {
            count(&self.counters.swap_read_errors, 1);
            let pieces = self.pieces_of(&job);
            self.devices.transfer(Direction::Read, job.slot, &pieces, job.node).is_ok()
        };
        // Runs of good pages are mapped in one call each; the marker and bad pages stand alone.
        let mut first = job.pages.first;
        for page in job.pages.first..job.pages.end() {
            let good = self.is_good(&job, page, read);
            if good && job.marker != Some(page) {
                continue;
            }
            self.map_read(&job, PageRange { first, count: page - first });
            if good {
                self.keep_marker(&job, page)
            } else {
                self.lose(&job, page)
            }
            first = page + 1;
        }
        self.map_read(&job, PageRange { first, count: job.pages.end() - first });
    }

    fn frame_of(job: &ReadJob, page: PageIndex) -> u32 {
        job.frames.run_at(page - job.pages.first, 1).first
    }

    fn is_good(&self, job: &ReadJob, page: PageIndex, read: bool) -> bool {
        self.is_good_in(job.slot_of(page), Self::frame_of(job, page), read)
    }

    /// Compares what was read into a frame with the slot's checksum; reads it once more if it differs.
    pub fn is_good_in(&self, slot: Slot, frame: FrameIndex, read: bool) -> bool {
        let address = self.frame_address(frame);
        let matches = || self.checksums.of(pages::bytes(address, 1)) == self.devices.checksum(slot);
        if read && matches() {
            return true;
        }
        count(&self.counters.swap_read_errors, 1);
        let pieces = Pieces::one(address, PAGE_BYTES);
        let near = self.node_of_frame(frame).id;
        self.devices.transfer(Direction::Read, slot, &pieces, near).is_ok() && matches()
    }

    fn map_read(&self, job: &ReadJob, range: PageRange) {
        if range.count == 0 {
            return;
        }
        let node = self.node(job.node);
        self.map_set(node, range, &job.frames, range.first - job.pages.first);
        let keep = !self.devices.is_crowded() && !self.devices.is_leaving(job.slot);
        self.publish_resident(node, range, |page| keep.then_some(job.slot_of(page)));
        if !keep {
            for page in range.first..range.end() {
                self.free_slot(job.slot_of(page));
            }
        }
    }

    fn keep_marker(&self, job: &ReadJob, page: PageIndex) {
        let frame = Self::frame_of(job, page);
        let slot = Some(job.slot_of(page));
        self.publish(page, PageState::Cached { frame, slot, marker: true });
        self.node(job.node).lock().enlist(&self.pages, page, 1);
    }

    fn lose(&self, job: &ReadJob, page: PageIndex) {
        self.lose_in(page, job.slot_of(page), Self::frame_of(job, page));
    }

    /// A page that the caller owns in Filling cannot be brought back from its slot.
    pub fn lose_in(&self, page: PageIndex, slot: Slot, frame: FrameIndex) {
        count(&self.counters.pages_lost, 1);
        let run = FrameRun { first: frame, count: 1 };
        self.node_of_frame(frame).lock().put_free(run);
        let (device, place) = self.devices.describe(slot);
        crate::log::lost_page(self.page_address(page), &device.name, place);
        self.publish(page, PageState::Lost);
        self.poison(page);
        // What it gave back was not what it got: nothing is put there again.
        count(&self.counters.swap_bad_slots, 1);
        self.devices.mark_bad(SlotSpan { first: slot, count: 1 });
    }
}
