//! Swap in: a fault on a swapped page claims what one request can read, gets frames for it, and starts the read.
//!
//! A request is of slots; the pages on them may lie anywhere. What to read is `readahead.rs`'s, and what becomes of
//! the pages `finish.rs`'s.
use crate::base::counters::count;
use crate::base::index::PageIndex;
use crate::base::limits::RUN_MAX;
use crate::device::request::{Backing, Request};
use crate::fault::alloc::readahead_room;
use crate::state::batch::{Batch, SwapEntry};
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::{Asker, Node};
use crate::state::page::PageState;
use crate::state::reads::{ReadJob, ReadRecord, Stage};
use crate::sys::PAGE_BYTES;
use crate::sys::request::Direction;
use crate::sys::uffd::Access;

impl Core {
    /// Claims what a fault on a swapped page should read; None if its word has changed.
    // Its own frame on the stack: by signal the other ways to a page, some of which reclaim, have little room.
    #[inline(never)]
    pub(crate) fn start_read(
        &self,
        page: PageIndex,
        access: Access,
        near: &Node,
    ) -> Option<ReadJob> {
        let PageState::Swapped { slot } = self.pages.state(page) else { return None };
        let target = self.entry(page, slot);
        let job = self.reads.take();
        let mut record = self.reads.record(&job);
        let plan = self.plan_read(target, near.id, &mut record.batch);
        record.batch.keep_around(page, plan.gaps, RUN_MAX);
        // The neighbours are readahead, and get what that may have.
        let wanted = record.batch.len();
        let (node, first) = self.obtain(near, 1 + readahead_room(near, wanted - 1));
        (record.node, record.asked) = (node.id, Some((page, access)));
        record.frames = FrameSet::of(self.frames_of(node, first));
        self.fill_set(node, &mut record.frames, wanted, Asker::Readahead);
        let most = record.frames.pages();
        record.batch.keep_around(page, plan.gaps, most);
        let claimed =
            if self.claim_around(target, &mut record.batch) { record.batch.len() } else { 0 };
        self.put_back_frames(node, &mut record.frames, claimed);
        if claimed == 0 {
            drop(record);
            self.reads.give_back(job);
            return None;
        }
        count(&self.counters.pgmajfault, 1);
        count(&self.counters.swap_ra, u64::from(claimed - 1));
        record.landing = self.settle_plan(&plan, claimed, near.id);
        self.lay_out(&mut record);
        drop(record);
        Some(job)
    }

    /// Claims the target and what lies around it, up to the first entry on each side that has changed; false when
    /// the target has.
    fn claim_around(&self, target: SwapEntry, batch: &mut Batch) -> bool {
        if !self.claim_entry(target) {
            return false;
        }
        let index = batch.index_of(target.page).expect("a batch keeps its target") as usize;
        let entries = batch.entries();
        let claims = |entry: &&SwapEntry| self.claim_entry(**entry);
        let after = entries[index + 1..].iter().take_while(claims).count();
        let before = entries[..index].iter().rev().take_while(claims).count();
        batch.keep((index - before) as u32, (before + 1 + after) as u32);
        true
    }

    /// Works out where a read's bytes go: each slot to its frame, which of several on one slot is the first's, and the gaps
    /// between slots to memory that is never looked at.
    pub(crate) fn lay_out(&self, record: &mut ReadRecord) {
        record.pieces.clear();
        let mut next = record.batch.entries()[0].at.0.get();
        for index in 0..record.batch.len() {
            let slot = record.batch.entries()[index as usize].at.0.get();
            if slot < next {
                continue;
            }
            let gap = (slot - next) as usize;
            let frame = self.frame_address(record.frame_at(index));
            let fits = (gap == 0 || record.pieces.push(self.gap_address(), gap * PAGE_BYTES))
                && record.pieces.push_page(frame);
            assert!(fits, "a batch has fewer gaps and a set fewer runs than a request has pieces");
            next = slot + 1;
        }
        record.begin();
    }

    /// Reads on the calling thread, and finishes the read.
    pub(crate) fn read_now(&self, job: ReadJob) {
        let mut not_before_ns = Some(0);
        while let Some(moment) = not_before_ns {
            let outcome = {
                let record = self.reads.record(&job);
                self.look_for(&self.read_request(&record, moment), &record.pieces)
            };
            not_before_ns = self.next_request(&job, &outcome);
        }
        self.finish_read(job);
    }

    /// Where the slots of a read are.
    pub(crate) fn backing_of(&self, job: &ReadJob) -> Backing {
        Backing::of(self.devices.device_of(self.reads.record(job).requested()))
    }

    /// The request that a read makes next, not before a moment.
    pub(crate) fn read_request(&self, record: &ReadRecord, not_before_ns: u64) -> Request {
        let (slot, bytes) = (record.requested(), record.pieces.bytes());
        let request = self.devices.request(Direction::Read, slot, bytes, record.node);
        let is_repeated = matches!(record.stage, Stage::Alone(_));
        request.repeated(is_repeated).no_sooner_than(not_before_ns)
    }
}
