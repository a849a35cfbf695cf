//! Reads ahead: what of a want there is to read, and starting it.
//!
//! The server pursues the wants that faults leave (`state::wants`), and a prefetch its own; both go on from here
//! batch by batch, as far as there are frames above the low watermark.
use crate::base::counters::count;
use crate::base::index::{PageIndex, Slot};
use crate::base::limits::RUN_MAX;
use crate::state::batch::{Batch, Gaps, SwapEntry};
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::Asker;
use crate::state::reads::ReadJob;
use crate::state::wants::{Span, Want};
use std::num::NonZeroU32;
use std::ops::Range;
use userswap_policy::stream::Ahead;

/// Pages that a read ahead must get frames for, unless its batch has fewer; with fewer it is better to wait for more.
const AHEAD_MIN: u32 = 16;

/// Pages or slots of a want that are looked at before other things are done.
const LOOK_MAX: u32 = 4096;

/// A read to be started, if there was anything to read, and what of the batch it takes care of.
#[derive(Debug)]
pub struct Started {
    /// The read; None when other threads had claimed all of its entries.
    pub job: Option<ReadJob>,
    /// Entries from the first on that need no further look.
    pub entries: u32,
}

impl Core {
    /// The next pages of a want that are to be read, in the order of their slots, and the index in the want
    /// after them; None at its end.
    pub(crate) fn next_of(&self, want: &Want) -> Option<(Batch, u32)> {
        let mut batch = Batch::new();
        let mut index = want.done;
        let end = want.len().min(index.saturating_add(LOOK_MAX));
        if index >= want.len() {
            return None;
        }
        while index < end && !batch.is_full() {
            if let Some(entry) = self.entry_at(want, index) {
                batch.push(entry);
            }
            index += 1;
        }
        batch.sort();
        Some((batch, index))
    }

    fn entry_at(&self, want: &Want, index: u32) -> Option<SwapEntry> {
        let along = |first, step| pages_along(first, step, index..index + 1).next();
        match want.span {
            Span::Ahead(Ahead { first, step, .. }) | Span::Run { first, step, .. } => {
                self.entry_of(along(first, step)?)
            }
            Span::Pages(range) => self.entry_of(range.first + index),
            Span::Slots(span) => {
                let number = NonZeroU32::new(span.first.0.get() + index);
                self.entry_on(Slot(number.expect("slots follow a slot")))
            }
        }
    }

    /// Claims the first entries of a batch for a read ahead; None when there are no frames for it without taking
    /// the node below its low watermark.
    pub(crate) fn start_ahead(&self, batch: &Batch, want: &Want) -> Option<Started> {
        let node = self.node(want.node);
        let gaps = match want.gaps() {
            Gaps::Small => self.gaps_on(batch.entries()[0].slot),
            Gaps::None => Gaps::None,
        };
        let most = batch.stretch(gaps, RUN_MAX);
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
        let job = self.reads.take();
        let mut record = self.reads.record(&job);
        record.batch = *batch;
        record.batch.keep(skipped as u32, claimed as u32);
        (record.frames, record.node, record.landing) = (frames, node.id, want.landing());
        record.asked = None;
        self.lay_out(&mut record);
        drop(record);
        Some(Started { job: Some(job), entries })
    }
}

/// The pages with these indexes along a stream that begins at `first`.
pub fn pages_along(
    first: PageIndex,
    step: i32,
    indexes: Range<u32>,
) -> impl Iterator<Item = PageIndex> {
    // Windows are made so that their pages have numbers.
    indexes.map(move |index| first.wrapping_add_signed(step.wrapping_mul(index as i32)))
}
