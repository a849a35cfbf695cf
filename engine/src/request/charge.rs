//! Room for a program's own caches: pages of a node's budget that its regions cannot have meanwhile.
//!
//! A page is charged as one is granted to a fault that could wait: down to the low watermark, where background
//! reclaim works for more.
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};

impl Core {
    /// Inside the gate: charges as many of `pages` as a node can give at once and returns their number; if those are
    /// not all, its reclaimer is awake.
    pub(crate) fn charge(&self, node: &Node, pages: u32) -> u32 {
        let mut charged = 0;
        while charged < pages {
            let Some(grant) = self.ask(node, pages - charged, Asker::Background) else { break };
            charged += self.charge_grant(node, grant);
        }
        charged
    }

    fn charge_grant(&self, node: &Node, grant: Grant) -> u32 {
        if let Grant::Frames(run) = grant {
            // The program's memory is elsewhere: this goes back to the kernel for it.
            self.release_memory(run);
            node.lock().put_hole(run);
        }
        node.lock().charged += grant.pages();
        grant.pages()
    }

    /// Inside the gate: gives charged pages back to a node.
    pub(crate) fn uncharge(&self, node: &Node, pages: u32) {
        if pages == 0 {
            return;
        }
        let mut state = node.lock();
        state.charged = state.charged.checked_sub(pages).expect("so many pages are charged");
        state.on_released(pages);
        drop(state);
        self.announce_freed();
    }
}
