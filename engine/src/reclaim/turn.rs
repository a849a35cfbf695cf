//! The end of a node's turn to contend, under `stall`, the kernel's form (`policy::kernel::contention`).
//!
//! The turn is claimed on the way to an unmap lock (`state::unmap_lock`); what ends it, policy says.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::state::node::Node;
use userswap_policy::kernel::contention::{TurnEvent, ends_turn};
use userswap_policy::watermark::Pressure;

impl Core {
    /// A watermark of `node` was looked at.
    pub(crate) fn end_turn_if_balanced(&self, node: &Node, pressure: Pressure) {
        if pressure == Pressure::Balanced {
            self.end_turn(node, TurnEvent::Balanced);
        }
    }

    /// Something has happened to `node`, whose turn to contend that may end.
    pub(crate) fn end_turn(&self, node: &Node, event: TurnEvent) {
        if ends_turn(self.unmap_locks.contention(), event)
            && self.unmap_locks.exclusive.release(node.id.0)
        {
            count(&self.counters.reclaim_turns, 1);
        }
    }
}
