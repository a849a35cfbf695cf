//! Reading pages back: claiming what one request reads, the read, and what becomes of its pages.
//!
//! A request is of slots; the pages on them may lie anywhere. Those of a stream are mapped, in runs where
//! they follow each other; those of the kernel's policies wait in their frames with a mark, so that their
//! use is seen.
use crate::ahead::Want;
use crate::arena::PageRange;
use crate::arrival::Arrival;
use crate::batch::{Batch, Entry};
use crate::core::{Core, RUN_MAX};
use crate::counters::count;
use crate::device::SlotSpan;
use crate::jobs::{ReadJob, Record};
use crate::node::{Asker, FrameSet, Node};
use crate::page::{FrameIndex, PageIndex, PageState, Slot};
use crate::sys::PAGE_BYTES;
use crate::sys::pages;
use crate::sys::request::{Direction, Pieces};
use std::io;
use userswap_policy::frames::FrameRun;

/// What becomes of pages that were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// They are mapped, but for the marker.
    Mapped {
        /// The page whose use is told to its stream.
        marker: Option<PageIndex>,
    },
    /// They stay in their frames with a mark, but for the page that faulted.
    Marked {
        /// The page that faulted.
        target: Option<PageIndex>,
    },
}

/// A read to be started, if there was anything to read, and what of the batch it takes care of.
#[derive(Debug)]
pub struct Started {
    /// The read.
    pub job: Option<ReadJob>,
    /// Entries from the first on that are done with.
    pub entries: u32,
}

impl Record {
    /// The first slot.
    pub fn slot(&self) -> Slot {
        self.batch.entries()[0].slot
    }

    fn frame_at(&self, place: u32) -> FrameIndex {
        self.frames.run_at(place, 1).first
    }

    fn is_mapped(&self, page: PageIndex) -> bool {
        match self.landing {
            Landing::Mapped { marker } => marker != Some(page),
            Landing::Marked { target } => target == Some(page),
        }
    }
}

impl Core {
    /// Claims what a fault on a swapped page should read; None if its word has changed.
    pub fn start_read(&self, page: PageIndex, near: &Node) -> Option<ReadJob> {
        let PageState::Swapped { slot } = self.pages.state(page) else { return None };
        let target = Entry { page, slot };
        let job = self.jobs.take();
        let mut record = self.jobs.record(&job);
        let plan = self.plan_read(target, near.id, &mut record.batch);
        let found = record.batch.len();
        record.batch.keep_around(page, plan.gaps, RUN_MAX);
        // The neighbours are readahead: only what is above the low watermark is theirs.
        let wanted = record.batch.len();
        let (node, first) = self.obtain(near, 1 + readahead_room(near, wanted - 1));
        record.node = node.id;
        record.frames = FrameSet::new();
        record.frames.push(self.frames_of(node, first));
        self.fill_set(node, &mut record.frames, wanted, Asker::Readahead);
        let most = record.frames.pages();
        record.batch.keep_around(page, plan.gaps, most);
        let claimed =
            if self.claim_around(target, &mut record.batch) { record.batch.len() } else { 0 };
        self.put_back_frames(node, &mut record.frames, claimed);
        if claimed == 0 {
            drop(record);
            self.jobs.give_back(job);
            return None;
        }
        count(&self.counters.pgmajfault, 1);
        count(&self.counters.swap_ra, u64::from(claimed - 1));
        record.landing = self.settle_plan(&plan, (found, claimed), near.id);
        self.lay_out(&mut record);
        drop(record);
        Some(job)
    }

    /// Claims the target and what lies around it, as far as nobody else has; false when the target is
    /// somebody else's.
    fn claim_around(&self, target: Entry, batch: &mut Batch) -> bool {
        if !self.claim_entry(target) {
            return false;
        }
        let place = batch.place_of(target.page).expect("a batch keeps its target") as usize;
        let entries = batch.entries();
        let claims = |entry: &&Entry| self.claim_entry(**entry);
        let behind = entries[place + 1..].iter().take_while(claims).count();
        let before = entries[..place].iter().rev().take_while(claims).count();
        batch.keep((place - before) as u32, (before + 1 + behind) as u32);
        true
    }

