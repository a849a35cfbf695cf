//! Advice about memory by its address, for blocks of a heap and for what is known by a pointer only.
use crate::api::engine::Engine;
use crate::base::error::Error;
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::sys::PAGE_BYTES;
use crate::sys::signal::Blocked;
use userswap_policy::readahead::Hint;

/// What is to be done with a range of memory, or how it will be used: each as the method of [`Region`](crate::Region) of
/// that name. None changes what is in the memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Advice {
    /// [`Region::normal`](crate::Region::normal).
    Normal,
    /// [`Region::sequential`](crate::Region::sequential).
    Sequential,
    /// [`Region::random`](crate::Region::random).
    Random,
    /// [`Region::will_need`](crate::Region::will_need).
    WillNeed,
    /// [`Region::cold`](crate::Region::cold).
    Cold,
    /// [`Region::prefetch`](crate::Region::prefetch).
    Prefetch,
    /// [`Region::page_out`](crate::Region::page_out).
    PageOut,
    /// [`Region::pin`](crate::Region::pin).
    Pin,
    /// [`Region::unpin`](crate::Region::unpin).
    Unpin,
}

impl Core {
    /// Does with pages what the advice says.
    pub(super) fn advise(&self, range: PageRange, advice: Advice) -> Result<(), Error> {
        self.check_here()?;
        let _blocked = Blocked::new();
        match advice {
            Advice::Normal => self.arena.hints.set(range, Hint::Normal),
            Advice::Sequential => self.arena.hints.set(range, Hint::Sequential),
            Advice::Random => self.arena.hints.set(range, Hint::Random),
            Advice::WillNeed => self.will_need(range),
            Advice::Cold => self.cool(range),
            Advice::Prefetch => self.prefetch_range(range),
            Advice::PageOut => self.page_out_range(range),
            Advice::Pin => return self.pin_readable(range),
            Advice::Unpin => self.unpin_range(range),
        }
        Ok(())
    }
}

impl Core {
    /// A page is brought in by reading it.
    fn pin_readable(&self, range: PageRange) -> Result<(), Error> {
        match self.arena.closed_within(range) {
            Some(page) => Err(Error::NotReadable(self.page_address(page))),
            None => {
                self.has_pin_room(range.count);
                self.pin_range(range)
            }
        }
    }
}

impl Engine {
    /// Gives advice for all pages that a range of addresses touches, which may be of a region, or of a heap's blocks: small
    /// ones share their pages with others.
    ///
    /// # Errors
    /// [`Error::NotManaged`]: a page of the range is in no region or heap of this engine; [`Error::PinTooLarge`] and
    /// [`Error::NotReadable`], as for [`Region::pin`](crate::Region::pin).
    ///
    /// # Panics
    /// As for [`Region::pin`](crate::Region::pin).
    pub fn advise(&self, address: usize, bytes: usize, advice: Advice) -> Result<(), Error> {
        self.core().advise(self.pages_at(address, bytes)?, advice)
    }

    fn pages_at(&self, address: usize, bytes: usize) -> Result<PageRange, Error> {
        self.core().check_here()?;
        let arena = &self.core().arena;
        let refused = || Error::NotManaged(address, bytes);
        let end = address.checked_add(bytes).ok_or_else(refused)?;
        if !arena.contains(address) || end > arena.address() + arena.bytes() {
            return Err(refused());
        }
        let first = arena.page_of(address);
        let past = (end - arena.address()).div_ceil(PAGE_BYTES) as u32;
        let range = PageRange { first, count: past.saturating_sub(first) };
        let _blocked = Blocked::new();
        let allocated: u32 = arena.allocated(range).iter().map(|part| part.count).sum();
        if allocated == range.count { Ok(range) } else { Err(refused()) }
    }
}
