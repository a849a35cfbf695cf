//! Paying a debt: memory over the budget goes back to the kernel.
//!
//! A node's debt comes from a budget that was shrunk or exceeded. What leaves its regions pays by itself
//! (`NodeState::on_released`); here spare pages and free frames pay the rest.
use crate::base::limits::BATCH;
use crate::state::core::Core;
use crate::state::frame_set::FrameSet;
use crate::state::node::Node;

/// How much of a debt is paid.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Payment {
    /// All that there is above the low watermark: faults go on.
    Surplus,
    /// That, and of what was owed as much that the rest is left: half of what a batch has unmapped. Under a load that takes whatever
    /// there is the debt has an end, and faults do not wait for that.
    Half { owed: u32, rest: u32 },
    /// All that there is.
    All,
}

impl Payment {
    /// Pages that are paid whatever is left; what has left may have paid more by itself.
    fn least(self, debt: u32) -> u32 {
        match self {
            Self::Surplus => 0,
            Self::Half { owed, rest } => debt.min(owed).saturating_sub(rest),
            Self::All => u32::MAX,
        }
    }
}

impl Core {
    /// What is due after a batch of the background reclaimer, before which so much was owed. Where pages are compressed, a debt is
    /// what the last ones take, and grows with each batch; where none was unmapped, nothing more comes; where no device took them,
    /// faults have what was given beyond the budget.
    pub(crate) fn payment_after(&self, unmapped: u32, put_back: u32, owed: u32) -> Payment {
        match unmapped {
            _ if self.devices.has_compressed() => Payment::All,
            0 => Payment::All,
            _ if put_back > 0 => Payment::Surplus,
            _ => Payment::Half { owed, rest: owed.saturating_sub(unmapped.div_ceil(2)) },
        }
    }

    /// Pays a node's debt from spare pages, free frames and second chances.
    pub(crate) fn repay(&self, node: &Node, payment: Payment) {
        let mut least = self.lend_rest(node, payment);
        loop {
            let mut state = node.lock();
            let surplus = state.available().saturating_sub(state.watermarks.low);
            let due = state.debt.min(surplus.max(least));
            let from_spare = due.min(state.spare);
            state.spare -= from_spare;
            state.debt -= from_spare;
            least = least.saturating_sub(from_spare);
            let due = (due - from_spare).min(BATCH as u32);
            if due == 0 {
                return;
            }
            if state.pool.free() == 0 {
                state.steal_cached(due, &self.pages);
            }
            let Some(run) = state.take_free(due) else { return };
            drop(state);
            least = least.saturating_sub(run.count);
            self.release_set(node, &FrameSet::of(run));
        }
    }

    /// Pages that are copied pay as they leave, all of them: faults get their half of that back, as far as they are short of it.
    /// Returns what is still to be paid whatever is left.
    fn lend_rest(&self, node: &Node, payment: Payment) -> u32 {
        let mut state = node.lock();
        let short = state.watermarks.low.saturating_sub(state.available());
        let lent = match payment {
            Payment::Half { rest, .. } => rest.saturating_sub(state.debt).min(short),
            Payment::Surplus | Payment::All => 0,
        };
        state.debt += lent;
        state.spare += lent;
        let least = payment.least(state.debt);
        drop(state);
        if lent > 0 {
            self.announce_freed();
        }
        least
    }
}
