//! Discard: the content of a range is forgotten.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageIndex, PageRange};
use crate::base::limits::RUN_MAX;
use crate::request::content::{Content, TakeFor};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{Mapped, PageState};
use crate::state::scratch::Unmapped;
use userswap_trace::Kind;

impl Core {
    /// Forgets the content of a range: nothing is written, and the pages read as zeros afterwards.
    pub fn drop_range(&self, range: PageRange) {
        if !self.own_process.is_here() {
            return;
        }
        let _inside = self.gate.enter();
        self.readahead.forget(range.first);
        for part in self.pages.touched.within(range) {
            self.drop_spans(part);
            // What another thread had just then.
            self.drop_part(part);
            self.trace.note_run(Kind::Dropped, part);
            count(&self.counters.pgdrop, u64::from(part.count));
        }
        self.settle_stored(self.node_here());
        self.announce_freed();
    }

    fn drop_part(&self, part: PageRange) {
        let mut page = part.first;
        while page < part.end() {
            page = match self.claim_resident_run(page, part.end()) {
                Some((run, node)) => self.drop_resident(run, self.node(node)),
                None => {
                    let content = self.take_content(page, &mut TakeFor::Drop);
                    self.discard(content);
                    page + 1
                }
            };
        }
    }

    /// Claims consecutive resident pages of one node as Leaving, pinned or not: the program wants them gone.
    fn claim_resident_run(&self, first: PageIndex, end: PageIndex) -> Option<(PageRange, NodeId)> {
        let most = (end - first).min(RUN_MAX);
        let mut node = None;
        let claimed = (first..first + most).take_while(|page| {
            let seen = self.pages.load(*page);
            let Some(Mapped { slot, node: here, pins }) = seen.state().mapped() else {
                return false;
            };
            let claimed = *node.get_or_insert(here) == here
                && self.pages.claim(*page, seen, PageState::Leaving { slot });
            if claimed {
                self.forget_pins(pins);
            }
            claimed
        });
        let count = claimed.count() as u32;
        Some((PageRange { first, count }, node.filter(|_| count > 0)?))
    }

    /// Moves claimed pages to free frames, which serve the next fault without the kernel's allocator.
    fn drop_resident(&self, run: PageRange, node: &Node) -> PageIndex {
        let mut taken = [Unmapped::Stayed; RUN_MAX as usize];
        let taken = &mut taken[..run.count as usize];
        self.unmap(node, run, taken);
        for (page, outcome) in (run.first..run.end()).zip(taken) {
            let PageState::Leaving { slot } = self.pages.state(page) else {
                unreachable!("page {page} is owned in Leaving")
            };
            match *outcome {
                Unmapped::Frame(frame) => self.discard(Content::Frame(frame, slot)),
                Unmapped::Stayed => self.drop_in_place(node, page, slot),
                Unmapped::Gone => self.free_any_slot(slot),
            }
            // Before publishing: the thread that fills the page next puts it on a list again.
            node.lock().lists.remove(page);
            self.publish(page, PageState::Untouched);
        }
        run.end()
    }
}
