//! The pass over the page words: which pages are on the device, and which of them need no read.
use crate::base::error::Error;
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::base::limits::BATCH;
use crate::device::record::Device;
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Victim};
use crate::swapoff::Proceed;
use crate::swapoff::task::{Goal, Task};
use crate::sys::signal::Blocked;
use std::ops::Range;
use userswap_policy::spans;
use userswap_policy::spans::SlotMap;

impl Core {
    /// One pass over a device in its order: in parts, whose pages are first looked for and then read. `between` is asked
    /// between steps whether to go on.
    ///
    /// # Errors
    /// Cancelled, or no room: pages that were not placed stay on the device.
    pub(crate) fn sweep(
        &self,
        task: Task<'_>,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        for part in self.parts_in_use(task.device) {
            let mut found = Found::new(part);
            for range in self.look_ranges() {
                self.look(task, range, &mut found);
                if task.goal == Goal::Empty && self.devices.must_yield() {
                    return Err(Error::NoRoomInRam);
                }
                if between() == Proceed::Cancel {
                    return Err(Error::SwapoffCancelled);
                }
            }
            self.read_all(task, &found.map, between)?;
        }
        Ok(())
    }

    /// The parts of a device that hold something, in its order.
    pub(crate) fn parts_in_use(&self, device: &Device) -> Vec<Range<u32>> {
        self.inside_gate(|| {
            let Some(label) = device.label() else { return Vec::new() };
            let store = device.store().lock();
            let mut used = vec![false; label.max.div_ceil(spans::PART_SLOTS) as usize];
            for run in store.slots.used_runs() {
                let last = run.first + run.count - 1;
                let of = |slot: u32| (slot / spans::PART_SLOTS) as usize;
                used[of(run.first)..=of(last)].fill(true);
            }
            let parts = spans::parts(label.max).zip(used).filter(|(_, used)| *used);
            parts.map(|(part, _)| part).collect()
        })
    }

    /// Looks at a range of pages: those to be read are noted in `found`, those in RAM give up their slots.
    pub(crate) fn look(&self, task: Task<'_>, range: PageRange, found: &mut Found) {
        let _blocked = Blocked::new();
        let _inside = self.gate.enter();
        for page in range.first..range.end() {
            match (task.goal, self.pages.state(page)) {
                (_, PageState::Swapped { slot }) if self.is_on(task.device, slot) => {
                    found.map.put(task.device.number_of(slot), page);
                }
                (
                    Goal::Empty,
                    PageState::Resident { slot: Some(slot), .. } | PageState::Clean { slot, .. },
                ) if self.is_on(task.device, slot) => {
                    self.forget_slot(page, slot);
                }
                (Goal::Empty, PageState::Cached { slot: Some(slot), .. })
                    if self.is_on(task.device, slot) =>
                {
                    self.take_cached(page, slot, found);
                }
                _ => {}
            }
        }
        self.place_cached(found);
    }

    /// Takes a page on its second chance, whose frame has the content.
    pub(crate) fn take_cached(&self, page: PageIndex, slot: Slot, found: &mut Found) {
        let seen = self.pages.load(page);
        let PageState::Cached { frame, slot: Some(held), .. } = seen.state() else { return };
        if held != slot || !self.uncache(page, seen, PageState::Filling { slot: None }) {
            return;
        }
        let node = self.node_of_frame(frame);
        let of_other = found.cached.first().is_some_and(|victim| !node.owns(victim.frame));
        if found.cached.len() == BATCH || of_other {
            self.place_cached(found);
        }
        let checksum = self.devices.checksum(slot);
        found.cached.push(Victim { page, slot: Some(slot), frame, checksum });
    }

    /// Places the pages that were taken from their second chance.
    pub(crate) fn place_cached(&self, found: &mut Found) {
        self.place(Goal::Empty, &found.cached, &mut found.scratch);
        found.cached.clear();
    }
}

/// What a sweep finds and has in hand.
pub struct Found {
    /// The pages that have to be read, by slot.
    pub map: SlotMap,
    /// Pages taken from their second chance, owned in Filling, all of one node.
    cached: Vec<Victim>,
    scratch: Box<Scratch>,
}

impl Found {
    /// Nothing yet, of these slots.
    pub fn new(slots: Range<u32>) -> Self {
        Self {
            map: SlotMap::new(slots),
            cached: Vec::with_capacity(BATCH),
            scratch: Box::new(Scratch::new()),
        }
    }

    /// Places one page that was read, owned in Filling.
    pub(crate) fn place(&mut self, core: &Core, victim: Victim) {
        core.place(Goal::Empty, &[victim], &mut self.scratch);
    }
}
