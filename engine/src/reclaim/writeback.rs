//! Writing dirty pages: contiguous slots, one large request, and what its completion does.
//!
//! While a page is being written a fault may take it (`fault::minor`): its frame is an orphan then, and the frame's
//! flag says so (`transfer::orphan`). Which device is asked is `policy::devices`.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageRange, Slot};
use crate::device::request::Request;
use crate::device::retry::Parts;
use crate::device::{SlotEnd, SlotSpan};
use crate::state::core::Core;
use crate::state::frame_flag::FrameFlag;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Victim, WriteOp};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use crate::transfer::lru_add::Origin;
use std::io;
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;
use userswap_policy::retry::Tries;

/// How often slots of mapped pages are given up for a write before devices count as full.
const GIVES: usize = 32;

impl Core {
    /// Prepares a write of as many of `victims` as fit one run of slots of the device that `near` asks first;
    /// returns how many, 0 when no device has room. Their pages are published as Writing.
    pub(crate) fn prepare_write(
        &self,
        node: &Node,
        near: NodeId,
        victims: &[Victim],
        write: &mut WriteOp,
    ) -> usize {
        if self.devices.encrypts() && write.staging().is_none() {
            return 0;
        }
        write.pieces = Pieces::default();
        let fitting =
            victims.iter().take_while(|v| write.pieces.push_page(self.frame_address(v.frame)));
        let most = fitting.count();
        let Some(span) = self.slots_for(most as u32, node, near) else { return 0 };
        if self.shortage.devices_full.load(Ordering::Relaxed) {
            self.shortage.devices_full.store(false, Ordering::Relaxed);
        }
        write.tries = Tries::default();
        write.count = span.count as usize;
        write.first = Some(span.first);
        write.victims[..write.count].copy_from_slice(&victims[..write.count]);
        if write.count < most {
            write.pieces = Pieces::default();
            for victim in &victims[..write.count] {
                assert!(
                    write.pieces.push_page(self.frame_address(victim.frame)),
                    "it fitted before"
                );
            }
        }
        node.lock().writing += span.count;
        for (index, victim) in victims[..write.count].iter().enumerate() {
            let slot = write.slot_at(index);
            self.devices.set_checksum(slot, victim.checksum);
            self.devices.set_page(slot, victim.page);
            self.frame_flags.set(victim.frame, FrameFlag::Writing);
            self.publish(victim.page, PageState::Writing { frame: victim.frame, slot });
        }
        if self.devices.is_encrypted(span.first) {
            self.seal(write);
        }
        write.count
    }

    /// Slots, those of mapped pages if there are no others: of compressed memory it takes many of them to give memory back,
    /// and of a device whose slots children read, none.
    fn slots_for(&self, most: u32, node: &Node, near: NodeId) -> Option<SlotSpan> {
        for _ in 0..GIVES {
            let span = self.devices.allocate(most, near);
            if span.is_some() || self.give_up_slots(node) == 0 {
                return span;
            }
        }
        self.devices.allocate(most, near)
    }

    /// Has encrypted copies be written in the place of the frames, which nobody changes before the write has ended.
    fn seal(&self, write: &mut WriteOp) {
        let staging = write.staging().expect("it was there before slots were allocated");
        let victims = &write.victims[..write.count];
        self.devices.seal(write.slot(), victims.len(), |index| {
            let copy = staging + index * PAGE_BYTES;
            pages::copy(copy, self.frame_address(victims[index].frame), 1);
            pages::view_mut(copy, PAGE_BYTES)
        });
        write.pieces = Pieces::one(staging, write.count * PAGE_BYTES);
    }

    /// Writes everything in `scratch` on the calling thread; returns how many pages no device would take, which are
    /// mapped again.
    pub(crate) fn write_at_once(&self, node: &Node, scratch: &mut Scratch) -> u32 {
        let near = self.node_here().id;
        let mut done = 0;
        while done < scratch.count {
            let Scratch { victims, count, write, .. } = &mut *scratch;
            let prepared = self.prepare_write(node, near, &victims[done..*count], write);
            if prepared == 0 {
                self.put_back(node, &victims[done..*count]);
                return (*count - done) as u32;
            }
            let outcome = self.write_now(write, near);
            self.finish_write(node, write, outcome);
            done += prepared;
        }
        0
    }

    /// Writes on the calling thread, which sleeps where it has to wait for the device.
    fn write_now(&self, write: &mut WriteOp, near: NodeId) -> io::Result<()> {
        let mut not_before_ns = 0;
        loop {
            let outcome = self.write_request(write, near, not_before_ns).transfer(&write.pieces);
            match self.write_again(write, &outcome) {
                Some(moment) => not_before_ns = moment,
                None => return outcome,
            }
        }
    }