    fn claim_entry(&self, entry: Entry) -> bool {
        let from = PageState::Swapped { slot: entry.slot };
        self.pages.change(entry.page, from, PageState::Filling { slot: Some(entry.slot) })
    }

    /// Claims the first entries of a batch for a read that nobody waits for; None when there are no frames
    /// for it without taking the node below its low watermark.
    pub fn start_ahead(&self, batch: &Batch, want: &Want) -> Option<Started> {
        let node = self.node(want.node);
        let most = batch.stretch(want.gaps(), RUN_MAX);
        let mut frames = FrameSet::new();
        self.fill_set(node, &mut frames, most, Asker::Readahead);
        if frames.pages() < most.min(AHEAD_MIN) {
            self.put_back_frames(node, &mut frames, 0);
            return None;
        }
        let tried = &batch.entries()[..most.min(frames.pages()) as usize];
        let skipped = tried.iter().take_while(|entry| !self.claim_entry(**entry)).count();
        let more = tried[skipped..].iter().skip(1).take_while(|entry| self.claim_entry(**entry));
        let claimed = more.count() + usize::from(skipped < tried.len());
        self.put_back_frames(node, &mut frames, claimed as u32);
        let entries = (skipped + claimed) as u32;
        if claimed == 0 {
            return Some(Started { job: None, entries });
        }
        count(&self.counters.swap_ra, claimed as u64);
        let job = self.jobs.take();
        let mut record = self.jobs.record(&job);
        record.batch = *batch;
        record.batch.keep(skipped as u32, claimed as u32);
        (record.frames, record.node, record.landing) = (frames, node.id, want.landing());
        self.lay_out(&mut record);
        drop(record);
        Some(Started { job: Some(job), entries })
    }

    /// Frames that found no page are free again.
    fn put_back_frames(&self, node: &Node, frames: &mut FrameSet, used: u32) {
        if used < frames.pages() {
            let rest = frames.split_off(used);
            let mut state = node.lock();
            rest.runs().iter().for_each(|run| state.put_free(*run));
        }
    }

    /// Works out where a read's bytes go.
    fn lay_out(&self, record: &mut Record) {
        record.pieces.clear();
        let mut next = record.slot().0.get();
        for place in 0..record.batch.len() {
            let slot = record.batch.entries()[place as usize].slot.0.get();
            let gap = (slot - next) as usize;
            let frame = self.frame_address(record.frame_at(place));
            let fits = (gap == 0 || record.pieces.push(self.gap_address(), gap * PAGE_BYTES))
                && record.pieces.push_page(frame);
            assert!(fits, "a batch has fewer gaps and a set fewer runs than a request has pieces");
            next = slot + 1;
        }
    }

    /// Reads on the calling thread, and finishes.
    pub fn read_now(&self, job: ReadJob) {
        let record = self.jobs.record(&job);
        let outcome = self.read_record(&record);
        drop(record);
        self.finish_read(job, outcome);
    }

    fn read_record(&self, record: &Record) -> io::Result<()> {
        self.devices.transfer(Direction::Read, record.slot(), &record.pieces, record.node)
    }

    /// Checks what was read and publishes the pages. A request that failed is repeated once.
    pub fn finish_read(&self, job: ReadJob, outcome: io::Result<()>) {
        let record = self.jobs.record(&job);
        count(&self.counters.pswpin, u64::from(record.batch.len()));
        count(&self.counters.swap_reads, 1);
        let read = outcome.is_ok() || {
            count(&self.counters.swap_read_errors, 1);
            self.read_record(&record).is_ok()
        };
        // Runs of good pages are mapped in one call each; marked and bad pages stand alone.
        let mut first = 0;
        let entries = record.batch.entries();
        for (place, entry) in entries.iter().enumerate() {
            let frame = record.frame_at(place as u32);
            let good = self.is_good_in(entry.slot, frame, read);
            let maps = good && record.is_mapped(entry.page);
            let follows = place == first || entries[place - 1].page + 1 == entry.page;
            if maps && follows {
                continue;
            }
            self.map_read(&record, first, place);
            first = if maps { place } else { place + 1 };
            match (good, maps) {
                (_, true) => {}
                (true, false) => self.keep_marked(&record, *entry, frame),
                (false, false) => self.lose_in(entry.page, entry.slot, frame),
            }
        }
        self.map_read(&record, first, entries.len());
        drop(record);
        self.jobs.give_back(job);
    }

