//! Pins: a range is swapped in and kept in RAM.
use crate::base::error::Error;
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::base::limits::{PINS_MAX, RESERVE};
use crate::job::needs::Need;
use crate::state::core::Core;
use crate::state::page::{Mapped, PageState};
use crate::sys::pages;
use std::sync::atomic::Ordering;

impl Core {
    /// Swaps a range in and keeps it in RAM until it is unpinned; pins nest.
    ///
    /// # Errors
    /// More than the budget can hold beside what must stay available; nothing is pinned then.
    ///
    /// # Panics
    /// A page is pinned more than [`PINS_MAX`] times.
    pub fn pin_range(&self, range: PageRange) -> Result<(), Error> {
        let most = || {
            let _inside = self.gate.enter();
            self.usable_pages()
        };
        self.count_pins(range.count, most).inspect_err(|_| self.want_floor())?;
        self.pin_missing(range.first..range.end());
        Ok(())
    }

    /// Whether so many pages more could be pinned, at this moment; a member of a job that has given way takes more for them.
    pub fn has_pin_room(&self, count: u32) -> bool {
        let has_room = || {
            let _inside = self.gate.enter();
            let pins = self.devices.allowance.pins.load(Ordering::Relaxed);
            pins.checked_add(count).is_some_and(|all| all <= self.usable_pages())
        };
        has_room() || self.take_floor(count) && has_room()
    }

    /// A member of a job that has given way has more from its next look on. Nothing else is done here: it may be the stack of a call
    /// of the program's, of which pages may be on swap.
    fn want_floor(&self) {
        if let Some(member) = self.member.get().filter(|member| member.needs.now() != Need::Full) {
            member.needs.insist();
            member.wake();
        }
    }

    /// As [`Core::pin_range`], also beyond what the budget can hold: for some pages and the moment of a fork, in which no
    /// fault is served.
    ///
    /// # Panics
    /// A page is pinned more than [`PINS_MAX`] times.
    pub fn pin_beyond(&self, range: PageRange) {
        self.devices.allowance.pins.fetch_add(range.count, Ordering::Relaxed);
        self.pin_missing(range.first..range.end());
    }

    /// Before anything is pinned, so that two callers cannot both take the last room, and compressed pages take no more
    /// of it. What is refused counts at no moment, or others would be refused for it.
    fn count_pins(&self, count: u32, most: impl Fn() -> u32) -> Result<(), Error> {
        let pins = &self.devices.allowance.pins;
        let room = most();
        let fits = |before: u32| before.checked_add(count).filter(|after| *after <= room);
        pins.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits)
            .map_err(|before| Error::PinTooLarge(count, room.saturating_sub(before)))?;
        // Compressed pages may have taken some of the room before they saw these pins.
        let (taken, room) = (pins.load(Ordering::Relaxed), most());
        if taken > room {
            self.forget_pins(count);
            return Err(Error::PinTooLarge(count, room.saturating_sub(taken - count)));
        }
        Ok(())
    }

    /// In the child of a fork, once it is served: leaves no page more pins than `most` says. The others are of its
    /// parent's threads, some of which may have been counted for pages that they did not come to.
    pub fn limit_pins(&self, most: impl Fn(PageIndex) -> u32) {
        if self.devices.allowance.pins.load(Ordering::Relaxed) == 0 {
            return;
        }
        let _inside = self.gate.enter();
        let whole = PageRange { first: 0, count: self.arena.pages() };
        let pages = self.pages.touched.within(whole).flat_map(|part| part.first..part.end());
        let left = pages.map(|page| self.limit_pins_of(page, &most)).sum();
        self.devices.allowance.pins.store(left, Ordering::Relaxed);
    }

    /// Returns how many pins it has then.
    fn limit_pins_of(&self, page: PageIndex, most: &impl Fn(PageIndex) -> u32) -> u32 {
        loop {
            let seen = self.pages.load(page);
            // What another state owns has no pins.
            let PageState::Resident { slot, pins, node } = seen.state() else { return 0 };
            let left = pins.min(if pins == 0 { 0 } else { most(page) });
            if left == pins {
                return pins;
            }
            if self.pages.claim(page, seen, PageState::Resident { slot, pins: left, node }) {
                self.relist(page, left, node);
                return left;
            }
        }
    }

    /// Swaps pages in and pins them; they are counted.
    pub(crate) fn pin_missing(&self, missing: impl IntoIterator<Item = PageIndex>) {
        for page in missing {
            while !self.try_pin(page) {
                // The access swaps it in; most likely it is still there when it is tried again.
                pages::touch(self.page_address(page), 1);
            }
        }
    }

    /// Pins what is resident of a range while the gate is closed, so that no page of it can leave in between; the others
    /// are counted, and left to [`Core::pin_missing`] once the gate is open.
    ///
    /// # Errors
    /// As [`Core::pin_range`].
    pub(crate) fn pin_adopted(&self, range: PageRange) -> Result<Vec<PageIndex>, Error> {
        self.count_pins(range.count, || self.usable_pages())?;
        Ok((range.first..range.end()).filter(|page| !self.try_pin(*page)).collect())
    }

    fn usable_pages(&self) -> u32 {
        self.usable_of(self.budget_pages())
    }

    /// Pages of a budget that may be pinned: reclaim, readahead and writes under way need a quarter of what compressed pages leave.
    pub(super) fn usable_of(&self, budget: u32) -> u32 {
        let room = budget.saturating_sub(self.devices.allowance.taken());
        room - (room / 4).max(8 * RESERVE).min(room)
    }

    /// Pins a page if it is mapped; it can be written to without a fault then.
    fn try_pin(&self, page: PageIndex) -> bool {
        let seen = self.pages.load(page);
        let Some(Mapped { slot, pins, node }) = seen.state().mapped() else { return false };
        assert!(pins < PINS_MAX, "page {page} is pinned too often");
        let pinned = PageState::Resident { slot, pins: pins + 1, node };
        if !self.pages.claim(page, seen, pinned) {
            return false;
        }
        if pins == 0 && self.clean_pages.is_any() {
            // What is pinned may be written to while no fault is served: a stack at a fork. By a fault, as this thread cannot
            // own a page that may be of its own stack.
            pages::prepare_write(self.page_address(page));
        }
        true
    }

    /// Takes one pin off each page of a range; pages without are left alone.
    pub fn unpin_range(&self, range: PageRange) {
        let _inside = self.gate.enter();
        self.unpin_pages(range);
    }

    fn unpin_pages(&self, range: PageRange) {
        for page in range.first..range.end() {
            loop {
                let seen = self.pages.load(page);
                if let PageState::Leaving { .. } = seen.state() {
                    // The thread that owns it for a moment remembers its pins and puts them back.
                    self.pages.wait_owned(page);
                    continue;
                }
                let PageState::Resident { slot, pins, node } = seen.state() else { break };
                let Some(pins) = pins.checked_sub(1) else { break };
                if self.pages.claim(page, seen, PageState::Resident { slot, pins, node }) {
                    self.forget_pins(1);
                    self.relist(page, pins, node);
                    break;
                }
            }
        }
    }

    /// Reclaim forgets pinned pages it meets: the last unpin puts the page back on the list.
    fn relist(&self, page: PageIndex, pins: u32, node: NodeId) {
        if pins == 0 {
            self.node(node).lock().enlist(&self.pages, page, 1);
            self.note_progress();
        }
    }
}
