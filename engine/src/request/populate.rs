//! Populate: pages come in for another process, which is about to read or write them (process_vm_readv(2)).
//!
//! The kernel would fault them in on its behalf; where it may not (faults by signal, no right to have the kernel's faults served) its call
//! fails, and it asks here, over the control socket. Named after MADV_POPULATE_READ and MADV_POPULATE_WRITE of madvise(2).
use crate::base::index::{PageIndex, PageRange};
use crate::fault::handle::Step;
use crate::state::core::Core;
use crate::state::page::PageState;
use crate::sys::clock;
use crate::sys::uffd::Access;

/// Bytes that are brought in at once: a sixteenth of the smallest budget.
const POPULATED_MAX_BYTES: usize = 1 << 20;

impl Core {
    /// Brings in the pages that hold some bytes, as an access of the program's own would, up to the first that has none; how many bytes from
    /// the first on are there then. They can leave again at once. None of the program's memory is touched.
    pub fn populate(&self, address: usize, bytes: usize) -> usize {
        let bytes = bytes.min(POPULATED_MAX_BYTES).min(self.bytes_from(address));
        if bytes == 0 {
            return 0;
        }
        let first = self.arena.page_of(address);
        let end = self.arena.page_of(address + bytes - 1) + 1;
        self.prefetch_range(PageRange { first, count: end - first });
        // At the first the other's call has failed: it may be missing though its word says that it is there (a raw madvise).
        let is_known = |page| page != first && self.pages.state(page).mapped().is_some();
        match (first..end).find(|page| !is_known(*page) && !self.populate_page(*page)) {
            None => bytes,
            Some(missing) => self.page_address(missing).saturating_sub(address),
        }
    }

    /// How much of the arena there is from an address on.
    fn bytes_from(&self, address: usize) -> usize {
        let arena = &self.arena;
        if arena.contains(address) { arena.address() + arena.bytes() - address } else { 0 }
    }

    /// Serves the page as a fault; whether it is there then, or was: one of zeros that leaves at once is untouched again.
    fn populate_page(&self, page: PageIndex) -> bool {
        loop {
            let since = clock::now_ns();
            let inside = self.gate.enter();
            if self.arena.is_foreign(page) {
                return false;
            }
            let step = self.serve_here(page, Access::Write, since);
            match step {
                Step::Foreign => return false,
                Step::Done | Step::Read(_) => return self.pages.state(page) != PageState::Lost,
                Step::Busy => drop(inside),
            }
            self.wait_owned_watched(page);
        }
    }
}
