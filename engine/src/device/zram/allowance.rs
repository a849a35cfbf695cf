//! How much memory compressed pages may take, and take: of all compressed devices of an engine together.
//!
//! The limit is a part of what the budget has beside pins, and what is taken is charged to the budget; that is done by the
//! rooms above, which fetch from here how much it has changed.
use crate::sys::PAGE_BYTES;
use crate::sys::lock::Lock;
use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
use userswap_policy::cells::{Counts, SLAB_PAGES, SLABS_BEGUN_MAX};
use userswap_policy::tiers::Room;

/// What pages can take beyond their promises, as each class begins slabs of its own.
const BEGUN_PAGES_MAX: u32 = SLABS_BEGUN_MAX * SLAB_PAGES;

/// The memory of an engine's compressed devices, in pages. All is Relaxed: the numbers stand for nothing else.
pub struct Allowance {
    budget: AtomicU32,
    /// The most that slabs may take, whatever the budget has.
    most: AtomicU32,
    /// As [`Self::most`], while the budget is being made smaller.
    bound: AtomicU32,
    /// Pages that the program has pinned; their part of the budget cannot be had.
    pub(crate) pins: AtomicU32,
    /// Promised to slots that hold nothing yet.
    reserved: AtomicI64,
    /// Of slabs with a page in them.
    busy: AtomicI64,
    /// Of the cells that hold a page, in bytes.
    cell_bytes: AtomicI64,
    /// Of all slabs with memory, as far as it is not accounted for yet.
    unsettled: AtomicI64,
    /// Held by the thread that accounts for it.
    pub(crate) settling: Lock<()>,
}

/// What the memory may come to, in pages.
#[derive(Clone, Copy)]
struct Limits {
    /// Cells that hold a page, and promises.
    cells: u32,
    /// Slabs with a page in them, and promises.
    slabs: u32,
}

impl Allowance {
    /// Nothing is allowed yet.
    pub fn new() -> Self {
        let [budget, pins] = [const { AtomicU32::new(0) }; 2];
        let [most, bound] = [const { AtomicU32::new(u32::MAX) }; 2];
        let [reserved, busy, cell_bytes, unsettled] = [const { AtomicI64::new(0) }; 4];
        Self {
            budget,
            most,
            bound,
            pins,
            reserved,
            busy,
            cell_bytes,
            unsettled,
            settling: Lock::new(()),
        }
    }

    /// Changes the budget of which this is a part.
    pub fn set_budget(&self, pages: u32) {
        self.budget.store(pages, Ordering::Relaxed);
    }

    /// Changes the most that slabs may take, as far as the budget has it; what they hold already has to move on.
    pub fn set_most(&self, pages: u32) {
        self.most.store(pages, Ordering::Relaxed);
    }

    /// As [`Self::set_most`], in addition, until it is taken off; of several the least.
    pub fn bound_by(&self, pages: u32) {
        self.bound.fetch_min(pages, Ordering::Relaxed);
    }

    /// Takes off the bound that a caller of [`Self::bound_by`] has set, unless another's is in force.
    pub fn unbind(&self, pages: u32) {
        let _ = self.bound.compare_exchange(pages, u32::MAX, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Takes off whatever bound there is: whoever set it is not here.
    pub fn forget_bound(&self) {
        self.bound.store(u32::MAX, Ordering::Relaxed);
    }

    /// Pages of memory that the cells take which hold a page.
    pub fn cells(&self) -> u32 {
        let pages = self.cell_bytes.load(Ordering::Relaxed) / PAGE_BYTES as i64;
        pages.clamp(0, u32::MAX.into()) as u32
    }

    /// The most that slabs could take, were it not for [`Self::set_most`].
    pub fn most_of_budget(&self) -> u32 {
        let pins = self.pins.load(Ordering::Relaxed);
        self.budget.load(Ordering::Relaxed).saturating_sub(pins) / 4 * 3
    }

    /// What pages and promises may take. Cells and promises: with slabs begun, which are half full, not more than three
    /// quarters of what pins leave, and half of it where that would be little. Slabs, of which cells may be free until others
    /// are emptied into them, with all that may still be begun seven eighths.
    fn limits(&self) -> Limits {
        let pins = self.pins.load(Ordering::Relaxed);
        let room = self.budget.load(Ordering::Relaxed).saturating_sub(pins);
        let with_begun = |pages: u32, begun: u32| pages.saturating_sub(begun).max(room / 2);
        let bound = self.bound.load(Ordering::Relaxed);
        let most = self.most.load(Ordering::Relaxed).min(bound);
        let cells = with_begun(room / 4 * 3, BEGUN_PAGES_MAX / 2).min(most - most / 16);
        Limits { cells, slabs: with_begun(room / 8 * 7, BEGUN_PAGES_MAX).min(most) }
    }

    /// What is left of them, less than nothing where they are exceeded.
    fn left(&self, limits: Limits, reserved: i64) -> i64 {
        let cells = self.cell_bytes.load(Ordering::Relaxed) / PAGE_BYTES as i64;
        let busy = self.busy.load(Ordering::Relaxed);
        (i64::from(limits.cells) - cells).min(i64::from(limits.slabs) - busy) - reserved
    }

    fn is_within(&self, reserved: i64) -> bool {
        self.left(self.limits(), reserved) >= 0
    }

    /// How much room there is, in pages of memory.
    pub fn room(&self) -> Room {
        let limits = self.limits();
        let left = self.left(limits, self.reserved.load(Ordering::Relaxed));
        Room { free: left, total: limits.cells }
    }

    /// What slabs in use and reservations together take.
    pub(crate) fn taken(&self) -> u32 {
        let taken = self.busy.load(Ordering::Relaxed) + self.reserved.load(Ordering::Relaxed);
        taken.try_into().unwrap_or(0)
    }

    /// Promises room for pages at their worst; false when there is none.
    pub fn reserve(&self, pages: u32) -> bool {
        let after = self.reserved.fetch_add(pages.into(), Ordering::Relaxed) + i64::from(pages);
        let fits = self.is_within(after);
        if !fits {
            self.release(pages);
        }
        fits
    }

    /// Takes a promise back: the pages have come, or never will.
    pub fn release(&self, pages: u32) {
        self.reserved.fetch_sub(pages.into(), Ordering::Relaxed);
    }

    /// Whether so many pages could be reserved.
    pub fn has_room(&self, pages: u32) -> bool {
        self.is_within(self.reserved.load(Ordering::Relaxed) + i64::from(pages))
    }

    /// The slabs of a device have changed.
    pub fn on_change(&self, before: Counts, after: Counts) {
        let pages = |slabs: u32| i64::from(slabs) * i64::from(SLAB_PAGES);
        let busy = pages(after.busy) - pages(before.busy);
        let all = busy + pages(after.empty) - pages(before.empty);
        let cells = after.cell_bytes.wrapping_sub(before.cell_bytes) as i64;
        self.cell_bytes.fetch_add(cells, Ordering::Relaxed);
        if busy != 0 {
            self.busy.fetch_add(busy, Ordering::Relaxed);
        }
        if all != 0 {
            self.unsettled.fetch_add(all, Ordering::Relaxed);
        }
    }

    /// What is not accounted for yet.
    pub fn unsettled(&self) -> i64 {
        self.unsettled.load(Ordering::Relaxed)
    }

    /// Pages of memory taken, or given back where negative, since this was last asked.
    pub fn take_unsettled(&self) -> i64 {
        self.unsettled.swap(0, Ordering::Relaxed)
    }
}
