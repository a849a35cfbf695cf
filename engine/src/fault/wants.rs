//! Reads ahead: what of a want there is to read, and starting it.
use crate::base::counters::count;
use crate::base::index::{PageIndex, Slot};
use crate::base::limits::RUN_MAX;
use crate::state::batch::{Batch, SwapEntry};
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::{Asker, Node};
use crate::state::page::PageState;
use crate::state::reads::ReadJob;
use crate::state::wants::{Span, Want};
use std::num::NonZeroU32;
use std::ops::Range;
use userswap_policy::stream::Ahead;

/// Pages that a read nobody waits for must get frames for; with fewer it is better to wait for more.
const AHEAD_MIN: u32 = 16;

/// Places of a want that are looked at before other things are done.
const LOOK_MAX: u32 = 4096;

/// A read to be started, if there was anything to read, and what of the batch it takes care of.
#[derive(Debug)]
pub struct Started {
    /// The read.
    pub job: Option<ReadJob>,
    /// Entries from the first on that are done with.
    pub entries: u32,
}

impl Core {
    /// A page with its slot, if it is swapped.
    pub(crate) fn entry_of(&self, page: PageIndex) -> Option<SwapEntry> {
        if page >= self.pages.pages() {
            return None;
        }
        match self.pages.state(page) {
            PageState::Swapped { slot } => Some(SwapEntry { page, slot }),
            _ => None,
        }
    }

    /// A slot with its page, if that page is swapped there.
    pub(crate) fn entry_on(&self, slot: Slot) -> Option<SwapEntry> {
        self.entry_of(self.devices.page_on(slot)).filter(|entry| entry.slot == slot)
    }

    /// The next pages of a want that are to be read, in the order of their slots, and the place behind
    /// them; None when there are no more places.
    pub(crate) fn next_of(&self, want: &Want) -> Option<(Batch, u32)> {
        let mut batch = Batch::new();
        let mut place = want.done;
        let end = want.len().min(place.saturating_add(LOOK_MAX));
        if place >= want.len() {
            return None;
        }
        while place < end && !batch.is_full() {
            if let Some(entry) = self.entry_at(want, place) {
                batch.push(entry);
            }
            place += 1;
        }
        batch.sort();
        Some((batch, place))
    }

    fn entry_at(&self, want: &Want, place: u32) -> Option<SwapEntry> {
        let one = |places: Range<u32>, first, step| pages_along(first, step, places).next();
        match want.span {
            Span::Ahead(Ahead { first, step, .. }) | Span::Run { first, step, .. } => {
                self.entry_of(one(place..place + 1, first, step)?)
            }
            Span::Pages(range) => self.entry_of(range.first + place),
            Span::Slots(span) => {
                let number = NonZeroU32::new(span.first.0.get() + place);
                self.entry_on(crate::base::index::Slot(number.expect("slots follow a slot")))
            }
        }
    }

    /// Claims the first entries of a batch for a read that nobody waits for; None when there are no frames
    /// for it without taking the node below its low watermark.
    pub(crate) fn start_ahead(&self, batch: &Batch, want: &Want) -> Option<Started> {
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
        let job = self.reads.take();
        let mut record = self.reads.record(&job);
        record.batch = *batch;
        record.batch.keep(skipped as u32, claimed as u32);
        (record.frames, record.node, record.landing) = (frames, node.id, want.landing());
        self.lay_out(&mut record);
        drop(record);
        Some(Started { job: Some(job), entries })
    }
}

/// Up to `want` pages that readahead may have on a node.
pub(crate) fn readahead_room(node: &Node, want: u32) -> u32 {
    if want == 0 {
        return 0;
    }
    let state = node.lock();
    want.min(state.available().saturating_sub(state.watermarks.low))
}

/// Pages at some places along a stream.
pub fn pages_along(
    first: PageIndex,
    step: i32,
    places: std::ops::Range<u32>,
) -> impl Iterator<Item = PageIndex> {
    // Windows are made so that their pages have numbers.
    places.map(move |place| first.wrapping_add_signed(step.wrapping_mul(place as i32)))
}
