//! Packs among the devices: one is made beside the device below it when first something moves on there compressed, gives
//! that device's slots back as its own become free, and leaves with it.
use super::open::OpenDevice;
use super::pack::{Health, Pack};
use super::record::{Device, DeviceState};
use super::sysfs::Hardware;
use super::zram::Zram;
use super::{Devices, SlotSpan};
use crate::base::error::Error;
use crate::base::index::Slot;
use crate::sys::PAGE_BYTES;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::banks::BANK_SLOTS;
use userswap_policy::devices::DEVICES_MAX;
use userswap_policy::slots::SlotRun;

/// Slots for each one below, up to a bank of numbers: pages that compress better than that leave some of its room unused.
const SLOTS_FOR_ONE: u32 = 4;

/// What is packed on a device: so many pages share so many of its slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Packed {
    /// The pages.
    pub pages: u32,
    /// The slots.
    pub slots: u32,
}

impl Devices {
    /// The packs on a device.
    pub(crate) fn packs_on(&self, below: &Device) -> impl Iterator<Item = &Device> {
        let id = below.id();
        self.list_all()
            .filter(move |device| device.pack().is_some_and(|pack| pack.below().id() == id))
    }

    /// The pack of a compressed device's pages on another device, if there is one: that of any whose pages its codecs unpack.
    pub(crate) fn pack_of(&self, below: &Device, zram: &Zram) -> Option<&Device> {
        let unpacks = |pack: Arc<Pack>| pack.codecs().unpack_all_of(zram.codecs());
        self.packs_on(below).find(|device| device.pack().is_some_and(unpacks))
    }

    /// Makes one. One caller at a time.
    ///
    /// # Errors
    /// No memory for its tables; half of the devices that there can be, the rest of which is the user's.
    pub(crate) fn make_pack(&self, below: &Device, zram: &Zram) -> Result<(), Error> {
        let label = below.label().expect("a device in use has a label");
        let slots = label.max.saturating_mul(SLOTS_FOR_ONE).min(BANK_SLOTS);
        let bytes = u64::from(slots) * PAGE_BYTES as u64;
        if self.list_all().count() >= DEVICES_MAX / 2 {
            return Err(Error::TooManyDevices(DEVICES_MAX));
        }
        let record = self.free_record()?;
        let bank = self.banks().take(slots).ok_or(Error::NoSlotNumbers(bytes))?;
        let on = (self.records[usize::from(below.id().0)].clone(), label.max);
        let pack = Pack::new(slots, on, zram.codecs().clone(), self.cipher.clone());
        record.set_pack(Some(Arc::new(pack.map_err(Error::Tables)?)));
        let opened = OpenDevice::packed(bytes, below.tier());
        let hardware = Hardware { node: label.node, is_rotational: below.is_rotational() };
        let name = format!("packed on {}", label.name);
        let made = record.install(opened, name, hardware, self.buffers.cpus());
        let made = made.map_err(Error::Tables).and_then(|()| {
            let mut store = record.store().lock();
            self.number(record, bank, slots);
            store.state = DeviceState::Retired;
            let (mut table, tier) = (self.table(), below.tier().unwrap_or(0));
            // Nobody but who moves pages on asks it: in the table it is full.
            table.swapon_in(tier, label.node, Some(0), 1).map_err(Error::Swapon)?;
            table.on_full(record.id());
            Ok(())
        });
        if made.is_err() {
            drop(record.remove());
            return made;
        }
        self.indexes_used.fetch_max(u32::from(record.id().0) + 1, Ordering::Relaxed);
        self.changes.fetch_add(1, Ordering::Release);
        Ok(())
    }

    /// The slot that is read for a page on one: of a page that is packed, the one below it. Of a page that nobody has claimed
    /// it is a hint.
    pub fn under(&self, slot: Slot) -> Slot {
        let device = self.device_of(slot);
        let pack = device.pack();
        pack.and_then(|pack| pack.slot_below(device.number_of(slot))).unwrap_or(slot)
    }

    /// Slots of a pack that follow each other, up to `want`.
    pub(crate) fn allocate_packed(&self, device: &Device, want: u32) -> Option<SlotSpan> {
        let mut store = device.store().lock();
        // Before it has its numbers, and once it goes, it has another state.
        if store.state != DeviceState::Retired {
            return None;
        }
        let run = store.slots.allocate(want)?;
        drop(store);
        device.slots_ever.fetch_max(run.first + run.count, Ordering::Relaxed);
        Some(device.span(run))
    }

    /// Slots hold nothing of worth any more; the device's lock is held.
    pub(super) fn forget(&self, device: &Device, run: SlotRun) {
        device.forget(run);
        let Some(pack) = device.pack() else { return };
        let below = pack.below();
        pack.free(run, |number, health| {
            let mut store = below.store().lock_counted(&below.freeing);
            let run = SlotRun { first: number, count: 1 };
            match health {
                Health::Good => self.free_run(below, &mut store, run),
                Health::Bad => self.withdraw(below, &mut store, run),
            }
        });
    }

    /// A page did not come back from a slot of a pack, which it gives up: with the last page the one below goes for good.
    pub(super) fn spoil(&self, device: &Device, pack: &Pack, run: SlotRun) {
        (run.first..run.first + run.count).for_each(|number| pack.spoil(number));
        self.free_run(device, &mut device.store().lock(), run);
    }

    /// Packs that hold nothing go: for each fork else there would be another. The gate is closed, the buffers drained.
    pub(super) fn remove_empty_packs(&self) {
        let empty = |device: &&Device| device.is_packed() && device.used() == 0;
        while let Some(device) = self.list_all().find(empty) {
            self.remove_pack(device);
        }
    }

    fn remove_pack(&self, device: &Device) {
        assert_eq!(device.used(), 0, "a pack that is let go of holds no page");
        let mut table = self.table();
        // Unless the device below is going, and this one has begun to.
        let _ = table.swapoff_begin(device.id());
        table.swapoff_done(device.id());
        drop(table);
        drop(device.remove());
    }

    /// Packs on a device that is given up, or is let go of, go with it.
    pub(super) fn set_packs_leaving(&self, below: &Device) {
        for device in self.packs_on(below) {
            let _ = self.table().swapoff_begin(device.id());
            device.store().lock().state = DeviceState::Leaving;
        }
    }

    /// They stay after all.
    pub(super) fn set_packs_staying(&self, below: &Device) {
        for device in self.packs_on(below) {
            let mut store = device.store().lock();
            let mut table = self.table();
            table.swapoff_failed(device.id());
            table.on_full(device.id());
            store.state = DeviceState::Retired;
        }
    }

    /// The device below is empty, and so are they.
    pub(super) fn remove_packs(&self, below: &Device) {
        while let Some(device) = self.packs_on(below).next() {
            self.remove_pack(device);
        }
    }

    /// What is packed on a device.
    pub fn packed_on(&self, device: &Device) -> Packed {
        self.packs_on(device).fold(Packed { pages: 0, slots: 0 }, |sum, device| Packed {
            pages: sum.pages + device.used(),
            slots: sum.slots + device.pack().map_or(0, |pack| pack.held()),
        })
    }

    /// Pages on a device, those that are packed there among them.
    pub(crate) fn pages_with(&self, device: &Device) -> u32 {
        let packed = self.packed_on(device);
        (device.used() + packed.pages).saturating_sub(packed.slots)
    }
}
