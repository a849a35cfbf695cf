//! A request of a read has ended: what is asked of the device next, until the fate of every page is known.
//!
//! A request that fails in a way that passes is made again, after a pause that no thread but those of its pages waits for.
//! Pages that it does not bring, or brings wrong, are read once more, each alone: a neighbour's bad slot loses no page.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, Slot};
use crate::device::retry::Parts;
use crate::state::batch::SwapEntry;
use crate::state::core::Core;
use crate::state::reads::{ReadJob, ReadRecord, Stage};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use std::io;
use std::ops::Range;
use userswap_policy::retry::Tries;

impl Core {
    /// Looks at what the request under way came to. The record holds the next one then, to be made at the moment that
    /// is returned; None when there is none.
    pub(crate) fn next_request(&self, job: &ReadJob, outcome: &io::Result<()>) -> Option<u64> {
        let mut record = self.reads.record(job);
        let (slot, bytes) = (record.requested(), record.pieces.bytes());
        self.devices.note_end(Direction::Read, slot, bytes, outcome);
        if let Err(error) = outcome {
            count(&self.counters.swap_read_errors, 1);
            if let Some(moment) = self.repeat(&mut record, error) {
                return Some(moment);
            }
        }
        let next = match record.stage {
            Stage::Whole => {
                let looked_at = if outcome.is_ok() { record.batch.len() } else { 0 };
                record.good = self.good_of(&record, 0..looked_at);
                0
            }
            Stage::Alone(index) => {
                let looked_at = if outcome.is_ok() { index + 1 } else { index };
                record.good |= self.good_of(&record, index..looked_at);
                record.came |= u64::from(outcome.is_ok()) << index;
                index + 1
            }
        };
        // A page that was alone from the start has had its tries, unless what came was wrong.
        let next = match (record.stage, record.batch.len(), outcome) {
            (Stage::Whole, 1, Err(_)) if self.is_up_to_date(&record) => return None,
            _ => (next..record.batch.len()).find(|index| !record.is_good(*index))?,
        };
        count(&self.counters.swap_read_errors, u64::from(outcome.is_ok()));
        let frame = record.frame_at(next);
        let slot = record.batch.entries()[next as usize].slot;
        // A look at it that was out of date is another reason why it has not come.
        record.batch.set_at(next, self.devices.under(slot));
        record.stage = Stage::Alone(next);
        record.tries = Tries::default();
        record.pieces = Pieces::one(self.frame_address(frame), PAGE_BYTES);
        Some(0)
    }

    /// Whether what was read for a page alone is what it is on.
    fn is_up_to_date(&self, record: &ReadRecord) -> bool {
        let entry = record.batch.entries()[0];
        entry.at == self.devices.under(entry.slot)
    }

    /// When a request that failed is made again.
    fn repeat(&self, record: &mut ReadRecord, error: &io::Error) -> Option<u64> {
        let slot = record.requested();
        let parts = Parts::of(record.pieces.bytes());
        let moment =
            self.devices.again((Direction::Read, slot), &mut record.tries, error, parts)?;
        count(&self.counters.swap_retries, 1);
        Some(moment)
    }

    /// Which of these entries have come as they were written.
    fn good_of(&self, record: &ReadRecord, entries: Range<u32>) -> u64 {
        self.unpack_read(record, entries.clone());
        let is_good = |index: &u32| {
            let slot = record.batch.entries()[*index as usize].slot;
            self.has_arrived(slot, record.frame_at(*index))
        };
        entries.filter(is_good).fold(0, |good, index| good | 1 << index)
    }

    /// Fills the frames of packed entries: what was read from the slot that they share is in that of the first of them.
    fn unpack_read(&self, record: &ReadRecord, indexes: Range<u32>) {
        let entries = &record.batch.entries()[indexes.start as usize..indexes.end as usize];
        let address = |index: u32| self.frame_address(record.frame_at(index));
        let mut first = indexes.start;
        let of = |entry: &SwapEntry| (entry.at, self.devices.device_of(entry.slot).id());
        for together in entries.chunk_by(|one, next| of(one) == of(next)) {
            let end = first + together.len() as u32;
            let device = self.devices.device_of(together[0].slot);
            if let Some(pack) = device.pack() {
                let numbers = together.iter().map(|entry| device.number_of(entry.slot));
                pack.unpack(address(first), numbers.zip((first..end).map(address)));
            }
            first = end;
        }
    }

    /// Whether a frame holds what was written to a slot, once it has been read there. What is encrypted is readable then,
    /// and its tag stands for the checksum: of one read a frame is looked at once.
    pub(crate) fn has_arrived(&self, slot: Slot, frame: FrameIndex) -> bool {
        let address = self.frame_address(frame);
        if self.devices.is_encrypted(slot) {
            return self.devices.open(slot, pages::view_mut(address, PAGE_BYTES));
        }
        self.checksums.of(pages::bytes(address, 1)) == self.devices.checksum(slot)
    }
}
