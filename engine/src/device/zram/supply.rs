//! Compressed devices among the others: one that has no memory left is full, as a disk is that has no blocks.
use super::{Stored, Zram};
use crate::base::error::Error;
use crate::device::Devices;
use crate::device::open::{DeviceKind, OpenDevice};
use crate::device::record::{Device, DeviceState, Store, Supply, slots_of};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::slots::SlotRun;

/// Pages that a device must have memory for again before it is asked: it is not to come and go with each page.
const ROOM_AGAIN: u32 = 256;

impl Devices {
    /// The memory of a device that is to be taken into use, if it is a compressed one.
    pub(in crate::device) fn zram_for(
        &self,
        opened: &OpenDevice,
    ) -> Result<Option<Arc<Zram>>, Error> {
        let DeviceKind::Compressed(compression) = opened.kind else { return Ok(None) };
        let zram = Zram::new(slots_of(opened.bytes), compression, self.allowance.clone());
        zram.map(|zram| Some(Arc::new(zram))).map_err(Error::Tables)
    }

    /// Makes sure that slots which were just allocated can be filled; if not, they are free again, and the device is
    /// full for now.
    pub(in crate::device) fn supplies(&self, device: &Device, run: SlotRun) -> bool {
        let Some(zram) = device.zram() else { return true };
        if zram.reserve(run) {
            return true;
        }
        let mut store = device.store().lock();
        store.slots.free(run);
        // The thread that searches gives back what it has reserved; of the device nothing can be had for now.
        if store.state != DeviceState::On || store.supply != Supply::Enough {
            // It was found short, or left, meanwhile.
            self.forgo(&store, run.count);
        }
        self.set_supply(device, &mut store, Supply::Short);
        // With the lock held: whoever has taken the count down looks at the device after this.
        self.shortages.fetch_add(1, Ordering::Relaxed);
        false
    }

    /// Puts a device back among those that are asked if there is memory again; its lock is held.
    pub(in crate::device) fn supply_again(&self, device: &Device, store: &mut Store) {
        if store.supply != Supply::Short
            || device.zram().is_some_and(|zram| !zram.has_room(ROOM_AGAIN))
        {
            return;
        }
        self.set_supply(device, store, Supply::Enough);
    }

    /// Whether there ever was a compressed device.
    pub(crate) fn has_compressed(&self) -> bool {
        self.compressed.load(Ordering::Relaxed) > 0
    }

    /// Gives memory back that no compressed page needs, and devices a chance that had none; false where there never
    /// was a compressed device.
    pub(crate) fn trim_compressed(&self) -> bool {
        if !self.has_compressed() {
            return false;
        }
        let is_short = self.shortages.swap(0, Ordering::Relaxed) > 0;
        for device in self.list() {
            let Some(zram) = device.zram() else { continue };
            zram.trim();
            if is_short {
                self.look_for_supply(device);
            }
        }
        true
    }

    /// Moves compressed pages together where that gives memory back; false where nothing was to be done.
    pub(crate) fn compact_compressed(&self) -> bool {
        let zrams = self.list().filter_map(Device::zram);
        self.has_compressed() && zrams.filter(|zram| zram.compact()).count() > 0
    }

    pub(in crate::device) fn look_for_supply(&self, device: &Device) {
        self.look_for_answer(device);
        let mut store = device.store().lock();
        self.supply_again(device, &mut store);
        if store.supply == Supply::Short {
            self.shortages.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl Device {
    /// What is stored on it, if it is a compressed one.
    pub fn stored(&self) -> Option<Stored> {
        self.zram().map(|zram| zram.stored())
    }

    /// Slots hold nothing of worth any more; its lock is held.
    pub(in crate::device) fn forget(&self, run: SlotRun) {
        if let Some(zram) = self.zram() {
            zram.free(run);
        }
    }
}
