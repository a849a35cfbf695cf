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
        // What a thread waits for comes first: by message that goes on while the others are mapped.
        let first = run_asked_for(&record);
        let end = record.batch.len() as usize;
        for part in [first.clone(), 0..first.start, first.end..end] {
            self.finish_entries(&record, part);
        }
        drop(record);
        if self.reads.give_back(job) {
            self.waits.stalled.end();
        }
    }

    /// Runs of good pages are mapped in one call each; marked and bad pages stand alone.
    fn finish_entries(&self, record: &ReadRecord, part: Range<usize>) {
        let mut next = part.start;
        while next < part.end {
            let first = next;
            next += 1;
            if is_mapped(record, first) {
                next += (next..part.end).take_while(|index| follows(record, *index)).count();
                self.map_read(record, first..next);
                continue;
            }
            let (entry, index) = (record.batch.entries()[first], first as u32);
            match record.is_good(index) {
                true => self.keep_marked(record, entry, record.frame_at(index)),
                false => {
                    let (frame, loss) = (record.frame_at(index), record.loss(index));
                    self.lose_page(entry.page, entry.slot, frame, loss);
                }
            }
        }
    }

    /// Maps entries of a read, whose pages follow each other.
    fn map_read(&self, record: &ReadRecord, run: Range<usize>) {
        let first = run.start as u32;
        let entries = &record.batch.entries()[run];
        let node = self.node(record.node);
        let range = PageRange { first: entries[0].page, count: entries.len() as u32 };
        if self.map_clean(record, node, first, entries) {
            return;
        }
        self.map_set(node, range, &record.frames, first);
        // One answer for all: in between a device may begin to go.
        let keep = entries.iter().all(|entry| self.devices.keeps_copy(entry.slot));
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
        let &[SwapEntry { page, slot, .. }] = entries else { return false };
        let wants = record.asked.is_some_and(|(_, access)| access == Access::Read)
            && self.clean_pages.wants(page)
            && self.devices.keeps_copy(slot);
        if !wants || !self.map_protected(node, page, record.frame_at(index)) {
            return false;
        }
        let state = PageState::Clean { slot, node: node.id };
        let range = PageRange { first: page, count: 1 };
        let origin = Origin::Read { asked: record.asked.map(|(page, _)| page) };
        self.publish_mapped(node, range, origin, |_| state);
        true
    }

    fn keep_marked(&self, record: &ReadRecord, entry: SwapEntry, frame: FrameIndex) {
        let slot = Some(entry.slot);
        self.publish(entry.page, PageState::Cached { frame, slot, marker: true });
        self.node(record.node).lock().enlist(&self.pages, entry.page, 1);
    }
}

/// Whether an entry of a read is mapped.
fn is_mapped(record: &ReadRecord, index: usize) -> bool {
    record.is_good(index as u32) && record.is_mapped(record.batch.entries()[index].page)
}

/// Whether an entry is mapped in one call with the one before it.
fn follows(record: &ReadRecord, index: usize) -> bool {
    let entries = record.batch.entries();
    entries[index].page == entries[index - 1].page + 1
        && is_mapped(record, index)
        && is_mapped(record, index - 1)
}

/// The entries around the page that faulted that are mapped in one call; none if it is not there.
fn run_asked_for(record: &ReadRecord) -> Range<usize> {
    let Some(asked) = record.asked.and_then(|(page, _)| record.batch.index_of(page)) else {
        return 0..0;
    };
    let asked = asked as usize;
    let end = record.batch.len() as usize;
    let before = (1..=asked).rev().take_while(|index| follows(record, *index)).count();
    let after = (asked + 1..end).take_while(|index| follows(record, *index)).count();
    asked - before..asked + 1 + after
}
