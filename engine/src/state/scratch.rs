//! Memory for pages on their way out, allocated beforehand: direct reclaim may run in a signal handler.
use crate::base::index::{FrameIndex, PageIndex, Slot};
use crate::base::limits::BATCH;
use crate::sys::PAGE_BYTES;
use crate::sys::mapping::Mapping;
use crate::sys::request::Pieces;
use crate::sys::scattered::{SCATTERED_MAX, Scattered};
use std::num::NonZeroU32;
use userswap_policy::retry::Tries;

/// A page on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub page: PageIndex,
    /// The slot that held its content when it was swapped in.
    pub slot: Option<Slot>,
    /// Where its content is now.
    pub frame: FrameIndex,
    /// The checksum of its content.
    pub checksum: u64,
}

const _: () = assert!(BATCH <= SCATTERED_MAX, "a batch of clean pages is dropped by one call");

/// Memory for one batch, allocated beforehand: direct reclaim may run in a signal handler.
pub struct Scratch {
    pub(crate) victims: [Victim; BATCH],
    pub(crate) count: usize,
    pub(crate) clean: [Victim; BATCH],
    pub(crate) clean_count: usize,
    pub(crate) scattered: Scattered,
    pub(crate) taken: [Unmapped; BATCH],
    pub(crate) write: WriteOp,
}

impl Scratch {
    pub fn new() -> Self {
        Self {
            victims: [Self::victim(0, None); BATCH],
            count: 0,
            clean: [Self::victim(0, None); BATCH],
            clean_count: 0,
            scattered: Scattered::default(),
            taken: [Unmapped::Stayed; BATCH],
            write: WriteOp::new(),
        }
    }

    /// A page that is still mapped.
    pub(crate) fn victim(page: PageIndex, slot: Option<Slot>) -> Victim {
        Victim { page, slot, frame: 0, checksum: 0 }
    }

    /// Takes all pages out.
    pub fn clear(&mut self) {
        (self.count, self.clean_count) = (0, 0);
    }

    /// One more page, owned in Leaving.
    pub fn add(&mut self, page: PageIndex, slot: Option<Slot>) {
        self.victims[self.count] = Self::victim(page, slot);
        self.count += 1;
    }

    /// One more page, owned in Leaving, that was Clean.
    pub fn add_clean(&mut self, page: PageIndex, slot: Slot) {
        self.clean[self.clean_count] = Self::victim(page, Some(slot));
        self.clean_count += 1;
    }

    /// Pages that were added, clean ones among them.
    pub fn added(&self) -> usize {
        self.count + self.clean_count
    }

    /// Their numbers.
    pub fn pages(&self) -> impl Iterator<Item = PageIndex> {
        let added = self.victims[..self.count].iter().chain(&self.clean[..self.clean_count]);
        added.map(|victim| victim.page)
    }

    /// One more page, owned, whose content is in a held frame.
    pub fn add_held(&mut self, victim: Victim) {
        self.victims[self.count] = victim;
        self.count += 1;
    }

    /// The dirty pages that are left to be written.
    pub fn victims(&self) -> &[Victim] {
        &self.victims[..self.count]
    }
}

/// Where a page's content went when it was unmapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapped {
    /// Its content is in this held frame.
    Frame(FrameIndex),
    /// It had to stay.
    Stayed,
    /// It was not there any more, by the program's own doing: the accounting is right, the content is gone.
    Gone,
}

/// One write: pages in the order of their slots.
pub struct WriteOp {
    pub(crate) victims: [Victim; BATCH],
    pub(crate) count: usize,
    pub(crate) first: Option<Slot>,
    /// What the device reads from; must stay in place while the write is under way.
    pub pieces: Pieces,
    /// How often it has failed.
    pub tries: Tries,
    /// Where pages are encrypted, once there was one that had to be: the frames stay as they are, for a fault may take
    /// them back.
    staging: Option<Mapping>,
}

impl WriteOp {
    pub fn new() -> Self {
        let none = Victim { page: 0, slot: None, frame: 0, checksum: 0 };
        let (pieces, tries) = (Pieces::default(), Tries::default());
        Self { victims: [none; BATCH], count: 0, first: None, pieces, tries, staging: None }
    }

    /// The address of memory for copies of all its pages, which is the engine's own beside the budget; None where there is
    /// no address space. Safe in a signal handler.
    pub(crate) fn staging(&mut self) -> Option<usize> {
        if self.staging.is_none() {
            let memory = Mapping::undumped(BATCH * PAGE_BYTES).ok()?;
            // No write is under way at a fork: neither side pays for a copy.
            memory.advise(0, memory.bytes(), libc::MADV_WIPEONFORK).ok()?;
            self.staging = Some(memory);
        }
        self.staging.as_ref().map(Mapping::address)
    }

    /// The slot of the first victim.
    ///
    /// # Panics
    /// When the write was not prepared.
    pub fn slot(&self) -> Slot {
        self.first.expect("a prepared write has slots")
    }

    /// A frame of the write: all are of one node.
    pub fn first_frame(&self) -> FrameIndex {
        assert!(self.count > 0, "a prepared write has pages");
        self.victims[0].frame
    }

    /// The slot of the victim with this index.
    pub(crate) fn slot_at(&self, index: usize) -> Slot {
        Slot(NonZeroU32::new(self.slot().0.get() + index as u32).expect("slots follow a slot"))
    }
}
