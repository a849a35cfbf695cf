//! A batch of pages moves on: read from one device, written to another in requests of up to 1 MiB, and then each page's
//! word exchanges its slot.
//!
//! Nobody owns the pages meanwhile: what was read can be another page's by now, or another content of the same. The
//! checksum of what was written tells, compared with that of the slot while the page is owned.
use super::{Mover, Moving};
use crate::base::counters::count;
use crate::base::index::{NodeId, PageIndex, PageRange, Slot};
use crate::device::SlotSpan;
use crate::device::record::Device;
use crate::device::retry::{BadSpot, Parts};
use crate::state::core::Core;
use crate::state::page::{PageState, Waiters};
use crate::sys::request::{Direction, Pieces};
use crate::sys::{PAGE_BYTES, pages};
use std::io;
use userswap_policy::retry::Tries;
use userswap_policy::slots::SlotRun;

/// What became of a batch.
pub(super) struct Moved {
    /// Pages that are on the other device now.
    pub(super) moved: u32,
    /// Whether there was room for all of them, and none had to be waited for.
    pub(super) goes_on: bool,
}

impl Core {
    /// Moves the pages of `mover.moving` on from a device.
    pub(super) fn move_batch(&self, mover: &mut Mover, device: &Device) -> Moved {
        let near = self.node_here().id;
        let address = mover.buffer.address();
        let packed = device.zram().map_or(0, |zram| self.move_packed(mover, device, &zram));
        let has_come = self.read_moving(&mut mover.moving, device, address, near);
        let (mut done, mut moved) = (0, packed);
        while done < mover.moving.len() {
            let want = (mover.moving.len() - done) as u32;
            let Some(span) = self.devices.allocate_behind(device, want, near) else { break };
            let part = &mover.moving[done..done + span.count as usize];
            if self.write_moving(part, span, address + done * PAGE_BYTES, near) {
                count(&self.counters.pswpout, span.count.into());
                let from_memory = u32::from(device.is_compressed()) * span.count;
                count(&self.counters.zswpwb, from_memory.into());
                moved += self.exchange_all(part, device, span);
            }
            done += part.len();
        }
        count(&self.counters.swap_demoted, moved.into());
        if device.is_compressed() {
            self.demotion.note_moved_on(moved.into());
        }
        self.settle_stored(self.node_here());
        self.announce_freed();
        Moved { moved, goes_on: has_come && done == mover.moving.len() }
    }

    /// Reads the pages to memory that follows `address`; those that do not come as they were written are left out. A device that
    /// has trouble is not waited for, as a fork waits for whoever is inside the gate: false then, and what was not read is left
    /// out.
    fn read_moving(
        &self,
        moving: &mut Vec<Moving>,
        device: &Device,
        address: usize,
        near: NodeId,
    ) -> bool {
        let read = |at: usize, one: &Moving, bytes| {
            let pieces = Pieces::one(at, bytes);
            let outcome = self.devices.read_without_wait(device.slot(one.number), &pieces, near);
            count(&self.counters.swap_read_errors, outcome.is_err().into());
            outcome
        };
        let mut count_read = 0;
        for run in moving.chunk_by(|one, next| next.number == one.number + 1) {
            let to = address + count_read * PAGE_BYTES;
            let mut outcome = read(to, &run[0], run.len() * PAGE_BYTES);
            if outcome == Err(BadSpot(true)) {
                // What can be had comes alone, and the rest is seen by its checksum.
                let alone = run.iter().enumerate();
                let mut all =
                    alone.map(|(index, one)| read(to + index * PAGE_BYTES, one, PAGE_BYTES));
                outcome = all.find(|one| *one == Err(BadSpot(false))).unwrap_or(Ok(()));
            }
            if outcome.is_err() {
                break;
            }
            count_read += run.len();
        }
        let is_whole = count_read == moving.len();
        moving.truncate(count_read);
        self.leave_out_changed(moving, device, address);
        is_whole
    }