    /// The request of a prepared write, not before a moment.
    pub(crate) fn write_request(
        &self,
        write: &WriteOp,
        near: NodeId,
        not_before_ns: u64,
    ) -> Request {
        let (slot, bytes) = (write.slot(), write.pieces.bytes());
        let request = self.devices.request(Direction::Write, slot, bytes, near);
        request.no_sooner_than(not_before_ns)
    }

    /// When a write that has ended is to be repeated; None when it has succeeded, or is to be given up.
    pub(crate) fn write_again(&self, write: &mut WriteOp, outcome: &io::Result<()>) -> Option<u64> {
        let slot = write.slot();
        self.devices.note_end(Direction::Write, slot, write.pieces.bytes(), outcome);
        let Err(error) = outcome else { return None };
        count(&self.counters.swap_write_errors, 1);
        let moment =
            self.devices.again((Direction::Write, slot), &mut write.tries, error, Parts::One)?;
        count(&self.counters.swap_retries, 1);
        Some(moment)
    }

    /// The write has ended: its pages are cached, or, if it failed, mapped again.
    pub(crate) fn finish_write(&self, node: &Node, write: &WriteOp, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            return self.fail_write(node, write, &error);
        }
        self.count_written(write.slot(), write.count as u32);
        for (index, victim) in write.victims[..write.count].iter().enumerate() {
            self.finish_page(victim, write.slot_at(index));
        }
        let mut state = node.lock();
        state.writing -= write.count as u32;
        for victim in &write.victims[..write.count] {
            state.enlist(&self.pages, victim.page, 1);
        }
        drop(state);
        self.settle_stored(node);
        self.note_filled();
        self.announce_freed();
        self.feed_readahead();
    }

    /// Publishes one written page, or, if a fault or a request has taken it, frees its frame and slot.
    fn finish_page(&self, victim: &Victim, slot: Slot) {
        let writing = PageState::Writing { frame: victim.frame, slot };
        // The flag first: once the word says Cached the frame may be reused at any moment.
        let cached = PageState::Cached { frame: victim.frame, slot: Some(slot), marker: false };
        if self.frame_flags.change(victim.frame, FrameFlag::Writing, FrameFlag::Idle)
            && self.pages.change(victim.page, writing, cached)
        {
            return;
        }
        // Another thread has taken the page, and has marked the frame as an orphan or is about to.
        if self.frame_flags.swap(victim.frame, FrameFlag::Finished) == FrameFlag::Orphan {
            self.free_orphan(victim.frame, slot, SlotEnd::Free);
        }
    }

    /// What becomes of slots that a device has refused to fill, as often as it was asked to.
    pub(crate) fn end_of_refused(&self, span: SlotSpan, error: &io::Error) -> SlotEnd {
        let end = self.devices.refused(span.first, error);
        if end == SlotEnd::Bad {
            count(&self.counters.swap_bad_slots, span.count.into());
        }
        end
    }

    /// The device took them not, for good or for now: the pages stay in RAM until they are reclaimed again.
    fn fail_write(&self, node: &Node, write: &WriteOp, error: &io::Error) {
        let span = SlotSpan { first: write.slot(), count: write.count as u32 };
        let end = self.end_of_refused(span, error);
        let flag = match end {
            SlotEnd::Free => FrameFlag::Finished,
            SlotEnd::Bad => FrameFlag::Failed,
        };
        for (index, victim) in write.victims[..write.count].iter().enumerate() {
            let slot = write.slot_at(index);
            let writing = PageState::Writing { frame: victim.frame, slot };
            // Owning the page again, its content in the frame: it is mapped back, without a slot.
            if self.pages.change(victim.page, writing, PageState::Filling { slot: None }) {
                self.frame_flags.set(victim.frame, FrameFlag::Idle);
                self.map_back(node, victim);
                self.devices.end(SlotSpan { first: slot, count: 1 }, end);
            } else if self.frame_flags.swap(victim.frame, flag) == FrameFlag::Orphan {
                self.free_orphan(victim.frame, slot, end);
            }
        }
        node.lock().writing -= write.count as u32;
        self.announce_freed();
    }

    /// Maps dirty pages again that no device would take, and notes that devices are full.
    pub(crate) fn put_back(&self, node: &Node, victims: &[Victim]) {
        self.shortage.devices_full.store(true, Ordering::Relaxed);
        for victim in victims {
            self.map_back(node, victim);
        }
    }

    /// A page that the caller owns, without a slot, its content in the frame, is mapped again.
    fn map_back(&self, node: &Node, victim: &Victim) {
        let range = PageRange { first: victim.page, count: 1 };
        self.map_in(node, range, FrameRun { first: victim.frame, count: 1 });
        self.publish_resident(node, range, Origin::Again, |_| None);
    }
}