    /// Compares what was read into a frame with the slot's checksum; reads it once more if it differs.
    pub fn is_good_in(&self, slot: Slot, frame: FrameIndex, read: bool) -> bool {
        let address = self.frame_address(frame);
        let matches = || self.checksums.of(pages::bytes(address, 1)) == self.devices.checksum(slot);
        (read && matches()) || self.is_good_when_read_again(slot, frame)
    }

    // Apart, because its request would take a kilobyte of stack at every fault.
    #[cold]
    #[inline(never)]
    fn is_good_when_read_again(&self, slot: Slot, frame: FrameIndex) -> bool {
        let address = self.frame_address(frame);
        let matches = || self.checksums.of(pages::bytes(address, 1)) == self.devices.checksum(slot);
        count(&self.counters.swap_read_errors, 1);
        let pieces = Pieces::one(address, PAGE_BYTES);
        let near = self.node_of_frame(frame).id;
        self.devices.transfer(Direction::Read, slot, &pieces, near).is_ok() && matches()
    }

    /// Maps the entries from one place to another, whose pages follow each other.
    fn map_read(&self, record: &Record, first: usize, end: usize) {
        let entries = &record.batch.entries()[first..end];
        let Some(lowest) = entries.first() else { return };
        let node = self.node(record.node);
        let range = PageRange { first: lowest.page, count: entries.len() as u32 };
        self.map_set(node, range, &record.frames, first as u32);
        // One answer for all: in between a device may begin to go.
        let keep = !self.devices.is_crowded()
            && !entries.iter().any(|entry| self.devices.is_leaving(entry.slot));
        let slot_of = |page: PageIndex| entries[(page - range.first) as usize].slot;
        self.publish_resident(node, range, Arrival::Read, |page| keep.then(|| slot_of(page)));
        if !keep {
            entries.iter().for_each(|entry| self.free_slot(entry.slot));
        }
    }

    fn keep_marked(&self, record: &Record, entry: Entry, frame: FrameIndex) {
        let slot = Some(entry.slot);
        self.publish(entry.page, PageState::Cached { frame, slot, marker: true });
        self.node(record.node).lock().enlist(&self.pages, entry.page, 1);
    }

    /// A page that the caller owns in Filling cannot be brought back from its slot.
    pub fn lose_in(&self, page: PageIndex, slot: Slot, frame: FrameIndex) {
        count(&self.counters.pages_lost, 1);
        let run = FrameRun { first: frame, count: 1 };
        self.node_of_frame(frame).lock().put_free(run);
        let (device, place) = self.devices.describe(slot);
        crate::log::lost_page(self.page_address(page), &device.name, place);
        // What it gave back was not what it got: nothing is put there again.
        count(&self.counters.swap_bad_slots, 1);
        self.devices.mark_bad(SlotSpan { first: slot, count: 1 });
        // Poisoned while it is owned: nobody can drop it and touch it in between. The books are right before:
        // who touches a poisoned page goes on at once.
        self.poison(page);
        self.publish(page, PageState::Lost);
        self.wake_faults(PageRange { first: page, count: 1 });
    }
}

/// Pages that a read nobody waits for must get frames for; with fewer it is better to wait for more.
const AHEAD_MIN: u32 = 16;

/// Up to `want` pages that readahead may have on a node.
fn readahead_room(node: &Node, want: u32) -> u32 {
    if want == 0 {
        return 0;
    }
    let state = node.lock();
    want.min(state.available().saturating_sub(state.watermarks.low))
}
