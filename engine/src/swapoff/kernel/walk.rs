//! The kernel's way of emptying a device, kept for comparison: through all pages in the order of addresses,
//! one thread, one request at a time.
//!
//! Each page on the device is first looked for among the cached ones; if it is not there, the window that
//! a readahead policy gives for it is read, and the others of the window wait as cached pages until the walk
//! comes to them. That is the walk of Linux since 5.1 with the lookup of 5.8; `fixed` is the policy proposed
//! for it in April 2020. Before 5.8 the walk was blind: it asked for a window at every page, of which it read
//! what was not cached, and never saw a hit. Pages that it misses, the default method finds afterwards.
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::Asker;
use crate::state::page::PageState;
use crate::state::scratch::Victim;
use crate::swapoff::Proceed;
use crate::swapoff::sweep::Found;
use crate::swapoff::task::{PATIENCE_NS, Task, WAIT_NS};
use crate::sys::signal::Blocked;
use crate::sys::{clock, futex};
use std::ops::Range;
use std::sync::atomic::Ordering;
use userswap_policy::kernel::{Cluster, Fixed, Scaling};
use userswap_policy::readahead::Readahead as _;
use userswap_policy::readahead::{Fault, Hint, Limits, ReadWindow};

/// How large windows are.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Windows {
    /// By the kernel's heuristic.
    Scaling,
    /// All the largest.
    Fixed,
    /// By the kernel's heuristic at every page, which is told of no hits but these.
    Blind(Bump),
}

/// Hits that are made up before each window.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bump {
    /// None.
    None,
    /// One.
    One,
    /// As many as the window before had pages.
    LastWindow,
}

/// What a walk wants to read.
struct Wanted {
    /// The page that it has come to, and its slot.
    page: PageIndex,
    slot: Slot,
    slots: Range<u32>,
    /// The page from which it goes on.
    then: PageIndex,
}

/// A walk under way.
struct Walk<'a> {
    core: &'a Core,
    task: Task<'a>,
    windows: Windows,
    cluster: Cluster,
    limits: Limits,
    /// By slot: its page was read ahead, and the walk has not come to it yet.
    marked: Vec<bool>,
    found: Found,
    /// Slots of the last window.
    last_window: u32,
    /// The cached page for which a blind walk has asked last.
    asked: Option<PageIndex>,
}

impl Core {
    /// Walks over all pages once; `between` is asked after each request whether to go on.
    ///
    /// # Errors
    /// Cancelled, or no room: pages that were not placed stay on the device.
    pub(crate) fn walk(
        &self,
        task: Task<'_>,
        windows: Windows,
        between: &mut dyn FnMut() -> Proceed,
    ) -> Result<(), Error> {
        let slots = self.inside_gate(|| task.device.label().map_or(0, |label| label.max));
        let mut walk = Walk {
            core: self,
            task,
            windows,
            cluster: Cluster::new(),
            limits: Limits {
                page_cluster: self.readahead.settings().page_cluster,
                run_first: 1,
                run_max: 1,
                ahead_max: 0,
            },
            marked: vec![false; slots as usize],
            found: Found::new(1..slots.max(1)),
            last_window: 0,
            asked: None,
        };
        self.look_ranges().into_iter().for_each(|range| walk.note(range));
        for range in self.look_ranges() {
            let mut rest = range;
            while let Some(wanted) = walk.place_until_read(range, rest) {
                walk.read_around(&wanted)?;
                rest = PageRange { first: wanted.then, count: range.end() - wanted.then };
                if between() == Proceed::Cancel {
                    return Err(Error::SwapoffCancelled);
                }
            }
        }
        Ok(())
    }
}