    /// Leaves out pages that are not as they were written; those behind them take their places.
    fn leave_out_changed(&self, moving: &mut Vec<Moving>, device: &Device, address: usize) {
        let (mut from, mut kept) = (address, address);
        moving.retain_mut(|one| {
            let slot = device.slot(one.number);
            let bytes = pages::view_mut(from, PAGE_BYTES);
            let opens = !device.is_encrypted() || self.devices.open(slot, bytes);
            one.checksum = self.checksums.of(bytes);
            let has_come = opens && one.checksum == self.devices.checksum(slot);
            if has_come {
                if kept != from {
                    pages::copy(kept, from, 1);
                }
                kept += PAGE_BYTES;
            }
            from += PAGE_BYTES;
            has_come
        });
    }

    /// Writes pages to slots that no word names yet; false if the device has refused them for good.
    fn write_moving(
        &self,
        moving: &[Moving],
        span: SlotSpan,
        address: usize,
        near: NodeId,
    ) -> bool {
        for (slot, one) in span.slots().zip(moving) {
            self.devices.set_checksum(slot, one.checksum);
            self.devices.set_page(slot, one.page);
        }
        self.write_or_mark(span, address, near)
    }

    /// Fills slots, sealed where their device is encrypted; those that it refuses are never used again.
    pub(super) fn write_or_mark(&self, span: SlotSpan, address: usize, near: NodeId) -> bool {
        let slots = span.count as usize;
        if self.devices.is_encrypted(span.first) {
            self.devices.seal(span.first, slots, |index| {
                pages::view_mut(address + index * PAGE_BYTES, PAGE_BYTES)
            });
        }
        let outcome = self.write_span(span, &Pieces::one(address, slots * PAGE_BYTES), near);
        if let Err(error) = &outcome {
            self.devices.end(span, self.end_of_refused(span, error));
        }
        outcome.is_ok()
    }

    fn write_span(&self, span: SlotSpan, pieces: &Pieces, near: NodeId) -> io::Result<()> {
        let (mut tries, mut not_before_ns) = (Tries::default(), 0);
        loop {
            let request = self.devices.request(Direction::Write, span.first, pieces.bytes(), near);
            let outcome = request.no_sooner_than(not_before_ns).transfer(pieces);
            self.devices.note_end(Direction::Write, span.first, pieces.bytes(), &outcome);
            let Err(error) = outcome else { return Ok(()) };
            count(&self.counters.swap_write_errors, 1);
            let asked = (Direction::Write, span.first);
            let again = self.devices.again(asked, &mut tries, &error, Parts::One);
            not_before_ns = again.ok_or(error)?;
            count(&self.counters.swap_retries, 1);
        }
    }

    /// Gives pages the slots that they were written to, and frees those that they had, or the new ones of pages that have
    /// changed meanwhile; returns how many have moved.
    pub(super) fn exchange_all(&self, moving: &[Moving], from: &Device, to: SlotSpan) -> u32 {
        let (mut moved, mut run) = (0, SlotRun { first: 0, count: 0 });
        let free = |run: SlotRun| {
            if run.count > 0 {
                self.free_slots(from.span(run));
            }
        };
        for (one, new) in moving.iter().zip(to.slots()) {
            if !self.exchange(one.page, from.slot(one.number), new, one.checksum) {
                self.free_slot(new);
                continue;
            }
            moved += 1;
            if run.first + run.count == one.number {
                run.count += 1;
            } else {
                free(run);
                run = SlotRun { first: one.number, count: 1 };
            }
        }
        free(run);
        moved
    }

    /// A swapped page is on another slot from now on, if it still has the content that was written there.
    fn exchange(&self, page: PageIndex, old: Slot, new: Slot, checksum: u64) -> bool {
        let seen = self.pages.load(page);
        let filling = PageState::Filling { slot: Some(old) };
        if seen.state() != (PageState::Swapped { slot: old })
            || !self.pages.claim(page, seen, filling)
        {
            return false;
        }
        // The slot is this page's as long as it is owned: its checksum is that of its content.
        let is_same = self.devices.checksum(old) == checksum;
        let waiters = match is_same {
            true => self.pages.restore_on(page, seen, new),
            false => self.pages.restore(page, seen),
        };
        if waiters == Waiters::Some {
            self.wake_faults(PageRange { first: page, count: 1 });
        }
        is_same
    }
}
