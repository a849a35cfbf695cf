//! A read has ended: its pages are checked, mapped or kept, listed, or lost.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange, Slot};
use crate::device::SlotSpan;
use crate::state::batch::SwapEntry;
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::reads::{ReadJob, ReadRecord};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use crate::transfer::lru_add::Origin;
use std::io;
use userswap_policy::frames::FrameRun;

impl Core {
    /// Checks what was read and publishes the pages. A request that failed is repeated once.
    pub(crate) fn finish_read(&self, job: ReadJob, outcome: io::Result<()>) {
        let record = self.reads.record(&job);
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
        self.reads.give_back(job);
    }

    /// Compares what was read into a frame with the slot's checksum; reads it once more if it differs.
    pub(crate) fn is_good_in(&self, slot: Slot, frame: FrameIndex, read: bool) -> bool {
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
    fn map_read(&self, record: &ReadRecord, first: usize, end: usize) {
        let entries = &record.batch.entries()[first..end];
        let Some(lowest) = entries.first() else { return };
        let node = self.node(record.node);
        let range = PageRange { first: lowest.page, count: entries.len() as u32 };
        self.map_set(node, range, &record.frames, first as u32);
        // One answer for all: in between a device may begin to go.
        let keep = !self.devices.is_crowded()
            && !entries.iter().any(|entry| self.devices.is_leaving(entry.slot));
        let slot_of = |page: PageIndex| entries[(page - range.first) as usize].slot;
        self.publish_resident(node, range, Origin::Read, |page| keep.then(|| slot_of(page)));
        if !keep {
            entries.iter().for_each(|entry| self.free_slot(entry.slot));
        }
    }

    fn keep_marked(&self, record: &ReadRecord, entry: SwapEntry, frame: FrameIndex) {
        let slot = Some(entry.slot);
        self.publish(entry.page, PageState::Cached { frame, slot, marker: true });
        self.node(record.node).lock().enlist(&self.pages, entry.page, 1);
    }

    /// A page that the caller owns in Filling cannot be brought back from its slot.
    pub(crate) fn lose_in(&self, page: PageIndex, slot: Slot, frame: FrameIndex) {
        count(&self.counters.pages_lost, 1);
        let run = FrameRun { first: frame, count: 1 };
        self.node_of_frame(frame).lock().put_free(run);
        let (device, place) = self.devices.describe(slot);
        crate::base::log::lost_page(self.page_address(page), &device.name, place);
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
