//! What is brought back, what for, and how many threads read it.
use crate::device::record::Device;
use crate::state::core::Core;

/// Pages of one request: 1 MiB, from where on larger ones gain nothing (docs/swapoff.md).
pub const READ_PAGES: u32 = 256;

/// Threads that read and place, the caller among them.
pub(crate) const READERS: u32 = 6;

/// A budget has room for this many times what is read at once.
const BUDGET_SHARE: u32 = 8;

/// How long one wait for frames or for pages in transition lasts.
pub const WAIT_NS: u64 = 10_000_000;

/// How long no progress means that there is no room.
pub const PATIENCE_NS: u64 = 2_000_000_000;

/// Why pages are brought back.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Goal {
    /// The device goes: what RAM has no room for goes to another one.
    Empty,
    /// The program will want them: as many as RAM has room for, and their slots stay theirs.
    Fill,
}

/// What is brought back.
#[derive(Clone, Copy)]
pub struct Task<'a> {
    /// Where it is.
    pub device: &'a Device,
    /// What for.
    pub goal: Goal,
}

impl Core {
    /// The requests of a swapoff: the most pages of one, and how many are in flight.
    pub fn swapoff_requests(&self) -> (u32, u32) {
        (READ_PAGES, self.readers())
    }

    /// Threads that a budget has room for, whichever way the pages go.
    pub(crate) fn readers(&self) -> u32 {
        let budget = self.inside_gate(|| self.budget_pages());
        (budget / (BUDGET_SHARE * READ_PAGES)).clamp(1, READERS)
    }
}
