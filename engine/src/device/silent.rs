//! Devices that take no writes for the moment, beside others that do.
//!
//! A page that is read has no other place to come from, and waits for its device (`retry`); one that leaves can go
//! elsewhere. So a device that takes no write for a while is off the lists as long as others have room, and one request
//! tries now and then whether it answers again.
use super::Devices;
use super::record::{Device, DeviceState, Store, Supply};
use crate::base::log;
use crate::sys::clock;
use std::io;
use std::sync::atomic::Ordering;

/// How long a write is repeated where others have room: what a hiccup of a network or a restart takes.
const PATIENCE_NS: u64 = 2_000_000_000;

/// How often one write tries a device that does not answer.
const TRIAL_NS: u64 = 10_000_000_000;

/// Slots that others must have free for that: a few batches of every reclaimer.
const ROOM_MIN: i64 = 1024;

impl Devices {
    /// How long a write to a device is repeated that meets trouble which passes; None where it is to be waited for, as there
    /// is no other place.
    pub(super) fn patience_to_write_ns(&self, device: &Device) -> Option<u64> {
        if !self.have_room_beside(device) {
            return None;
        }
        Some(if device.is_silent() { 0 } else { PATIENCE_NS })
    }

    pub(super) fn have_room_beside(&self, device: &Device) -> bool {
        let store = device.store().lock();
        let own = if store.state == DeviceState::On { store.counts().free } else { 0 };
        drop(store);
        self.room().free - own >= ROOM_MIN
    }

    /// Takes a device off the lists; says so the first time.
    pub(super) fn turn_away(&self, device: &Device, error: &io::Error) {
        let mut store = device.store().lock();
        let is_first = device.silent_ns.swap(clock::now_ns().max(1), Ordering::Relaxed) == 0;
        self.silences.fetch_add(u32::from(is_first), Ordering::Relaxed);
        self.silence(device, &mut store);
        drop(store);
        // What buffers hold of it would be written to next.
        self.drain();
        if let Some(label) = device.label().filter(|_| is_first) {
            log::device_is_silent(&label.name, error.raw_os_error().unwrap_or(0));
        }
    }

    /// Slots of a device were given out: of one that is being tried no more are, until it has answered.
    pub(super) fn note_trial(&self, device: &Device) {
        if device.is_silent() && self.have_room_beside(device) {
            let mut store = device.store().lock();
            // It may have answered meanwhile, and nobody would ask it again.
            if device.is_silent() {
                self.silence(device, &mut store);
            }
        }
    }

    /// A write to a device has succeeded.
    pub(super) fn note_answer(&self, device: &Device) {
        // Almost always it says no already: no shared line is written to.
        if !device.is_silent() || device.silent_ns.swap(0, Ordering::Relaxed) == 0 {
            return;
        }
        self.silences.fetch_sub(1, Ordering::Relaxed);
        self.ask_again(device, &mut device.store().lock());
        if let Some(label) = device.label() {
            log::device_answers(&label.name);
        }
    }

    /// Has devices tried that have not answered for a while; quickly told where there are none.
    pub(crate) fn try_silent(&self) {
        if self.silences.load(Ordering::Relaxed) > 0 {
            self.list().for_each(|device| self.try_if_due(device));
        }
    }

    fn try_if_due(&self, device: &Device) {
        let (silent_ns, now) = (&device.silent_ns, clock::now_ns());
        let since = silent_ns.load(Ordering::Relaxed);
        let is_due = since != 0 && now.saturating_sub(since) >= TRIAL_NS;
        let order = Ordering::Relaxed;
        // One at a time: the next is due after as long.
        if is_due && silent_ns.compare_exchange(since, now, order, order).is_ok() {
            self.ask_again(device, &mut device.store().lock());
        }
    }

    /// There is no room elsewhere, or so it seems.
    pub(super) fn look_for_answer(&self, device: &Device) {
        if device.is_silent() && !self.have_room_beside(device) {
            self.ask_again(device, &mut device.store().lock());
        }
    }

    /// How many of `want` slots are given out at once: of a device that is being tried one.
    pub(super) fn trial_size(&self, device: &Device, want: u32) -> u32 {
        if device.is_silent() && self.have_room_beside(device) { 1 } else { want }
    }

    /// The device leaves: the next one of its record has not been turned away.
    pub(super) fn forget_silence(&self, device: &Device) {
        if device.silent_ns.swap(0, Ordering::Relaxed) != 0 {
            self.silences.fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Takes a device off the lists, unless it is off them for want of memory; its lock is held.
    fn silence(&self, device: &Device, store: &mut Store) {
        if store.supply == Supply::Enough {
            self.set_supply(device, store, Supply::Silent);
        }
    }

    /// Puts a device back on the lists that was off them for its silence; its lock is held.
    fn ask_again(&self, device: &Device, store: &mut Store) {
        if store.supply == Supply::Silent {
            self.set_supply(device, store, Supply::Enough);
        }
    }
}

impl Device {
    /// Whether it has been turned away, and has taken no write since.
    pub fn is_silent(&self) -> bool {
        self.silent_ns.load(Ordering::Relaxed) != 0
    }
}
