//! The second chance: pages whose content is in a frame and on a slot.
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::{PageState, Word};
use crate::state::scratch::Victim;
use userswap_policy::frames::FrameRun;

impl Core {
    /// A page whose content is in a frame and on a slot: second chance.
    pub(crate) fn cache(&self, node: &Node, victim: Victim, slot: Slot) {
        let state = PageState::Cached { frame: victim.frame, slot: Some(slot), marker: false };
        self.publish(victim.page, state);
        node.lock().enlist(&self.pages, victim.page, 1);
        self.announce_freed();
    }

    /// Ends a page's second chance; false if its word has changed. Its frame is the caller's then.
    pub(crate) fn uncache(
        &self,
        page: PageIndex,
        seen: Word,
        (frame, next): (u32, PageState),
    ) -> bool {
        // Both under the lock: the list's length counts as available, and whoever brings the page in again
        // puts it on a list behind us.
        let mut state = self.node_of_frame(frame).lock();
        let claimed = self.pages.claim(page, seen, next);
        if claimed {
            state.lists.remove(page);
        }
        claimed
    }

    /// Pages on their second chance give up their frames.
    pub(crate) fn release_cached(&self, range: PageRange) {
        for page in range.first..range.end() {
            let seen = self.pages.load(page);
            let PageState::Cached { frame, slot: Some(slot), .. } = seen.state() else { continue };
            if self.uncache(page, seen, (frame, PageState::Swapped { slot })) {
                let freed = FrameRun { first: frame, count: 1 };
                self.node_of_frame(frame).lock().put_free(freed);
            }
        }
        self.announce_freed();
    }
}
