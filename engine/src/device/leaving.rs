//! The device of a swapoff that is under way, and whether the swapoff has to give up.
//!
//! A page that is swapped in gives its slot on that device up at once, and none goes back to it: otherwise a
//! busy program could keep the device from ever becoming empty. A fault that finds no room anywhere asks for
//! the device before the budget is exceeded, as in the kernel swapoff is the first process that is killed when
//! memory is short.
use crate::base::error::Error;
use crate::base::index::Slot;
use crate::device::Devices;
use crate::device::record::{Device, DeviceState, Holding};
use crate::sys::clock;
use crate::sys::own_fd::Own;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::devices::DeviceId;

/// No swapoff is under way.
const NONE: u32 = 0;

/// How long a thread without room waits for the device before it gives up on it.
const PATIENCE_NS: u64 = 2_000_000_000;

/// The device of the swapoff.
#[derive(Debug, Default)]
pub(super) struct Leaving {
    /// Its index plus one.
    device: AtomicU32,
    /// When it was first asked for, on the monotonic clock; 0 as long as it was not.
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
        // Relaxed would do: a thread that sees the mark late leaves a page that the next sweep finds.
        let leaving = self.leaving.device.load(Ordering::Acquire);
        let is_it = |device: &Device| u32::from(device.id().0) + 1 == leaving;
        let device = self.device_of(slot);
        leaving != NONE && (is_it(device) || device.pack().is_some_and(|pack| is_it(pack.below())))
    }

    /// Asks the swapoff to give its device up; false when there is none, or it has not for too long.
    pub fn ask_for_leaving(&self) -> bool {
        if self.leaving.device.load(Ordering::Acquire) == NONE {
            return false;
        }
        let (asked, now) = (&self.leaving.asked_ns, clock::now_ns());
        let first = asked.compare_exchange(0, now, Ordering::Relaxed, Ordering::Relaxed);
        now.saturating_sub(first.err().unwrap_or(now)) < PATIENCE_NS
    }

    /// Whether a thread has asked for the device.
    pub(crate) fn must_yield(&self) -> bool {
        self.leaving.asked_ns.load(Ordering::Relaxed) > 0
    }
}

impl Devices {
    /// Takes a device off the lists: it gets no new pages.
    ///
    /// # Errors
    /// It is off the lists already.
    pub(crate) fn swapoff_begin(&self, device: &Device) -> Result<(), Error> {
        let mut store = device.store().lock();
        let begun = self.table().swapoff_begin(device.id());
        if begun.is_err() {
            return Err(Error::DevicesChanging);
        }
        if store.state == DeviceState::On {
            self.counts.subtract(store.counts());
        }
        store.state = DeviceState::Leaving;
        drop(store);
        self.set_packs_leaving(device);
        self.set_leaving(Some(device.id()));
        // No slot of the device can come into a buffer any more; what is in them goes back.
        self.bar_buffers();
        Ok(())
    }

    /// Puts a device back on the lists that could not be emptied.
    pub(crate) fn swapoff_failed(&self, device: &Device) {
        let mut store = device.store().lock();
        let mut table = self.table();
        table.swapoff_failed(device.id());
        let is_retired = device.has_failed() || store.holding == Holding::Borrowed;
        if is_retired || store.is_full() {
            table.on_full(device.id());
        } else {
            table.on_not_full(device.id());
        }
        drop(table);
        if is_retired {
            store.state = DeviceState::Retired;
        } else {
            store.state = DeviceState::On;
            self.counts.add(store.counts());
        }
        drop(store);
        self.set_packs_staying(device);
        // After the others: a thread that finds no swapoff under way looks for the device's room once more.
        self.set_leaving(None);
        self.allow_buffers();
    }

    /// Takes an empty device out of use; the caller closes its file.
    ///
    /// # Panics
    /// When it holds a page.
    pub(crate) fn swapoff_done(&self, device: &Device) -> Option<Own<std::fs::File>> {
        assert_eq!(device.used(), 0, "a device that is let go of holds no page");
        self.remove_packs(device);
        self.forget_silence(device);
        self.table().swapoff_done(device.id());
        self.set_leaving(None);
        let file = device.remove();
        if self.list().next().is_some() {
            self.allow_buffers();
        }
        self.changes.fetch_add(1, Ordering::Release);
        file
    }
}
