//! Readahead on the engine's side: which policy answers a fault, what of its window there is to read, and
//! who is told about hits.
//!
//! The fault's own request takes what one read can get together with the page; the rest of a window, and
//! the windows ahead, are left to the server (`ahead.rs`). Device order needs the page of a slot: the
//! devices remember who was written there last, and the page's word says whether that is still true.
use crate::ahead::{Span, Want};
use crate::arena::PageRange;
use crate::batch::{Batch, Entry, Gaps};
use crate::core::{Core, RUN_MAX};
use crate::counters::count;
use crate::device::record::number_of;
use crate::device::{SlotSpan, slot_of};
use crate::page::{NodeId, PageIndex, PageState, Slot};
use crate::swap_in::Landing;
use crate::sys::clock;
use crate::sys::lock::Lock;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
pub use userswap_policy::readahead::{
    AddressOrder, Choice, PAGE_CLUSTER_DEFAULT, PAGE_CLUSTER_MAX, page_cluster_of,
};
use userswap_policy::readahead::{
    Area, Cluster, Fault, Fixed, Hint, Limits, Readahead as Policy, Scaling, Window,
};
use userswap_policy::stream;

/// What can be set, and what the policies remember.
pub struct Readahead {
    choice: AtomicU8,
    page_cluster: AtomicU8,
    in_address_order: AtomicBool,
    /// The kernel's state for device order.
    cluster: Lock<Cluster>,
    /// The kernel's state for address order: the word of each region, at the number of its first page.
    areas: ZeroedSlice<AtomicU64>,
}

/// The settings at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `swap_ra_policy`.
    pub policy: Choice,
    /// `page_cluster`.
    pub page_cluster: u8,
    /// `vma_ra_enabled`.
    pub address_order: AddressOrder,
}

/// What is to be read for a fault.
pub struct Plan {
    target: Entry,
    window: Window,
    /// Whether the fault's request may read over slots.
    pub gaps: Gaps,
}

impl Readahead {
    /// As `settings` say, for an arena of `pages` pages.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(settings: Settings, pages: u32) -> io::Result<Self> {
        let readahead = Self {
            choice: AtomicU8::new(0),
            page_cluster: AtomicU8::new(settings.page_cluster),
            in_address_order: AtomicBool::new(settings.address_order == AddressOrder::Enabled),
            cluster: Lock::new(Cluster::new()),
            areas: ZeroedSlice::new(pages as usize)?,
        };
        readahead.set_policy(settings.policy);
        Ok(readahead)
    }

    /// The settings.
    pub fn settings(&self) -> Settings {
        // Relaxed, as the stores: each is a number of its own, and a fault may see the one before.
        let enabled = self.in_address_order.load(Ordering::Relaxed);
        Settings {
            policy: Choice::ALL[usize::from(self.choice.load(Ordering::Relaxed))],
            page_cluster: self.page_cluster.load(Ordering::Relaxed),
            address_order: if enabled { AddressOrder::Enabled } else { AddressOrder::Disabled },
        }
    }

    /// Chooses the policy; what the others remember stays as it is.
    pub fn set_policy(&self, policy: Choice) {
        let place = Choice::ALL.iter().position(|choice| *choice == policy);
        let place = place.expect("all policies are listed") as u8;
        self.choice.store(place, Ordering::Relaxed);
    }

    /// Sets the largest window of the kernel's policies.
    pub fn set_page_cluster(&self, page_cluster: u8) {
        self.page_cluster.store(page_cluster, Ordering::Relaxed);
    }

    /// Sets whether `scaling` may read in address order.
    pub fn set_address_order(&self, order: AddressOrder) {
        self.in_address_order.store(order == AddressOrder::Enabled, Ordering::Relaxed);
    }

    /// What began at a page has lost its content, and maybe its place: it starts afresh.
    pub fn forget(&self, first: PageIndex) {
        let word = &self.areas[first as usize];
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    fn with_area<R>(&self, first: PageIndex, act: impl FnOnce(&mut Area) -> R) -> R {
        // Neither locked nor exchanged, as in the kernel: an update that is lost costs a better guess.
        let word = &self.areas[first as usize];
        let mut area = Area::new(word.load(Ordering::Relaxed));
        let result = act(&mut area);
        word.store(area.word(), Ordering::Relaxed);
        result
    }
}

