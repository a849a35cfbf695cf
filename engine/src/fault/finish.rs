//! A read has ended: its pages are mapped, kept in their frames, or lost (`lost.rs`).
//!
//! Pages of a stream are mapped, in runs where they follow each other; those of the kernel's policies stay in their
//! frames with a mark, so that their use is seen. What has come as it was written, `retry.rs` knows.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::state::batch::SwapEntry;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::reads::{ReadJob, ReadRecord};
use crate::sys::uffd::Access;
use crate::transfer::lru_add::Origin;
use std::ops::Range;

impl Core {
    /// Publishes the pages of a read, of which it is known whether they came as they were written.
    pub(crate) fn finish_read(&self, job: ReadJob) {
        let record = self.reads.record(&job);
        self.count_read(record.slot(), record.batch.len());
        count(&self.counters.swap_reads, 1);
        // Runs of good pages are mapped in one call each; marked and bad pages stand alone.
        let mut first = 0;
        let entries = record.batch.entries();
        for (index, entry) in entries.iter().enumerate() {
            let frame = record.frame_at(index as u32);
            let good = record.is_good(index as u32);
            let maps = good && record.is_mapped(entry.page);
            let follows = index == first || entries[index - 1].page + 1 == entry.page;
            if maps && follows {
                continue;
            }
            self.map_read(&record, first..index);
            first = if maps { index } else { index + 1 };
            match (good, maps) {
                (_, true) => {}
                (true, false) => self.keep_marked(&record, *entry, frame),
                (false, false) => self.lose_page(entry.page, entry.slot, frame),
            }
        }
        self.map_read(&record, first..entries.len());
        drop(record);
        if self.reads.give_back(job) {
            self.waits.stalled.end();
        }
    }

    /// Maps entries of a read, whose pages follow each other.
    fn map_read(&self, record: &ReadRecord, run: Range<usize>) {
        let first = run.start as u32;
        let entries = &record.batch.entries()[run];
        let Some(lowest) = entries.first() else { return };
        let node = self.node(record.node);
        let range = PageRange { first: lowest.page, count: entries.len() as u32 };
        if self.map_clean(record, node, first, entries) {
            return;
        }
        self.map_set(node, range, &record.frames, first);
        // One answer for all: in between a device may begin to go.
        let keep = !self.devices.is_crowded()
            && !entries.iter().any(|entry| self.devices.is_leaving(entry.slot));
        let slot_of = |page: PageIndex| entries[(page - range.first) as usize].slot;
        let origin = Origin::Read { asked: record.asked.map(|(page, _)| page) };
        self.publish_resident(node, range, origin, |page| keep.then(|| slot_of(page)));
        if !keep {
            entries.iter().for_each(|entry| self.free_slot(entry.slot));
        }
    }

    /// Maps a page alone that was read to be read, protected, as a clean one; false if it is not to be such a page.
    fn map_clean(
        &self,
        record: &ReadRecord,
        node: &Node,
        index: u32,
        entries: &[SwapEntry],
    ) -> bool {
        let &[SwapEntry { page, slot }] = entries else { return false };
        let wants = record.asked.is_some_and(|(_, access)| access == Access::Read)
            && self.clean_pages.wants(page)
            && !self.devices.is_crowded()
            && !self.devices.is_leaving(slot);
        if !wants || !self.map_protected(node, page, record.frame_at(index)) {
            return false;
        }
        let state = PageState::Clean { slot, node: node.id };
        let (range, origin) =
            (PageRange { first: page, count: 1 }, Origin::Read { asked: Some(page) });
        self.publish_mapped(node, range, origin, |_| state);
        true
    }

    fn keep_marked(&self, record: &ReadRecord, entry: SwapEntry, frame: FrameIndex) {
        let slot = Some(entry.slot);
        self.publish(entry.page, PageState::Cached { frame, slot, marker: true });
        self.node(record.node).lock().enlist(&self.pages, entry.page, 1);
    }
}
