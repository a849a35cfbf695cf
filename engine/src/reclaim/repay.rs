//! Paying a debt: memory over the budget goes back to the kernel.
//!
//! A node's debt comes from a budget that was shrunk or exceeded. What leaves its regions pays by itself
//! (`NodeState::on_released`); here spare pages and free frames pay the rest.
use crate::base::limits::BATCH;
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::Node;

impl Core {
    /// Pays as much of a node's debt as there are spare pages, free frames and second chances for.
    pub(crate) fn repay(&self, node: &Node) {
        loop {
            let mut state = node.lock();
            if state.debt == 0 {
                return;
            }
            let from_spare = state.debt.min(state.spare);
            state.spare -= from_spare;
            state.debt -= from_spare;
            if state.debt == 0 {
                return;
            }
            let debt = state.debt.min(BATCH as u32);
            if state.pool.free() == 0 {
                state.steal_cached(debt, &self.pages);
            }
            let Some(run) = state.take_free(debt) else { return };
            drop(state);
            self.release_set(node, &FrameSet::of(run));
        }
    }
}