impl Core {
    /// The policy that answers: `scaling` is in address order where that is enabled and no device has to
    /// seek.
    fn policy(&self) -> Choice {
        let settings = self.readahead.settings();
        match settings.policy {
            Choice::Scaling if settings.address_order == AddressOrder::Disabled => Choice::Scaling,
            Choice::Scaling if self.devices.any_rotational() => Choice::Scaling,
            Choice::Scaling => Choice::Vma,
            other => other,
        }
    }

    /// A fault on a page that need not be on a device, as the streams see it.
    pub fn fault_without_slot(&self, page: PageIndex, near: NodeId) -> Fault {
        Fault {
            page,
            region_first: 0,
            region_end: self.pages.pages(),
            slot: 0,
            slots: u32::MAX,
            node: userswap_policy::devices::NodeId(near.0),
            now_ns: clock::now_ns(),
            hint: self.arena.hints.of(page),
        }
    }

    /// What to read for a fault on a swapped page; `found` gets the swapped pages of the window that one
    /// request could have together with it, the page among them.
    pub fn plan_read(&self, target: Entry, near: NodeId, found: &mut Batch) -> Plan {
        let slot = number_of(target.slot);
        let fault = Fault { slot, ..self.fault_without_slot(target.page, near) };
        let window = self.bounded(self.window_for(fault, target), fault.slot);
        let gaps = if matches!(window, Window::Stream(_)) { Gaps::Small } else { Gaps::None };
        self.find_swapped(target, &window, found);
        Plan { target, window, gaps }
    }

    fn window_for(&self, fault: Fault, target: Entry) -> Window {
        let limits = self.limits();
        match (fault.hint, self.policy()) {
            (_, Choice::Off) | (Hint::Random, _) => Window::One,
            (Hint::Sequential, _) | (Hint::Normal, Choice::Stream) => {
                Window::Stream(self.stream_window(&fault, &limits))
            }
            (Hint::Normal, Choice::Vma) => {
                let region = self.arena.region_of(fault.page);
                let region = region.unwrap_or(PageRange { first: fault.page, count: 1 });
                let (region_first, region_end) = (region.first, region.end());
                let fault = Fault { region_first, region_end, ..fault };
                self.readahead.with_area(region.first, |area| area.on_fault(&fault, &limits))
            }
            (Hint::Normal, Choice::Scaling) => {
                let fault = Fault { slots: self.slots_beside(target), ..fault };
                Scaling(&mut self.readahead.cluster.lock()).on_fault(&fault, &limits)
            }
            (Hint::Normal, Choice::Fixed) => {
                let fault = Fault { slots: self.slots_beside(target), ..fault };
                Fixed(&mut self.readahead.cluster.lock()).on_fault(&fault, &limits)
            }
        }
    }

    /// Slots of the device of an entry, with the header.
    fn slots_beside(&self, entry: Entry) -> u32 {
        let label = self.devices.device_of(entry.slot).label();
        label.map_or(u32::MAX, |label| label.max)
    }

    /// Asks the streams, and counts what they give up meanwhile.
    pub fn stream_window(&self, fault: &Fault, limits: &Limits) -> stream::Window {
        let mut streams = self.streams.lock();
        let window = streams.window(fault, limits);
        let wasted = streams.take_wasted();
        drop(streams);
        count(&self.counters.swap_ra_wasted, wasted);
        window
    }

    /// A block of slots that a small budget can hold: the part around the page that is a power of two.
    fn bounded(&self, window: Window, slot: u32) -> Window {
        let Window::Slots { first, count } = window else { return window };
        let most = 1 << self.limits().ahead_max.max(1).ilog2();
        if count <= most {
            return window;
        }
        let low = first.max(slot - slot % most);
        Window::Slots { first: low, count: (first + count).min(slot - slot % most + most) - low }
    }

