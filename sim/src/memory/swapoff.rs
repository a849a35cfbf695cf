//! A device is emptied and goes, or comes back if that cannot be done.

use userswap_policy::devices::DeviceId;
use userswap_policy::spans::SlotMap;
use userswap_policy::watermark::Pressure;

use super::{Memory, PageId, Slot, Word};
use crate::clock::{Class, Thread};

/// Most slots that are looked at together.
const SPAN: u32 = 64;
/// Passes over all pages: what is busy is left to the next one.
const PASSES_MAX: u32 = 50;
const BETWEEN_PASSES_NS: u64 = 1_000_000;

/// How a swapoff ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Swapoff {
    /// The device is gone.
    Done,
    /// Its pages have no room elsewhere: it is back.
    NoRoom,
    /// It was not swapped on.
    NotOn,
}

impl Memory {
    /// Empties a device and takes it away.
    pub async fn swapoff(&self, thread: &Thread, device: u8) -> Swapoff {
        let id = DeviceId(device);
        if self.swap.table().swapoff_begin(id).is_err() {
            return Swapoff::NotOn;
        }
        self.swap.drain();
        for _ in 0..PASSES_MAX {
            if !self.sweep(thread, device).await {
                break;
            }
            if self.swap.store(device).slots.borrow().used() == 0 {
                self.swap.table().swapoff_done(id);
                return Swapoff::Done;
            }
            thread.sleep(BETWEEN_PASSES_NS).await;
            self.swap.drain();
        }
        self.swap.back_again(id);
        Swapoff::NoRoom
    }

    /// Swaps a device on again that is gone.
    pub fn swapon_again(&self, device: u8) -> bool {
        let store = self.swap.store(device);
        let mut table = self.swap.table();
        if table.device(DeviceId(device)).is_some() {
            return false;
        }
        let pages = store.slots.borrow().pages();
        if store.drive.is_dead(self.sim.now()) || pages == 0 {
            return false;
        }
        // The lowest free index is taken: the scenario gives devices back in that order only.
        match table.swapon(store.node, store.priority, pages) {
            Ok(id) if id == DeviceId(device) => true,
            Ok(id) => {
                table.swapoff_begin(id).expect("it was just swapped on");
                table.swapoff_done(id);
                false
            }
            Err(_) => false,
        }
    }

    /// Brings back what can be, in the order of the device; false when there is no room.
    async fn sweep(&self, thread: &Thread, device: u8) -> bool {
        let map = self.map_of(device);
        let mut from = 0;
        while let Some(span) = map.span_from(from, SPAN) {
            from = span.end;
            for index in span {
                let Some(page) = map.page_at(index) else { continue };
                if !self.bring_back(thread, page, Slot { device, index }).await {
                    return false;
                }
            }
        }
        true
    }

    fn map_of(&self, device: u8) -> SlotMap {
        let state = self.state.borrow();
        let mut map = SlotMap::new(0..self.swap.store(device).pages);
        for (page, of) in state.pages.iter().enumerate() {
            if let Word::Swapped(slot, _) = of.word
                && slot.device == device
            {
                map.put(slot.index, page as PageId);
            }
        }
        map
    }

    /// Brings a page into memory if it is still on that slot; false when there is no room for it.
    async fn bring_back(&self, thread: &Thread, page: PageId, slot: Slot) -> bool {
        let before = self.state.borrow().word(page);
        let Word::Swapped(at, _) = before else { return true };
        if at != slot {
            return true;
        }
        let Some(frame) = self.take_frame(thread.node(), Pressure::Low) else { return false };
        self.state.borrow_mut().publish(page, Word::Reading(slot));
        thread.charge(Class::System, self.costs.swap_fault.0);
        match self.read(thread, slot).await {
            Ok(content) => {
                assert_eq!(content.page, page, "a slot gives back the page written to it");
                self.swap.free(thread, slot).await;
                self.map(page, frame, content.version, before);
            }
            Err(_) => {
                self.lose(page, frame);
                self.swap.free(thread, slot).await;
            }
        }
        true
    }
}
