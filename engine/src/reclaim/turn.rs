//! The end of a node's turn to contend, under `stall`, the kernel's form (`policy::kernel::contention`).
//!
//! The turn is claimed on the way to an unmap lock (`state::unmap_lock`); it ends when the node is balanced, or its
//! reclaimer sleeps or gives up.
use crate::base::counters::count;
use crate::state::core::Core;
use crate::state::node::Node;
use userswap_policy::watermark::Pressure;

impl Core {
    /// A watermark of `node` was looked at: balanced, it ends the node's turn to contend.
    pub(crate) fn end_turn_if_balanced(&self, node: &Node, pressure: Pressure) {
        if pressure == Pressure::Balanced {
            self.end_turn(node);
        }
    }

    /// The node's reclaimer does not contend any more.
    pub(crate) fn end_turn(&self, node: &Node) {
        if self.unmap_locks.exclusive.release(node.id.0) {
            count(&self.counters.reclaim_turns, 1);
        }
    }
}
