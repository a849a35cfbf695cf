//! A swapoff's task: which device is read, for which goal, in which requests and by how many threads.
use crate::device::record::Device;
use crate::state::core::Core;

/// Pages of one request: 1 MiB, from where on larger ones gain nothing (docs/swapoff.md).
pub const READ_PAGES: u32 = 256;

/// The most threads that read and place, the caller among them.
pub(crate) const READERS: u32 = 6;

/// A budget has room for this many times what is read at once.
const BUDGET_SHARE: u32 = 8;

/// How long one wait for frames or for pages in transition lasts: 10 ms.
pub const WAIT_NS: u64 = 10_000_000;

/// After this long without progress there is no room: 2 s.
pub const PATIENCE_NS: u64 = 2_000_000_000;

/// Why a device is read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// swapoff: what RAM has no room for goes to another device.
    Empty,
    /// Prefetch: as many pages as RAM has room for, which keep their slots.
    Fill,
}

/// One pass over a device.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// The device that is read.
    pub device: &'a Device,
    /// Where its pages go.
    pub goal: Goal,
}

/// How a swapoff reads.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Requests {
    /// The most pages of one request.
    pub pages_max: u32,
    /// How many requests are under way at once.
    pub in_flight: u32,
}

impl Core {
    /// How a swapoff would read at the budget of this moment.
    pub fn swapoff_requests(&self) -> Requests {
        Requests { pages_max: READ_PAGES, in_flight: self.readers() }
    }

    /// Threads that the budget has room for, to swap in or out: 1 to [`READERS`].
    pub(crate) fn readers(&self) -> u32 {
        let budget = self.inside_gate(|| self.budget_pages());
        (budget / (BUDGET_SHARE * READ_PAGES)).clamp(1, READERS)
    }
}
