//! Paying a debt: memory over the budget goes back to the kernel.
use crate::base::limits::BATCH;
use crate::state::core::Core;
use crate::state::node::Node;

impl Core {
    /// After the budget was shrunk or exceeded: gives free memory back to the kernel.
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
            // Held until the memory is gone: as holes they could be filled in between.
            let Some(run) = state.take_free(debt) else { return };
            drop(state);
            self.release_memory(run);
            let mut state = node.lock();
            state.put_hole(run);
            state.on_released(run.count);
        }
    }
}
