//! Page out: a range is swapped out now.
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::base::limits::RUN_MAX;
use crate::state::core::Core;
use crate::state::page::{Mapped, PageState};
use crate::state::scratch::Scratch;

impl Core {
    /// Swaps a range out; pinned pages stay, and so do those that no device has room for.
    pub fn page_out_range(&self, range: PageRange) {
        self.pages.touched.within(range).for_each(|part| self.page_out_part(part));
    }

    fn page_out_part(&self, part: PageRange) {
        let mut page = part.first;
        while page < part.end() {
            let batch = PageRange { first: page, count: RUN_MAX.min(part.end() - page) };
            let inside = self.gate.enter();
            self.wait_for_owners(batch);
            let mut scratch = self.scratch().lock();
            self.page_out_batch(batch, &mut scratch);
            drop(scratch);
            drop(inside);
            page = batch.end();
        }
    }

    /// Waits for pages in transition, before the caller holds anything that their owners could need.
    pub(crate) fn wait_for_owners(&self, range: PageRange) {
        (range.first..range.end()).for_each(|page| self.pages.wait_owned(page));
    }

    /// Inside the gate: unmaps at most a batch of pages, writes what is dirty, and frees the frames. Returns how many
    /// pages were put back because no device has room.
    pub(crate) fn page_out_batch(&self, range: PageRange, scratch: &mut Scratch) -> u32 {
        let mut put_back = 0;
        for node in &self.nodes {
            scratch.clear();
            (range.first..range.end()).for_each(|page| claim(self, node.id, page, scratch));
            // As those that reclaim has popped: what leaves is listed where it is mapped again.
            let mut state = node.lock();
            for page in scratch.pages() {
                state.lists.remove(page);
            }
            drop(state);
            put_back += self.unmap_claimed(node, scratch);
        }
        self.release_cached(range);
        put_back
    }
}

/// Claims a page if it is resident on the node `of` and not pinned.
fn claim(core: &Core, of: NodeId, page: PageIndex, scratch: &mut Scratch) {
    let seen = core.pages.load(page);
    let Some(Mapped { slot, pins: 0, node }) = seen.state().mapped() else { return };
    if node == of && core.pages.claim(page, seen, PageState::Leaving { slot }) {
        core.add_victim(page, seen, scratch);
    }
}
