//! The device that is being emptied, if there is one, and whether its going still is worth it.
//!
//! A page that is brought in gives its slot on that device up at once, and none goes back to it: otherwise a
//! busy program could keep the device from ever becoming empty. A fault that finds no room anywhere asks for
//! the device back before the budget is exceeded, as in the kernel swapoff is the first that is killed when
//! memory is short.
use super::Devices;
use crate::page::Slot;
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
