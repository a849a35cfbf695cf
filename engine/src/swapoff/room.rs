//! What RAM and the other devices have room for.
use crate::base::error::Error;
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::device::record::{Device, DeviceState};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::sys::signal::Blocked;

/// Pages looked at in one passage of the gate.
const LOOK_PAGES: u32 = 1 << 13;

impl Core {
    /// Refuses at once a swapoff that cannot end well.
    ///
    /// # Errors
    /// RAM and the other devices have no room for the device's pages.
    pub(crate) fn check_room_without(&self, device: &Device) -> Result<(), Error> {
        let _blocked = Blocked::new();
        let mut pages = 0u64;
        for range in self.look_ranges() {
            let _inside = self.gate.enter();
            let needs_room = |page: &PageIndex| match self.pages.state(*page) {
                PageState::Swapped { slot } => self.is_on_or_packed(device, slot),
                _ => false,
            };
            pages += (range.first..range.end()).filter(needs_room).count() as u64;
        }
        self.inside_gate(|| {
            let room = self.room_without(device);
            let name = || device.label().map_or_else(String::new, |label| label.name.clone());
            if pages > room { Err(Error::NoRoomToSwapoff(name(), pages, room)) } else { Ok(()) }
        })
    }

    /// Pages that RAM and the devices other than this one have room for.
    fn room_without(&self, device: &Device) -> u64 {
        let store = device.store().lock();
        let own = match store.state {
            DeviceState::On => store.counts().free,
            _ => 0,
        };
        drop(store);
        (self.devices.room().free - own).max(0) as u64
            + self.nodes.iter().map(room_in_ram).sum::<u64>()
    }

    /// The node to map pages on; where none has room for more, the one whose reclaimer has the most to give.
    pub(crate) fn roomiest_node(&self) -> &Node {
        let room = |node: &&Node| {
            let state = node.lock();
            let spare = state.available().saturating_sub(state.watermarks.low);
            drop(state);
            (room_in_ram(node), spare)
        };
        self.nodes.iter().max_by_key(room).expect("an engine has a node")
    }

    pub(crate) fn is_on(&self, device: &Device, slot: Slot) -> bool {
        self.devices.device_of(slot).id() == device.id()
    }

    /// Whether a slot is on a device, or on a pack there.
    fn is_on_or_packed(&self, device: &Device, slot: Slot) -> bool {
        let of = self.devices.device_of(slot);
        of.id() == device.id() || of.pack().is_some_and(|pack| pack.below().id() == device.id())
    }

    /// The pages of all regions that may have content, in ranges of up to [`LOOK_PAGES`].
    pub(crate) fn look_ranges(&self) -> Vec<PageRange> {
        // A handler of the program's may need the same table.
        let _blocked = Blocked::new();
        let whole = PageRange { first: 0, count: self.arena.pages() };
        let regions = self.arena.allocated(whole);
        let touched = regions.into_iter().flat_map(|region| self.pages.touched.within(region));
        let pieces = touched.flat_map(|region| {
            (region.first..region.end())
                .step_by(LOOK_PAGES as usize)
                .map(move |first| PageRange { first, count: LOOK_PAGES.min(region.end() - first) })
        });
        pieces.collect()
    }
}

/// Pages that a node can map without falling below its high watermark. Cached pages do not count: they give way only
/// if they are on a device.
pub fn room_in_ram(node: &Node) -> u64 {
    let state = node.lock();
    u64::from((state.pool.free() + state.spare).saturating_sub(state.watermarks.high))
}