    fn find_swapped(&self, target: Entry, window: &Window, found: &mut Batch) {
        found.clear();
        match *window {
            Window::One => found.push(target),
            Window::Slots { first, count } => {
                let id = self.devices.device_of(target.slot).id();
                let block = number_of(target.slot) / RUN_MAX * RUN_MAX;
                let slots = first.max(block)..(first + count).min(block + RUN_MAX);
                let slots = slots.map(|number| slot_of(id, number));
                slots.filter_map(|slot| self.entry_on(slot)).for_each(|entry| found.push(entry));
            }
            Window::Pages { first, count } => {
                let pages = first..first + count.min(RUN_MAX);
                pages.filter_map(|page| self.entry_of(page)).for_each(|entry| found.push(entry));
            }
            Window::Stream(window) => {
                let pages = pages_along(window.first, window.step, 0..window.count.min(RUN_MAX));
                pages.filter_map(|page| self.entry_of(page)).for_each(|entry| found.push(entry));
            }
        }
        found.sort();
        if found.place_of(target.page).is_none() {
            // Somebody else has claimed it meanwhile; who claims it next will notice.
            found.clear();
            found.push(target);
        }
    }

    /// A page with its slot, if it is swapped.
    pub fn entry_of(&self, page: PageIndex) -> Option<Entry> {
        if page >= self.pages.pages() {
            return None;
        }
        match self.pages.state(page) {
            PageState::Swapped { slot } => Some(Entry { page, slot }),
            _ => None,
        }
    }

    /// A slot with its page, if that page is swapped there.
    pub fn entry_on(&self, slot: Slot) -> Option<Entry> {
        self.entry_of(self.devices.page_on(slot)).filter(|entry| entry.slot == slot)
    }

    /// Once the fault's own request is made up: leaves what it does not read to the server, and tells the
    /// stream what it can count on.
    pub fn settle_plan(&self, plan: &Plan, (found, claimed): (u32, u32), near: NodeId) -> Landing {
        let is_rest = found > claimed;
        let target = plan.target.page;
        let span = match plan.window {
            Window::One => return Landing::Mapped { marker: None },
            Window::Stream(window) => {
                let rest = is_rest.then_some(Span::Run {
                    first: window.first,
                    count: window.count,
                    step: window.step,
                });
                rest.into_iter().for_each(|span| self.want(Want::new(span, near)));
                self.settle_stream(target, window, (found - 1, near));
                return Landing::Mapped { marker: None };
            }
            Window::Slots { first, count } => {
                let id = self.devices.device_of(plan.target.slot).id();
                let span = SlotSpan { first: slot_of(id, first), count };
                (is_rest || count > RUN_MAX).then_some(Span::Slots(span))
            }
            Window::Pages { first, count } => {
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
        let place = window.place_of(page);
        let along = pages_along(window.first, window.step, place..window.count);
        let count = place + along.take_while(is_coming).count() as u32;
        let ahead = window.ahead.filter(|_| count == window.count);
        self.streams.lock().on_served(page, stream::Window { count, ahead, ..window }, read);
        if let Some(ahead) = ahead {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A marked page is used for the first time.
    pub fn on_marked(&self, page: PageIndex, near: NodeId) {
        count(&self.counters.swap_ra_hit, 1);
        let limits = self.limits();
        let next = match (self.arena.hints.of(page), self.policy()) {
            (Hint::Sequential, _) | (_, Choice::Stream) => {
                self.streams.lock().on_hit(page, &limits)
            }
            (_, Choice::Vma) => {
                let region = self.arena.region_of(page);
                region.and_then(|region| {
                    self.readahead.with_area(region.first, |area| area.on_hit(page, &limits))
                })
            }
            (_, Choice::Scaling | Choice::Fixed) => {
                Scaling(&mut self.readahead.cluster.lock()).on_hit(page, &limits)
            }
            (_, Choice::Off) => None,
        };
        if let Some(ahead) = next {
            self.want(Want::new(Span::Ahead(ahead), near));
        }
    }

    /// A page without a mark was found in a frame.
    pub fn on_lookup(&self, page: PageIndex) {
        if self.policy() == Choice::Vma
            && let Some(region) = self.arena.region_of(page)
        {
            self.readahead.with_area(region.first, |area| area.on_lookup(page));
        }
    }
}

/// Pages at some places along a stream.
pub fn pages_along(
    first: PageIndex,
    step: i32,
    places: std::ops::Range<u32>,
) -> impl Iterator<Item = PageIndex> {
    // Windows are made so that their pages have numbers.
    places.map(move |place| first.wrapping_add_signed(step.wrapping_mul(place as i32)))
}
