//! Readahead on the engine's side: which policy answers a fault, what of its window there is to read, and
//! who is told about hits.
//!
//! The fault's own request takes what one read can get together with the page; the rest of a window, and
//! the windows ahead, are left to the server (`ahead.rs`). Device order needs the page of a slot: the
//! devices remember who was written there last, and the page's word says whether that is still true.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::base::limits::{AHEAD_MAX, RUN_MAX};
use crate::device::record::number_of;
use crate::device::{SlotSpan, slot_of};
use crate::fault::wants::pages_along;
use crate::state::batch::{Batch, Gaps, SwapEntry};
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::reads::Landing;
use crate::state::wants::{Span, Want};
use crate::sys::clock;
use userswap_policy::kernel::{Fixed, Scaling};
use userswap_policy::readahead::Readahead as _;
use userswap_policy::readahead::{AddressOrder, Fault, Hint, Limits, ReadWindow, ReadaheadPolicy};
use userswap_policy::stream;

/// Pages of the first window of a stream of reads: of two faults that are neighbours by chance, as those of
/// a random reader of few data are now and then, it wastes one page.
const READ_FIRST: u32 = 2;

/// What is to be read for a fault.
pub struct ReadPlan {
    target: SwapEntry,
    window: ReadWindow,
    /// Whether the fault's request may read over slots.
    pub gaps: Gaps,
}

impl Core {
    /// The policy that answers: `scaling` is in address order where that is enabled and no device has to
    /// seek.
    fn policy(&self) -> ReadaheadPolicy {
        let settings = self.readahead.settings();
        match settings.policy {
            ReadaheadPolicy::Scaling if settings.address_order == AddressOrder::Disabled => {
                ReadaheadPolicy::Scaling
            }
            ReadaheadPolicy::Scaling if self.devices.any_rotational() => ReadaheadPolicy::Scaling,
            ReadaheadPolicy::Scaling => ReadaheadPolicy::Vma,
            other => other,
        }
    }

    /// A fault on a page that need not be on a device, as the streams see it.
    pub(crate) fn fault_without_slot(&self, page: PageIndex, near: NodeId) -> Fault {
        Fault {
            page,
            region_first: 0,
            region_end: self.pages.pages(),
            slot: 0,
            slots: u32::MAX,
            node: near,
            now_ns: clock::now_ns(),
            hint: self.arena.hints.of(page),
        }
    }

    /// What to read for a fault on a swapped page; `found` gets the swapped pages of the window that one
    /// request could have together with it, the page among them.
    pub(crate) fn plan_read(&self, target: SwapEntry, near: NodeId, found: &mut Batch) -> ReadPlan {
        let slot = number_of(target.slot);
        let fault = Fault { slot, ..self.fault_without_slot(target.page, near) };
        let window = self.bounded(self.window_for(fault, target), fault.slot);
        let gaps = if matches!(window, ReadWindow::Stream(_)) { Gaps::Small } else { Gaps::None };
        self.find_swapped(target, &window, found);
        ReadPlan { target, window, gaps }
    }

    fn window_for(&self, fault: Fault, target: SwapEntry) -> ReadWindow {
        let limits = self.limits();
        match (fault.hint, self.policy()) {
            (_, ReadaheadPolicy::Off) | (Hint::Random, _) => ReadWindow::One,
            (Hint::Sequential, _) | (Hint::Normal, ReadaheadPolicy::Stream) => {
                ReadWindow::Stream(self.stream_window(&fault, &limits))
            }
            (Hint::Normal, ReadaheadPolicy::Vma) => {
                let region = self.arena.region_of(fault.page);
                let region = region.unwrap_or(PageRange { first: fault.page, count: 1 });
                let (region_first, region_end) = (region.first, region.end());
                let fault = Fault { region_first, region_end, ..fault };
                self.readahead.with_area(region.first, |area| area.on_fault(&fault, &limits))
            }
            (Hint::Normal, ReadaheadPolicy::Scaling) => {
                let fault = Fault { slots: self.slots_beside(target), ..fault };
                Scaling(&mut self.readahead.cluster.lock()).on_fault(&fault, &limits)
            }
            (Hint::Normal, ReadaheadPolicy::Fixed) => {
                let fault = Fault { slots: self.slots_beside(target), ..fault };
                Fixed(&mut self.readahead.cluster.lock()).on_fault(&fault, &limits)
            }
        }
    }

    /// Slots of the device of an entry, with the header.
    fn slots_beside(&self, entry: SwapEntry) -> u32 {
        let label = self.devices.device_of(entry.slot).label();
        label.map_or(u32::MAX, |label| label.max)
    }

    /// Asks the streams, and counts what they give up meanwhile.
    pub(crate) fn stream_window(&self, fault: &Fault, limits: &Limits) -> stream::Window {
        let mut streams = self.streams.lock();
        let window = streams.window(fault, limits);
        let wasted = streams.take_wasted();
        drop(streams);
        count(&self.counters.swap_ra_wasted, wasted);
        window
    }

    /// A block of slots that a small budget can hold: the part around the page that is a power of two.
    fn bounded(&self, window: ReadWindow, slot: u32) -> ReadWindow {
        let ReadWindow::Slots { first, count } = window else { return window };
        let most = 1 << self.limits().ahead_max.max(1).ilog2();
        if count <= most {
            return window;
        }
        let low = first.max(slot - slot % most);
        ReadWindow::Slots {
            first: low,
            count: (first + count).min(slot - slot % most + most) - low,
        }
    }

