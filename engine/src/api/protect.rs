//! What may be done with a region's memory: as mprotect, with swapping going on.
//!
//! The kernel has the protection, and pages travel under it as they do anyway (`transfer/verdict.rs`). What has to be known
//! here is which pages may not even be read, as they cannot be brought in by an access, and that a mapping on its way
//! back to its place may undo a change (`state/blocks.rs`).
use crate::api::region::Region;
use crate::base::error::Error;
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::sys::signal::Blocked;
use crate::sys::{PAGE_BYTES, mapping};
use std::io;
use std::ops::Range;

/// What an access to memory may do; any other raises SIGSEGV, and system calls get EFAULT.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protection {
    /// Nothing.
    None,
    /// Read.
    Read,
    /// Read and write, as a region begins.
    ReadWrite,
}

impl Protection {
    const fn bits(self) -> i32 {
        match self {
            Self::None => libc::PROT_NONE,
            Self::Read => libc::PROT_READ,
            Self::ReadWrite => libc::PROT_READ | libc::PROT_WRITE,
        }
    }
}

impl Region {
    /// Says what may be done with the pages that these bytes touch, from now on and until they are protected otherwise.
    ///
    /// Their content stays, and they are swapped as before. [`Region::discard`] and all advice work on pages of any
    /// protection, except that [`Region::pin`] needs pages that may be read. An access that is not allowed is the
    /// program's to handle (SIGSEGV), also one through [`Region::as_slice`] and its relatives.
    ///
    /// # Errors
    /// [`Error::OutOfRange`]: bytes outside the region, and nothing is changed. [`Error::Protect`]: each stretch of pages
    /// that is protected apart from its neighbours is a mapping of its own, and the process has no room for more; some of the
    /// pages may have been changed.
    pub fn protect(&mut self, bytes: Range<usize>, protection: Protection) -> Result<(), Error> {
        self.set_protection(bytes, protection)
    }

    /// As [`Region::protect`], for other languages, whose programs see to it that nobody uses these bytes.
    ///
    /// # Errors
    /// As [`Region::protect`].
    #[doc(hidden)]
    pub fn set_protection(&self, bytes: Range<usize>, protection: Protection) -> Result<(), Error> {
        self.core().check_here()?;
        let range = self.pages_touching(bytes)?;
        if protection != Protection::ReadWrite {
            self.note_protection();
        }
        self.core().protect(range, protection).map_err(Error::Protect)
    }
}

impl Core {
    /// Protects pages of a region.
    ///
    /// # Errors
    /// What mprotect says.
    pub(super) fn protect(&self, range: PageRange, protection: Protection) -> io::Result<()> {
        if range.count == 0 {
            return Ok(());
        }
        let _blocked = Blocked::new();
        if protection == Protection::None {
            self.arena.close(range);
        }
        let (address, bytes) = (self.page_address(range.first), range.count as usize * PAGE_BYTES);
        self.put_backs.protect(|| mapping::protect(address, bytes, protection.bits()))?;
        if protection != Protection::None {
            self.arena.reopen(range);
        }
        Ok(())
    }
}
