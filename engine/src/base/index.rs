//! The numbers that name things: pages, frames, slots, nodes.

pub use userswap_policy::devices::NodeId;

/// A page of the arena, counted from its start.
pub type PageIndex = u32;

/// A frame of the engine, present or not, counted over the pools of all nodes.
pub type FrameIndex = u32;

/// A slot on some device; zero is never one (every device begins with its header).
#[derive(Clone, Copy, PartialEq, Eq, Debug, PartialOrd, Ord)]
pub struct Slot(pub std::num::NonZeroU32);

/// Consecutive pages of the arena.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PageRange {
    /// The page with the lowest address.
    pub first: PageIndex,
    /// Number of pages; 0 is an empty range.
    pub count: u32,
}

impl PageRange {
    /// The page after the last one.
    pub fn end(self) -> PageIndex {
        self.first + self.count
    }

    /// The range without its first pages.
    pub fn after(self, count: u32) -> Self {
        Self { first: self.first + count, count: self.count - count }
    }

    /// Whether `page` is one of the range.
    pub fn contains(self, page: PageIndex) -> bool {
        (self.first..self.end()).contains(&page)
    }
}