    fn find_swapped(&self, target: SwapEntry, window: &ReadWindow, found: &mut Batch) {
        found.clear();
        match *window {
            ReadWindow::One => found.push(target),
            ReadWindow::Slots { first, count } => {
                let id = self.devices.device_of(target.slot).id();
                let block = number_of(target.slot) / RUN_MAX * RUN_MAX;
                let slots = first.max(block)..(first + count).min(block + RUN_MAX);
                let slots = slots.map(|number| slot_of(id, number));
                slots.filter_map(|slot| self.entry_on(slot)).for_each(|entry| found.push(entry));
            }
            ReadWindow::Pages { first, count } => {
                let pages = first..first + count.min(RUN_MAX);
                pages.filter_map(|page| self.entry_of(page)).for_each(|entry| found.push(entry));
            }
            ReadWindow::Stream(window) => {
                let pages = pages_along(window.first, window.step, 0..window.count.min(RUN_MAX));
                pages.filter_map(|page| self.entry_of(page)).for_each(|entry| found.push(entry));
            }
        }
        found.sort();
        if found.index_of(target.page).is_none() {
            // Somebody else has claimed it meanwhile; who claims it next will notice.
            found.clear();
            found.push(target);
        }
    }

    /// Once the fault's own request is made up: leaves what it does not read to the server, and tells the
    /// stream what it can count on.
    pub(crate) fn settle_plan(
        &self,
        plan: &ReadPlan,
        (found, claimed): (u32, u32),
        near: NodeId,
    ) -> Landing {
        let is_rest = found > claimed;
        let target = plan.target.page;
        let span = match plan.window {
            ReadWindow::One => return Landing::Mapped { marker: None },
            ReadWindow::Stream(window) => {
                let rest = is_rest.then_some(Span::Run {
                    first: window.first,
                    count: window.count,
                    step: window.step,
                });
                rest.into_iter().for_each(|span| self.want(Want::new(span, near)));
                self.settle_stream(target, window, (found - 1, near));
                return Landing::Mapped { marker: None };
            }
            ReadWindow::Slots { first, count } => {
                let id = self.devices.device_of(plan.target.slot).id();
                let span = SlotSpan { first: slot_of(id, first), count };
                (is_rest || count > RUN_MAX).then_some(Span::Slots(span))
            }
            ReadWindow::Pages { first, count } => {
                is_rest.then_some(Span::Pages(PageRange { first, count }))
            }
        };
        if let Some(span) = span {
            self.want(Want::new(span, near));
        }
        Landing::Marked { target: Some(target) }
    }

    fn settle_stream(&self, page: PageIndex, window: stream::Window, (read, near): (u32, NodeId)) {
        // Pages without content end the window: the program faults there.
        let is_coming = |page: &PageIndex| {
            *page < self.pages.pages()
                && !matches!(self.pages.state(*page), PageState::Untouched | PageState::Lost)
        };
        let place = window.index_of(page);
        let along = pages_along(window.first, window.step, place..window.count);
        let count = place + along.take_while(is_coming).count() as u32;
        let ahead = window.ahead.filter(|_| count == window.count);
        self.streams.lock().on_served(page, stream::Window { count, ahead, ..window }, read);
        if let Some(ahead) = ahead {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A marked page is used for the first time.
    pub(crate) fn on_marked(&self, page: PageIndex, near: NodeId) {
        count(&self.counters.swap_ra_hit, 1);
        let limits = self.limits();
        let next = match (self.arena.hints.of(page), self.policy()) {
            (Hint::Sequential, _) | (_, ReadaheadPolicy::Stream) => {
                self.streams.lock().on_hit(page, &limits)
            }
            (_, ReadaheadPolicy::Vma) => {
                let region = self.arena.region_of(page);
                region.and_then(|region| {
                    self.readahead.with_area(region.first, |area| area.on_hit(page, &limits))
                })
            }
            (_, ReadaheadPolicy::Scaling | ReadaheadPolicy::Fixed) => {
                Scaling(&mut self.readahead.cluster.lock()).on_hit(page, &limits)
            }
            (_, ReadaheadPolicy::Off) => None,
        };
        if let Some(ahead) = next {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A page without a mark was found in a frame.
    pub(crate) fn on_lookup(&self, page: PageIndex) {
        if self.policy() == ReadaheadPolicy::Vma
            && let Some(region) = self.arena.region_of(page)
        {
            self.readahead.with_area(region.first, |area| area.on_lookup(page));
        }
    }

    /// How far windows may grow.
    pub(crate) fn limits(&self) -> Limits {
        // A budget of a few megabytes must not be emptied by one window.
        let room = self.window_room();
        let page_cluster = self.readahead.settings().page_cluster;
        let (run_max, ahead_max) = (RUN_MAX.min(room), AHEAD_MAX.min(room));
        Limits { page_cluster, run_first: READ_FIRST, run_max, ahead_max }
    }

    pub(crate) fn window_room(&self) -> u32 {
        self.tuning.budgets.iter().min().map_or(1, |budget| (budget / 32).max(1))
    }
}
