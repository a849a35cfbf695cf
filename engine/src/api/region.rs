//! A region: memory of an engine that a program sees as a plain slice.
use crate::api::advice::Advice;
use crate::api::protect::Protection;
use crate::api::running::Running;
use crate::base::error::Error;
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::sys::signal::Blocked;
use crate::sys::{PAGE_BYTES, pages};
use bytemuck::{AnyBitPattern, NoUninit};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Memory of an engine; dropping it forgets its content, without any write.
///
/// Ranges given to its methods are bytes from its start. Advice and transfers work on whole pages of 4 KiB: on every page
/// that a range touches, unless a method says otherwise.
pub struct Region {
    running: Arc<Running>,
    range: PageRange,
    bytes: usize,
    /// Some pages may be protected: whoever gets them next expects to read and write.
    is_protected: AtomicBool,
}

impl Region {
    /// At a multiple of `align` bytes.
    pub(crate) fn allocate(
        running: &Arc<Running>,
        bytes: usize,
        align: usize,
    ) -> Result<Self, Error> {
        running.core.check_here()?;
        let full = || Error::ArenaFull(bytes as u64);
        let pages = |bytes: usize| u32::try_from(bytes.div_ceil(PAGE_BYTES).max(1)).ok();
        let (count, align) = pages(bytes).zip(pages(align)).ok_or_else(full)?;
        let _blocked = Blocked::new();
        let range = running.core.arena.allocate(count, align).ok_or_else(full)?;
        Ok(Self { running: running.clone(), range, bytes, is_protected: AtomicBool::new(false) })
    }

    /// Length in bytes, as given to [`Engine::map`](crate::Engine::map).
    pub fn len(&self) -> usize {
        self.bytes
    }

    /// Whether the length is 0.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Where the memory begins, at a multiple of the page; valid for as long as the region exists.
    pub fn as_ptr(&self) -> *mut u8 {
        self.address() as *mut u8
    }

    /// The memory as bytes: plain reads, of which those of swapped pages fault.
    pub fn as_slice(&self) -> &[u8] {
        pages::view(self.address(), self.bytes)
    }

    /// As [`Region::as_slice`], for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        pages::view_mut(self.address(), self.bytes)
    }

    /// The memory as values of a plain-old-data type; trailing bytes that make no whole value are left out.
    ///
    /// # Panics
    /// The type has no size, or must be aligned to more than a page.
    pub fn as_typed<T: AnyBitPattern>(&self) -> &[T] {
        let whole = self.bytes / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice(&self.as_slice()[..whole])
    }

    /// As [`Region::as_typed`], for writing.
    ///
    /// # Panics
    /// As for [`Region::as_typed`].
    pub fn as_typed_mut<T: AnyBitPattern + NoUninit>(&mut self) -> &mut [T] {
        let whole = self.bytes / size_of::<T>() * size_of::<T>();
        bytemuck::cast_slice_mut(&mut self.as_mut_slice()[..whole])
    }

    /// Swaps bytes in before they are needed, as far as the budget goes without reclaiming other pages; waits for the
    /// reads.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: bytes outside the region.
    pub fn prefetch(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Prefetch)
    }

    /// Takes back [`Region::sequential`] and [`Region::random`] for these bytes.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn normal(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Normal)
    }

    /// These bytes will be used in order: from the first fault on they are read ahead in large windows,
    /// whatever the readahead policy, except [`ReadaheadPolicy::Off`](crate::ReadaheadPolicy::Off).
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn sequential(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Sequential)
    }

    /// These bytes will be used in no order: nothing is read ahead.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn random(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Random)
    }

    /// These bytes will be needed soon: as [`Region::prefetch`], without waiting, and not beyond half of the
    /// budget.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn will_need(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::WillNeed)
    }

    /// These bytes will not be needed soon: their pages are the next to be reclaimed.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn cold(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Cold)
    }

    /// The content of these bytes is not needed any more: as [`Region::discard`].
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn dont_need(&mut self, bytes: Range<usize>) -> Result<(), Error> {
        self.discard(bytes)
    }

    /// Swaps the pages of these bytes out now; pinned pages stay, and so do those that no device has room for.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn page_out(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::PageOut)
    }

    /// Forgets the pages that lie within these bytes as a whole: nothing is written, they read as zeros afterwards.
    /// Pages that the range covers only in part keep their content, but for the last one of the region.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn discard(&mut self, bytes: Range<usize>) -> Result<(), Error> {
        self.forget(bytes)
    }

    /// As [`Region::discard`], for other languages, whose programs see to it that nobody uses these bytes.
    ///
    /// # Errors
    /// Bytes outside the region.
    #[doc(hidden)]
    pub fn forget(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.core().check_here()?;
        let range = self.pages_touching(bytes.clone())?;
        let skip_first = !bytes.start.is_multiple_of(PAGE_BYTES);
        let skip_last = !bytes.end.is_multiple_of(PAGE_BYTES) && bytes.end != self.bytes;
        let first = range.first + u32::from(skip_first);
        let end = range.end() - u32::from(skip_last);
        if first < end {
            let _blocked = Blocked::new();
            self.core().drop_range(PageRange { first, count: end - first });
        }
        Ok(())
    }

    /// Swaps bytes in and keeps them in RAM until they are unpinned; pins nest.
    ///
    /// Needed while a device writes into the region (O_DIRECT, registered buffers) where pages leave by
    /// copying, that is before Linux 6.8: only MOVE refuses pages that a device holds.
    ///
    /// # Errors
    /// Bytes outside the region; [`Error::PinTooLarge`], with nothing pinned: at most three quarters of the budget can
    /// be; [`Error::NotReadable`]: pages that are protected from being read.
    ///
    /// # Panics
    /// A page is pinned too often: a pin is missing its [`Region::unpin`].
    pub fn pin(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Pin)
    }

    /// Undoes one [`Region::pin`] of the same bytes; pages without a pin are left alone.
    ///
    /// # Errors
    /// Bytes outside the region.
    pub fn unpin(&self, bytes: Range<usize>) -> Result<(), Error> {
        self.advise(bytes, Advice::Unpin)
    }

    /// Gives advice for these bytes: the method of that name.
    ///
    /// # Errors
    /// As that method.
    ///
    /// # Panics
    /// As [`Region::pin`].
    pub fn advise(&self, bytes: Range<usize>, advice: Advice) -> Result<(), Error> {
        self.core().advise(self.pages_touching(bytes)?, advice)
    }

    pub(super) fn core(&self) -> &Core {
        &self.running.core
    }

    pub(crate) fn address(&self) -> usize {
        self.core().page_address(self.range.first)
    }

    pub(super) fn note_protection(&self) {
        self.is_protected.store(true, Ordering::Relaxed);
    }

    pub(super) fn pages_touching(&self, bytes: Range<usize>) -> Result<PageRange, Error> {
        if bytes.start > bytes.end || bytes.end > self.bytes {
            return Err(Error::OutOfRange(bytes.start, bytes.end, self.bytes));
        }
        let first = (bytes.start / PAGE_BYTES) as u32;
        let end = bytes.end.div_ceil(PAGE_BYTES) as u32;
        Ok(PageRange { first: self.range.first + first, count: end.saturating_sub(first) })
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        if !self.core().own_process.is_here() {
            return;
        }
        let _blocked = Blocked::new();
        let is_open = !self.is_protected.load(Ordering::Relaxed)
            || self.core().protect(self.range, Protection::ReadWrite).is_ok();
        self.core().drop_range(self.range);
        // Address space that stays protected is nobody's any more.
        if is_open {
            self.core().arena.free(self.range);
        }
    }
}
