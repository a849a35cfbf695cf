//! Swap entries: a swapped page with its slot, found from either of the two, and claimed for a read.
//!
//! A word is looked at without owning the page, so what is found is a hint; claiming it is what decides.
use crate::base::index::{PageIndex, Slot};
use crate::state::batch::SwapEntry;
use crate::state::core::Core;
use crate::state::page::PageState;

impl Core {
    /// A page with its slot; None if it is not swapped, or beyond the arena.
    pub(crate) fn entry_of(&self, page: PageIndex) -> Option<SwapEntry> {
        if page >= self.pages.pages() {
            return None;
        }
        match self.pages.state(page) {
            PageState::Swapped { slot } => Some(self.entry(page, slot)),
            _ => None,
        }
    }

    /// A page with the slot that it is on.
    pub(crate) fn entry(&self, page: PageIndex, slot: Slot) -> SwapEntry {
        SwapEntry { page, slot, at: self.devices.under(slot) }
    }

    /// A slot with its page. The device remembers the page that was written there last; None if that page
    /// is not swapped there any more.
    pub(crate) fn entry_on(&self, slot: Slot) -> Option<SwapEntry> {
        self.entry_of(self.devices.page_on(slot)).filter(|entry| entry.slot == slot)
    }

    /// Owns a swapped page in Filling; false if it has changed since it was looked at.
    pub(crate) fn claim_entry(&self, entry: SwapEntry) -> bool {
        let from = PageState::Swapped { slot: entry.slot };
        self.pages.change(entry.page, from, PageState::Filling { slot: Some(entry.slot) })
    }
}
