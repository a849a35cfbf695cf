//! A device and those behind it: whether its pages should move on, and where to.
//!
//! Behind a device are those of higher tiers. Where devices have no tiers, compressed memory is in front of every device
//! that is not.
use super::record::{Device, DeviceState};
use super::spec::{SpecError, SwapSpec};
use super::{Devices, SlotSpan};
use crate::base::error::Error;
use crate::base::index::{NodeId, Slot};
use crate::sys::PAGE_BYTES;
use userswap_policy::devices::{DEVICES_MAX, DeviceId, Search};
use userswap_policy::tiers::Room;

impl Devices {
    /// Whether pages should move on from some device; quickly told.
    pub fn is_any_short(&self) -> bool {
        self.list().any(|device| self.is_short(device))
    }

    /// The first device from which pages should move on, and how many, if another behind it has room; of a device on which
    /// pages are packed too, what takes more of its slots. None of those from which none move.
    pub(crate) fn shortest(&self, stuck: &[DeviceId]) -> Option<(DeviceId, u32)> {
        let short = |device: &&Device| self.is_short(device) && self.has_room_behind(device);
        let slots = |pack: &Device| pack.pack().map_or(0, |pack| pack.held());
        let chosen = |device| {
            let longest = self.packs_on(device).max_by_key(|pack| slots(pack));
            longest.filter(|pack| slots(pack) * 2 > device.used()).unwrap_or(device)
        };
        let mut all = self.list().filter(short).map(chosen);
        let most = all.find(|device| !stuck.contains(&device.id()))?;
        Some((most.id(), self.missing(most)))
    }

    fn is_short(&self, device: &Device) -> bool {
        self.is_in_front(device) && self.rooms(device).into_iter().flatten().any(Room::is_short)
    }

    /// How many pages should move on from a device that was short.
    pub(crate) fn missing(&self, device: &Device) -> u32 {
        let [slots, memory] = self.rooms(device);
        // Of what is packed so many leave one free.
        let held = device.pack().map_or(0, |pack| pack.held()).max(1);
        let packed = if device.is_packed() { device.used().div_ceil(held).max(1) } else { 1 };
        let slots = slots.map_or(0, Room::missing).saturating_mul(packed);
        let stored = device.stored().unwrap_or_default();
        // In a page of memory there are so many.
        let ratio = stored.pages * PAGE_BYTES as u64 / stored.slab_bytes.max(PAGE_BYTES as u64);
        let memory = u64::from(memory.map_or(0, Room::missing)) * ratio.max(1);
        slots.max(memory.min(u32::MAX.into()) as u32)
    }

    /// Slots for pages that move on from a device, as [`Self::allocate`].
    pub(crate) fn allocate_behind(
        &self,
        front: &Device,
        want: u32,
        near: NodeId,
    ) -> Option<SlotSpan> {
        self.allocate_from(want, near, &Search::without(!self.behind(front)))
    }

    /// Whether pages move on from a device at all.
    pub(crate) fn is_in_front(&self, device: &Device) -> bool {
        self.behind(device) != 0
    }

    /// Whether the first devices are compressed memory.
    pub(crate) fn have_compressed_front(&self) -> bool {
        self.list().any(|device| device.is_compressed() && device.tier() == Some(0))
    }

    /// Whether pages can move on from some device.
    pub(crate) fn have_room_behind(&self) -> bool {
        self.list().any(|device| self.is_in_front(device) && self.has_room_behind(device))
    }

    /// Whether a page that has a slot, and leaves as it came, had better go to a device in front of its own: one that has room
    /// without others having to move on, and of compressed memory one that holds what compresses.
    pub(crate) fn promotes(&self, slot: Slot) -> bool {
        self.list().filter(|front| self.is_in_front(front)).any(|front| {
            let from = self.id_of(self.under(slot)).0;
            self.behind(front) >> from & 1 == 1
                && self.has_idle_room(front)
                && front.stored().is_none_or(|stored| stored.is_small())
        })
    }

    fn has_idle_room(&self, front: &Device) -> bool {
        // Asked for each page that leaves clean, and mostly the answer: without a lock.
        if front.is_compressed() && !self.allowance.room().is_idle() {
            return false;
        }
        let [slots, memory] = self.rooms(front);
        slots.is_some_and(Room::is_idle) && memory.is_none_or(Room::is_idle)
    }

    fn has_room_behind(&self, front: &Device) -> bool {
        let behind = self.behind(front);
        self.list().any(|device| {
            let store = device.store().lock();
            behind >> device.id().0 & 1 == 1
                && store.state == DeviceState::On
                && (!store.is_full() || store.lent.count() > 0)
        })
    }

    /// A bit for each device behind one.
    fn behind(&self, front: &Device) -> u64 {
        const { assert!(DEVICES_MAX <= u64::BITS as usize, "a bit for each device") };
        if front.tier().is_none() && !front.is_compressed() {
            return 0;
        }
        let is_behind = |device: &&Device| match (front.tier(), device.tier()) {
            (Some(front), Some(tier)) => tier > front,
            (None, None) => !device.is_compressed(),
            _ => false,
        };
        self.list().filter(is_behind).fold(0, |bits, device| bits | 1 << device.id().0)
    }

    /// Judges the tier of a device beside those in use.
    pub(super) fn check_tier(&self, spec: &SwapSpec) -> Result<(), Error> {
        spec.check_front().map_err(|refusal| Error::Tiers(refusal.to_string()))?;
        let said = || spec.to_string();
        let tiers = || self.list().map(Device::tier);
        let refusal = match spec.tier {
            None if tiers().flatten().next().is_some() => SpecError::TierMissing(said()),
            Some(_) if tiers().any(|tier| tier.is_none()) => SpecError::TierUnlike(said()),
            Some(tier) => match tiers().flatten().max().map_or(0, |last| last + 1) {
                missing if tier > missing => SpecError::TierGap { spec: said(), tier, missing },
                _ => return Ok(()),
            },
            None => return Ok(()),
        };
        Err(Error::Tiers(refusal.to_string()))
    }

    /// Whether all devices are compressed memory, and have slots, for which there is no memory.
    pub(crate) fn lack_memory_only(&self) -> bool {
        let has_slots = |device| self.rooms(device)[0].is_some_and(|slots| slots.free > 0);
        self.list().all(Device::is_compressed) && self.list().any(has_slots)
    }

    /// What a device has room for, by its slots and by its memory.
    fn rooms(&self, device: &Device) -> [Option<Room>; 2] {
        // What is packed is short of room where the device below it is.
        let pack = device.pack();
        let store = pack.as_ref().map_or(device, |pack| pack.below()).store().lock();
        let is_on = store.state == DeviceState::On;
        let (pages, used) = (store.slots.pages(), store.slots.used());
        drop(store);
        let slots = Room { free: i64::from(pages) - i64::from(used), total: pages };
        let memory = device.is_compressed().then(|| self.allowance.room());
        [is_on.then_some(slots), memory.filter(|_| is_on)]
    }
}
