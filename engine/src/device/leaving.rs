//! The device that is being emptied, if there is one, and whether its going still is worth it.
//!
//! A page that is brought in gives its slot on that device up at once, and none goes back to it: otherwise a
//! busy program could keep the device from ever becoming empty. A fault that finds no room anywhere asks for
//! the device back before the budget is exceeded, as in the kernel swapoff is the first that is killed when
//! memory is short.
use crate::base::error::Error;
use crate::base::index::Slot;
use crate::device::Devices;
use crate::device::record::{Device, DeviceState};
use crate::sys::clock;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::devices::DeviceId;

/// No device is going.
const NONE: u32 = 0;

/// How long somebody without room waits for the device before giving up on it.
const PATIENCE_NS: u64 = 2_000_000_000;

/// The device that is going.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Its index plus one.
    device: AtomicU32,
    /// When it was first asked for; 0 as long as it was not.
    asked_ns: AtomicU64,
}

impl Devices {
    pub(crate) fn set_leaving(&self, device: Option<DeviceId>) {
        self.leaving.asked_ns.store(0, Ordering::Relaxed);
        let index = device.map_or(NONE, |id| u32::from(id.0) + 1);
        self.leaving.device.store(index, Ordering::Release);
    }

    /// Whether the slot's device is being emptied.
    pub fn is_leaving(&self, slot: Slot) -> bool {
        // Relaxed would do: who sees the mark late leaves a page that the next sweep finds.
        let leaving = self.leaving.device.load(Ordering::Acquire);
        leaving != NONE && u32::from(self.device_of(slot).id().0) + 1 == leaving
    }

    /// Asks for the device back; false when there is none, or it does not come.
    pub fn ask_for_leaving(&self) -> bool {
        if self.leaving.device.load(Ordering::Acquire) == NONE {
            return false;
        }
        let (asked, now) = (&self.leaving.asked_ns, clock::now_ns());
        let first = asked.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        now.saturating_sub(first.err().unwrap_or(now)) < PATIENCE_NS
    }

    /// Whether somebody has asked for the device that is going.
    pub(crate) fn must_yield(&self) -> bool {
        self.leaving.asked_ns.load(Ordering::Relaxed) > 0
    }
}

impl crate::device::Devices {
    /// Takes a device off the lists.
    pub(crate) fn swapoff_begin(&self, device: &Device) -> Result<(), Error> {
        let mut store = device.store().lock();
        let begun = self.table().swapoff_begin(device.id());
        if begun.is_err() {
            return Err(Error::DevicesChanging);
        }
        if store.state == DeviceState::On {
            let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
            self.account(used - pages, -pages);
        }
        store.state = DeviceState::Leaving;
        drop(store);
        self.set_leaving(Some(device.id()));
        // No slot of the device can come into a buffer any more; what is in them goes back.
        self.bar_buffers();
        Ok(())
    }

    /// Puts a device back whose pages could not all be brought back.
    pub(crate) fn swapoff_failed(&self, device: &Device) {
        let mut store = device.store().lock();
        let mut table = self.table();
        table.swapoff_failed(device.id());
        let is_retired = device.has_failed();
        if is_retired || store.slots.is_full() {
            table.on_full(device.id());
        } else {
            table.on_not_full(device.id());
        }
        drop(table);
        if is_retired {
            store.state = DeviceState::Retired;
        } else {
            store.state = DeviceState::On;
            let (pages, used) = (i64::from(store.slots.pages()), i64::from(store.slots.used()));
            self.account(pages - used, pages);
        }
        drop(store);
        // Behind the others: who finds no device going looks for its room once more.
        self.set_leaving(None);
        self.allow_buffers();
    }

    /// Forgets a device without pages; its file is closed by the caller.
    pub(crate) fn swapoff_done(&self, device: &Device) -> Option<std::fs::File> {
        let id: DeviceId = device.id();
        assert_eq!(device.used(), 0, "a device that is let go of holds no page");
        self.table().swapoff_done(id);
        self.set_leaving(None);
        let file = device.remove();
        if self.list().next().is_some() {
            self.allow_buffers();
        }
        self.changes.fetch_add(1, Ordering::Release);
        file
    }
}
