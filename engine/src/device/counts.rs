//! How many slots there are: what allocation reserves from, and what reports and room checks ask.
use super::Devices;
use super::record::{Device, DeviceState, Store, Supply};
use crate::base::index::Slot;
use std::sync::atomic::{AtomicI64, Ordering};

/// Slots, as counted: less than there are while a thread searches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotCounts {
    /// Slots that can be allocated.
    pub free: i64,
    /// Usable slots.
    pub total: i64,
}

/// How full all devices are, those that take no more pages included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotUsage {
    /// Pages on slots: those that share one are counted each.
    pub used: u64,
    /// Usable slots.
    pub usable: u64,
}

/// How many of the slots that were given out went to CPUs near their device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SlotsPlaced {
    /// Slots given to CPUs of their device's own node.
    pub near: u64,
    /// Slots given to CPUs of any node.
    pub all: u64,
}

/// The counts of the devices that take pages.
#[derive(Debug, Default)]
pub(super) struct Counts {
    free: AtomicI64,
    total: AtomicI64,
}

impl Counts {
    /// Subtracts in advance, so that of many searchers none finds less than it was promised.
    pub(super) fn reserve(&self, want: u32) -> Option<u32> {
        let take = |free: i64| (free > 0).then(|| free - i64::from(want).min(free));
        let before = self.free.fetch_update(Ordering::AcqRel, Ordering::Relaxed, take).ok()?;
        Some(i64::from(want).min(before) as u32).filter(|granted| *granted > 0)
    }

    /// So many slots can be allocated again.
    pub(super) fn add_free(&self, slots: u32) {
        self.free.fetch_add(i64::from(slots), Ordering::AcqRel);
    }

    /// The slots of a device that takes pages from now on.
    pub(super) fn add(&self, slots: SlotCounts) {
        self.free.fetch_add(slots.free, Ordering::AcqRel);
        self.total.fetch_add(slots.total, Ordering::AcqRel);
    }

    /// Slots that take no pages from now on.
    pub(super) fn subtract(&self, slots: SlotCounts) {
        self.free.fetch_sub(slots.free, Ordering::AcqRel);
        self.total.fetch_sub(slots.total, Ordering::AcqRel);
    }
}

impl Store {
    /// What the device adds to the counts while it takes pages.
    pub(crate) fn counts(&self) -> SlotCounts {
        let (pages, used) = (i64::from(self.slots.pages()), i64::from(self.slots.used()));
        match self.supply {
            Supply::Enough => SlotCounts { free: pages - used, total: pages },
            // No more than it holds, whatever it was made for: how full all are goes by that.
            Supply::Short | Supply::Silent => SlotCounts { free: 0, total: used },
        }
    }
}

impl Devices {
    /// Slots of the devices that take pages.
    pub fn room(&self) -> SlotCounts {
        SlotCounts {
            free: self.counts.free.load(Ordering::Acquire),
            total: self.counts.total.load(Ordering::Acquire),
        }
    }

    /// Whether slots should be given up by pages that are swapped in: the devices are more than half full.
    pub fn is_crowded(&self) -> bool {
        let free = self.counts.free.load(Ordering::Relaxed);
        free * 2 < self.counts.total.load(Ordering::Relaxed)
    }

    /// Whether free slots of a device can be filled is another from now on; its lock is held.
    pub(super) fn set_supply(&self, device: &Device, store: &mut Store, supply: Supply) {
        let is_on = store.state == DeviceState::On;
        if is_on {
            self.counts.subtract(store.counts());
        }
        store.supply = supply;
        if is_on {
            self.counts.add(store.counts());
            match store.is_full() {
                true => self.table().on_full(device.id()),
                false => self.table().on_not_full(device.id()),
            }
        }
    }

    /// Slots that were reserved and given out come back to a device that takes no pages any more, where they are counted as
    /// used, if at all: what was reserved is gone with it.
    pub(super) fn forgo(&self, store: &Store, slots: u32) {
        let (slots, is_on) = (i64::from(slots), store.state == DeviceState::On);
        self.counts.subtract(SlotCounts { free: slots, total: if is_on { slots } else { 0 } });
    }

    /// Whether a page that is swapped in should keep its slot, for the case that it leaves unchanged. Not in compressed memory:
    /// the program's pages would have less RAM for what is there twice (as zram's, mm/memory.c of Linux).
    pub fn keeps_copy(&self, slot: Slot) -> bool {
        !self.is_crowded() && !self.is_leaving(slot) && !self.device_of(slot).is_compressed()
    }

    /// Slots of all devices; takes each device's lock in turn.
    pub fn usage(&self) -> SlotUsage {
        let mut sum = SlotUsage { used: 0, usable: 0 };
        for device in self.list_all() {
            let store = device.store().lock();
            let used = u64::from(store.used());
            drop(store);
            match device.pack() {
                // Its pages, in place of the slots that they are on.
                Some(pack) => sum.used = (sum.used + used).saturating_sub(pack.held().into()),
                None => {
                    sum.used += used;
                    sum.usable += u64::from(device.pages());
                }
            }
        }
        sum.used = sum.used.saturating_sub(self.buffers.slots());
        sum
    }

    /// How the slots given out since their devices were taken into use went to near and far CPUs.
    pub fn slots_placed(&self) -> SlotsPlaced {
        self.list().fold(SlotsPlaced { near: 0, all: 0 }, |sum, device| {
            let placed = |node: usize| device.placed[node].load(Ordering::Relaxed);
            let own = device.label().and_then(|label| label.node);
            let all = (0..device.placed.len()).map(placed).sum::<u64>();
            let near = own.map_or(0, |own| placed(own.0 as usize));
            SlotsPlaced { near: sum.near + near, all: sum.all + all }
        })
    }

    /// Free and total slots agree with what the devices say; no thread is searching.
    pub fn is_balanced(&self) -> bool {
        let on = |device: &Device| {
            let store = device.store().lock();
            (store.state == DeviceState::On).then(|| store.counts())
        };
        let mut sum = SlotCounts { free: 0, total: 0 };
        for slots in self.list().filter_map(on) {
            sum.free += slots.free;
            sum.total += slots.total;
        }
        sum == self.room()
    }
}
