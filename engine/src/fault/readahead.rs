//! Readahead: which policy answers a fault, what of its window there is to read, and what the streams are told.
//!
//! The fault's own request takes what one read can get together with the page; the rest of a window, and the windows
//! ahead, are wants (`wants.rs`), which the server reads (`server.rs`). Windows are decided in `policy`; the branches
//! of the kernel's own policies, for comparison, are in `kernel.rs`.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageIndex, Slot};
use crate::base::limits::{AHEAD_MAX, RUN_MAX};
use crate::fault::wants::pages_along;
use crate::state::batch::{Batch, Gaps, SwapEntry};
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::state::reads::Landing;
use crate::state::wants::{Span, Want};
use crate::sys::clock;
use userswap_policy::readahead::Readahead as _;
use userswap_policy::readahead::{AddressOrder, Fault, Hint, Limits, ReadWindow, ReadaheadPolicy};
use userswap_policy::stream;

/// Pages of the first window of a stream of reads: of two faults that are neighbours by chance, as those of
/// a random reader of few data are now and then, it wastes one page.
const READ_FIRST: u32 = 2;

/// What is to be read for a fault.
pub struct ReadPlan {
    /// The page that faulted.
    pub target: SwapEntry,
    /// What the policy answered.
    pub window: ReadWindow,
    /// Swapped pages of the window that one request could have, the target among them.
    pub found: u32,
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
        let slot = self.devices.number_of(target.slot);
        let fault = Fault { slot, ..self.fault_without_slot(target.page, near) };
        let window = self.window_for(fault, target);
        let gaps = match window {
            ReadWindow::Stream(_) => self.gaps_on(target.slot),
            _ => Gaps::None,
        };
        self.find_swapped(target, &window, found);
        ReadPlan { target, window, found: found.len(), gaps }
    }

    /// What may be read over between slots of a stream: on a disk it costs less than another request.
    pub(crate) fn gaps_on(&self, slot: Slot) -> Gaps {
        match self.devices.device_of(slot).is_compressed() {
            true => Gaps::None,
            false => Gaps::Small,
        }
    }

    fn window_for(&self, fault: Fault, target: SwapEntry) -> ReadWindow {
        let limits = self.limits();
        match (fault.hint, self.policy()) {
            (_, ReadaheadPolicy::Off) | (Hint::Random, _) => ReadWindow::One,
            (Hint::Sequential, _) => ReadWindow::Stream(self.stream_window(&fault, &limits)),
            (Hint::Normal, ReadaheadPolicy::Stream) => self.stream_or_block(fault, target, &limits),
            (Hint::Normal, ReadaheadPolicy::Vma) => self.vma_window(fault, &limits),
            (Hint::Normal, ReadaheadPolicy::Scaling) => self.scaling_window(fault, target, &limits),
            (Hint::Normal, ReadaheadPolicy::Fixed) => self.fixed_window(fault, target, &limits),
        }
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

    /// Fills `found` with the swapped pages of a window, in the order of their slots.
    fn find_swapped(&self, target: SwapEntry, window: &ReadWindow, found: &mut Batch) {
        found.clear();
        match *window {
            ReadWindow::One => found.push(target),
            ReadWindow::Slots { first, count } | ReadWindow::Block { first, count, .. } => {
                self.find_on_slots(target, first..first + count, found);
            }
            ReadWindow::Pages { first, count } => {
                self.find_along(&stream::Window::run(first, count), found);
            }
            ReadWindow::Stream(window) => self.find_along(&window, found),
        }
        found.sort();
        if found.index_of(target.page).is_none() {
            // Another thread has claimed it meanwhile; the claim that comes next will fail.
            found.clear();
            found.push(target);
        }
    }

    fn find_along(&self, window: &stream::Window, found: &mut Batch) {
        let pages = pages_along(window.first, window.step, 0..window.count.min(RUN_MAX));
        pages.filter_map(|page| self.entry_of(page)).for_each(|entry| found.push(entry));
    }

    /// Once the fault's own request has claimed its pages: leaves what it does not read to the server, and tells
    /// the stream what it can count on.
    pub(crate) fn settle_plan(&self, plan: &ReadPlan, claimed: u32, near: NodeId) -> Landing {
        match plan.window {
            ReadWindow::One | ReadWindow::Block { is_watched: false, .. } => {
                Landing::Mapped { marker: None }
            }
            ReadWindow::Stream(window) => {
                if plan.found > claimed {
                    let stream::Window { first, count, step, .. } = window;
                    self.want(Want::new(Span::Run { first, count, step }, near));
                }
                self.settle_stream(plan.target.page, window, plan.found - 1, near);
                Landing::Mapped { marker: None }
            }
            ReadWindow::Block { is_watched: true, .. } => {
                self.count_watched(plan.target, plan.found - 1);
                self.settle_block(plan, claimed, near);
                Landing::Marked
            }
            ReadWindow::Slots { .. } | ReadWindow::Pages { .. } => {
                self.settle_block(plan, claimed, near);
                Landing::Marked
            }
        }
    }

    /// `read` pages are read beside the one that faulted, by its own request or as a want.
    pub(crate) fn settle_stream(
        &self,
        page: PageIndex,
        window: stream::Window,
        read: u32,
        near: NodeId,
    ) {
        // Pages without content end the window: the program faults there.
        let is_coming = |page: &PageIndex| {
            *page < self.pages.pages()
                && !matches!(self.pages.state(*page), PageState::Untouched | PageState::Lost)
        };
        let index = window.index_of(page);
        let along = pages_along(window.first, window.step, index..window.count);
        let count = index + along.take_while(is_coming).count() as u32;
        let ahead = window.ahead.filter(|_| count == window.count);
        self.streams.lock().on_served(page, stream::Window { count, ahead, ..window }, read);
        if let Some(ahead) = ahead {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A marked page is used for the first time.
    pub(crate) fn on_marked(&self, page: PageIndex, slot: Option<Slot>, near: NodeId) {
        count(&self.counters.swap_ra_hit, 1);
        let (limits, now_ns) = (self.limits(), clock::now_ns());
        let next = match (self.arena.hints.of(page), self.policy()) {
            (Hint::Sequential, _) => self.streams.lock().on_hit(page, now_ns, &limits),
            (_, ReadaheadPolicy::Stream) => self.stream_or_block_hit(page, slot, near, &limits),
            (_, ReadaheadPolicy::Vma) => self.vma_hit(page, now_ns, &limits),
            (_, ReadaheadPolicy::Scaling | ReadaheadPolicy::Fixed) => {
                self.cluster_hit();
                None
            }
            (_, ReadaheadPolicy::Off) => None,
        };
        if let Some(ahead) = next {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A page without a mark was found in a frame.
    pub(crate) fn on_lookup(&self, page: PageIndex) {
        if self.policy() == ReadaheadPolicy::Vma {
            self.vma_lookup(page);
        }
    }

    /// How far windows may grow.
    pub(crate) fn limits(&self) -> Limits {
        let room = self.readahead.room();
        let page_cluster = self.readahead.settings().page_cluster;
        let (run_max, ahead_max) = (RUN_MAX.min(room), AHEAD_MAX.min(room));
        Limits { page_cluster, run_first: READ_FIRST, run_max, ahead_max }
    }
}
