//! The second chance: a page is unmapped, its content still in a frame and on its slot.
//!
//! Such frames count as available. A fault maps the page again (`fault::minor`); otherwise the frame goes to
//! whatever needs one first (`NodeState::steal_cached`), or is given up on request, here.
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{PageState, Word};
use crate::state::scratch::Victim;
use userswap_policy::frames::FrameRun;

impl Core {
    /// Publishes a page, owned in Leaving, whose content is on `slot` as well as in its frame.
    pub(crate) fn cache(&self, node: &Node, victim: Victim, slot: Slot) {
        let state = PageState::Cached { frame: victim.frame, slot: Some(slot), marker: false };
        self.publish(victim.page, state);
        node.lock().enlist(&self.pages, victim.page, 1);
        self.announce_freed();
    }

    /// Ends a page's second chance, its frame going to the caller; false if its word has changed.
    pub(crate) fn uncache(&self, page: PageIndex, seen: Word, next: PageState) -> bool {
        let PageState::Cached { frame, .. } = seen.state() else { return false };
        // Both under the lock: the list's length counts as available, and a thread that maps the page again
        // enlists it after this.
        let mut state = self.node_of_frame(frame).lock();
        let claimed = self.pages.claim(page, seen, next);
        if claimed {
            state.lists.remove(page);
        }
        claimed
    }

    /// Pages on their second chance give up their frames; their content stays on their slots.
    pub(crate) fn release_cached(&self, range: PageRange) {
        for page in range.first..range.end() {
            let seen = self.pages.load(page);
            let PageState::Cached { frame, slot: Some(slot), .. } = seen.state() else { continue };
            if self.uncache(page, seen, PageState::Swapped { slot }) {
                let freed = FrameRun { first: frame, count: 1 };
                self.node_of_frame(frame).lock().put_free(freed);
            }
        }
        self.announce_freed();
    }
}
