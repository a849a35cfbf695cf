//! Writes that a device refused, and slots that are never used again.
use super::record::{Device, DeviceState, Store};
use super::retry::is_passing;
use super::{Devices, SlotCounts, SlotEnd, SlotSpan};
use crate::base::index::Slot;
use crate::base::log;
use std::io;
use std::sync::atomic::Ordering;
use userswap_policy::slots::SlotRun;

impl Devices {
    /// A write was given up: what becomes of its slots. A device is given up only where the trouble was not of the kind that
    /// passes, or there is no other.
    pub(crate) fn refused(&self, slot: Slot, error: &io::Error) -> SlotEnd {
        let device = self.device_of(self.under(slot));
        // It is given up when it was waited for to the end, because there was no other.
        let is_given_up = device.is_given_up.load(Ordering::Relaxed);
        if !is_passing(error) || is_given_up && !self.have_room_beside(device) {
            self.note_write_error(slot, error);
            return SlotEnd::Bad;
        }
        self.turn_away(device, error);
        // Servers are told to end what they may still carry out; who else might be late with it nobody knows.
        if device.is_remote() { SlotEnd::Free } else { SlotEnd::Bad }
    }

    /// Slots are not needed any more.
    pub fn end(&self, span: SlotSpan, end: SlotEnd) {
        match end {
            SlotEnd::Free => self.free(span),
            SlotEnd::Bad => self.mark_bad(span),
        }
    }

    /// Takes slots out of use for good after a write error.
    pub fn mark_bad(&self, span: SlotSpan) {
        let device = self.device_of(span.first);
        let run = SlotRun { first: device.number_of(span.first), count: span.count };
        match device.pack() {
            Some(pack) => self.spoil(device, &pack, run),
            None => self.withdraw(device, &mut device.store().lock(), run),
        }
    }

    /// The same, of a device whose lock is held and that is no pack.
    pub(super) fn withdraw(&self, device: &Device, store: &mut Store, run: SlotRun) {
        device.forget(run);
        (run.first..run.first + run.count).for_each(|number| store.slots.mark_bad(number));
        if store.state == DeviceState::On {
            self.counts.subtract(SlotCounts { free: 0, total: i64::from(run.count) });
        }
        self.table().resize(device.id(), store.slots.pages());
        self.note_full(device, store);
    }

    /// Counts a request that the device refused; after too many it gets no more pages.
    pub(super) fn note_write_error(&self, slot: Slot, error: &io::Error) {
        let device = self.device_of(slot);
        let (label, _) = self.describe(slot);
        log::write_error(&label.name, error.raw_os_error().unwrap_or(0));
        device.errors.fetch_add(1, Ordering::Relaxed);
        if !device.has_failed() {
            return;
        }
        let mut store = device.store().lock();
        if store.state == DeviceState::On {
            store.state = DeviceState::Retired;
            self.counts.subtract(store.counts());
            self.table().on_full(device.id());
        }
    }
}
