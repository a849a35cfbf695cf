//! What can be set of readahead, and what its policies remember.
use crate::base::index::PageIndex;
use crate::sys::lock::Lock;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering};
use userswap_policy::beside::Beside;
use userswap_policy::kernel::{Area, Cluster};
use userswap_policy::readahead::{AddressOrder, ReadaheadPolicy};

/// The settings of readahead, and the state of the kernel's policies.
pub struct Readahead {
    choice: AtomicU8,
    page_cluster: AtomicU8,
    in_address_order: AtomicBool,
    room: AtomicU32,
    /// The kernel's state for device order.
    pub(crate) cluster: Lock<Cluster>,
    /// What `stream` reads of pages out of the blue.
    pub(crate) beside: Lock<Beside>,
    /// The kernel's state for address order: the word of each region, at the number of its first page.
    areas: ZeroedSlice<AtomicU64>,
}

/// The settings at one moment.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Settings {
    /// `swap_ra_policy`.
    pub policy: ReadaheadPolicy,
    /// `page_cluster`.
    pub page_cluster: u8,
    /// `vma_ra_enabled`.
    pub address_order: AddressOrder,
}

impl Readahead {
    /// As `settings` say, for an arena of `pages` pages.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(settings: Settings, pages: u32, budgets: &[u32]) -> io::Result<Self> {
        let readahead = Self {
            choice: AtomicU8::new(0),
            page_cluster: AtomicU8::new(settings.page_cluster),
            in_address_order: AtomicBool::new(settings.address_order == AddressOrder::Enabled),
            room: AtomicU32::new(1),
            cluster: Lock::new(Cluster::new()),
            beside: Lock::new(Beside::new()),
            areas: ZeroedSlice::new(pages as usize)?,
        };
        readahead.set_policy(settings.policy);
        readahead.fit(budgets);
        Ok(readahead)
    }

    /// The settings at this moment.
    pub fn settings(&self) -> Settings {
        // Relaxed, as the stores: each is a number of its own, and a fault may see the one before.
        let enabled = self.in_address_order.load(Ordering::Relaxed);
        Settings {
            policy: ReadaheadPolicy::of_index(self.choice.load(Ordering::Relaxed)),
            page_cluster: self.page_cluster.load(Ordering::Relaxed),
            address_order: if enabled { AddressOrder::Enabled } else { AddressOrder::Disabled },
        }
    }

    /// Chooses the policy; what the others remember stays as it is.
    pub fn set_policy(&self, policy: ReadaheadPolicy) {
        self.choice.store(policy.index(), Ordering::Relaxed);
    }

    /// Sets the largest window of the kernel's policies.
    pub fn set_page_cluster(&self, page_cluster: u8) {
        self.page_cluster.store(page_cluster, Ordering::Relaxed);
    }

    /// Sets whether `scaling` may read in address order.
    pub fn set_address_order(&self, order: AddressOrder) {
        self.in_address_order.store(order == AddressOrder::Enabled, Ordering::Relaxed);
    }

    /// Pages of the largest window, 1 at least: a budget of a few megabytes must not be emptied by one.
    pub fn room(&self) -> u32 {
        self.room.load(Ordering::Relaxed)
    }

    /// Makes windows fit the budgets of all nodes.
    pub fn fit(&self, budgets: &[u32]) {
        let smallest = budgets.iter().min().copied().unwrap_or(0);
        self.room.store((smallest / 32).max(1), Ordering::Relaxed);
    }

    /// The region that began at a page has lost its content, and maybe its address: its area starts afresh.
    pub fn forget(&self, first: PageIndex) {
        let word = &self.areas[first as usize];
        if word.load(Ordering::Relaxed) != 0 {
            word.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn with_area<R>(&self, first: PageIndex, act: impl FnOnce(&mut Area) -> R) -> R {
        // Neither locked nor exchanged, as in the kernel: an update that is lost costs a better guess.
        let word = &self.areas[first as usize];
        let mut area = Area::new(word.load(Ordering::Relaxed));
        let result = act(&mut area);
        word.store(area.word(), Ordering::Relaxed);
        result
    }
}