impl Walk<'_> {
    /// Notes which page is on which slot: windows are of slots, and the walk is by pages.
    fn note(&mut self, range: PageRange) {
        let core = self.core;
        let _blocked = Blocked::new();
        let _inside = core.gate.enter();
        for page in range.first..range.end() {
            match core.pages.state(page) {
                PageState::Swapped { slot } if core.is_on(self.task.device, slot) => {
                    self.found.map.put(self.task.device.number_of(slot), page);
                }
                _ => {}
            }
        }
    }

    /// Places pages of `rest` that need no read, up to the first one for which something is to be read.
    fn place_until_read(&mut self, region: PageRange, rest: PageRange) -> Option<Wanted> {
        let core = self.core;
        let _blocked = Blocked::new();
        let _inside = core.gate.enter();
        let wanted = (rest.first..rest.end()).find_map(|page| {
            match core.pages.state(page) {
                PageState::Swapped { slot } if core.is_on(self.task.device, slot) => {
                    let slots = self.window(region, page, slot);
                    return Some(Wanted { page, slot, slots, then: page + 1 });
                }
                PageState::Resident { slot: Some(slot), .. } | PageState::Clean { slot, .. }
                    if core.is_on(self.task.device, slot) =>
                {
                    core.forget_slot(page, slot);
                }
                PageState::Cached { slot: Some(slot), .. }
                    if core.is_on(self.task.device, slot) =>
                {
                    if let Some(slots) = self.unread_around(region, page, slot) {
                        return Some(Wanted { page, slot, slots, then: page });
                    }
                    self.hit(page, slot);
                    core.take_cached(page, slot, &mut self.found);
                }
                _ => {}
            }
            None
        });
        core.place_cached(&mut self.found);
        wanted
    }

    /// The window for a cached page where the walk is blind, if there is something to read in it. Asked for once.
    fn unread_around(
        &mut self,
        region: PageRange,
        page: PageIndex,
        slot: Slot,
    ) -> Option<Range<u32>> {
        if !matches!(self.windows, Windows::Blind(_)) || self.asked.replace(page) == Some(page) {
            return None;
        }
        let slots = self.window(region, page, slot);
        let is_unread = |number: u32| {
            let slot = self.task.device.slot(number);
            let page = self.found.map.page_at(number);
            page.is_some_and(|page| self.core.pages.state(page) == PageState::Swapped { slot })
        };
        slots.clone().any(is_unread).then_some(slots)
    }

    /// Counts a page that was read ahead and is used now; each counts once.
    fn hit(&mut self, page: PageIndex, slot: Slot) {
        if std::mem::take(&mut self.marked[self.task.device.number_of(slot) as usize]) {
            let ahead = match self.windows {
                Windows::Scaling => Scaling(&mut self.cluster).on_hit(page, 0, &self.limits),
                Windows::Fixed => Fixed(&mut self.cluster).on_hit(page, 0, &self.limits),
                Windows::Blind(_) => None,
            };
            assert_eq!(ahead, None, "the kernel's policies only count hits");
        }
    }

    /// The slots to read for a page.
    fn window(&mut self, range: PageRange, page: PageIndex, slot: Slot) -> Range<u32> {
        let number = self.task.device.number_of(slot);
        let fault = Fault {
            page,
            region_first: range.first,
            region_end: range.end(),
            slot: number,
            slots: self.found.map.slots().end,
            node: NodeId(0),
            now_ns: 0,
            hint: Hint::Normal,
        };
        let made_up = match self.windows {
            Windows::Scaling | Windows::Fixed | Windows::Blind(Bump::None) => 0,
            Windows::Blind(Bump::One) => 1,
            Windows::Blind(Bump::LastWindow) => self.last_window,
        };
        (0..made_up).for_each(|_| self.cluster.count_hit());
        let window = match self.windows {
            Windows::Fixed => Fixed(&mut self.cluster).on_fault(&fault, &self.limits),
            _ => Scaling(&mut self.cluster).on_fault(&fault, &self.limits),
        };
        let slots = match window {
            ReadWindow::One => number..number + 1,
            ReadWindow::Slots { first, count } => first..first + count,
            ReadWindow::Pages { .. } | ReadWindow::Block { .. } | ReadWindow::Stream(_) => {
                unreachable!("both are in device order")
            }
        };
        self.last_window = slots.end - slots.start;
        slots
    }

    /// Reads the window of a page; the page is placed, the others are cached and marked.
    fn read_around(&mut self, wanted: &Wanted) -> Result<(), Error> {
        let core = self.core;
        let slots = &wanted.slots;
        let begun = clock::now_ns();
        loop {
            if core.devices.must_yield() || clock::now_ns() - begun > PATIENCE_NS {
                return Err(Error::NoRoomInRam);
            }
            let _blocked = Blocked::new();
            let inside = core.gate.enter();
            let node = core.roomiest_node();
            let freed = core.shortage.freed.load(Ordering::Acquire);
            let mut frames = FrameSet::new();
            core.fill_set(node, &mut frames, slots.end - slots.start, Asker::Background);
            if frames.pages() > 0 {
                let slots =
                    part_around(self.task.device.number_of(wanted.slot), slots, frames.pages());
                let read = core.read_slots(self.task, &self.found.map, slots, frames);
                self.settle(wanted.page, &read);
                return Ok(());
            }
            drop(inside);
            core.wake_reclaim(node);
            futex::wait_for(&core.shortage.freed, freed, WAIT_NS);
        }
    }

    /// Places the page that was read for; the others of its window wait as cached pages.
    fn settle(&mut self, page: PageIndex, read: &[Victim]) {
        let core = self.core;
        for victim in read {
            if victim.page == page {
                self.found.place(core, *victim);
                continue;
            }
            let (frame, slot) = (victim.frame, victim.slot);
            core.publish(victim.page, PageState::Cached { frame, slot, marker: false });
            core.node_of_frame(frame).lock().enlist(&core.pages, victim.page, 1);
            if let Some(slot) = slot {
                self.marked[self.task.device.number_of(slot) as usize] = true;
            }
        }
        core.announce_freed();
    }
}

/// The part of a window that there are frames for, with the slot that it is about.
fn part_around(slot: u32, window: &Range<u32>, frames: u32) -> Range<u32> {
    if frames >= window.end - window.start {
        return window.clone();
    }
    slot..window.end.min(slot + frames)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_without_enough_frames_begins_at_its_page() {
        assert_eq!(part_around(21, &(16..32), 16), 16..32);
        assert_eq!(part_around(21, &(16..32), 15), 21..32);
        assert_eq!(part_around(21, &(16..32), 4), 21..25);
        assert_eq!(part_around(21, &(21..22), 1), 21..22);
    }
}
