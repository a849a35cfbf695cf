//! Pages for a fault: which node gives them, and where to turn when it has nothing left.
//!
//! A page belongs to the node whose CPU touches it. When that node is short, a page of the nearest other
//! node is better than waiting (as the kernel's zone lists have it): first every node above its low
//! watermark is asked, then every node down to its minimum, then the faulting thread reclaims itself, or waits
//! (`reclaim::direct`).
use crate::base::counters::count;
use crate::reclaim::direct::Tried;
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use std::sync::atomic::Ordering;
use userswap_policy::watermark::Pressure;

impl Core {
    /// Gets 1 to `want` pages for a fault, reclaiming if it must, and the node that they are of; never fails: at
    /// last the budget is exceeded or the program stopped, as the option says.
    pub(crate) fn obtain(&self, node: &Node, want: u32) -> (&Node, Grant) {
        let mut tried = Tried::default();
        let mut waiting = None;
        loop {
            let seen = self.shortage.freed.load(Ordering::Acquire);
            let nearest = self.topology.nearest(node.id);
            let nearby = if nearest.len() > 1 {
                &[Asker::FaultNearby, Asker::Fault][..]
            } else {
                &[Asker::Fault]
            };
            for asker in nearby {
                for id in nearest {
                    let other = self.node(*id);
                    if let Some(grant) = self.ask(other, want, *asker) {
                        return (other, grant);
                    }
                }
            }
            waiting.get_or_insert_with(|| self.wait_for_frame());
            self.make_room(node, seen, &mut tried);
        }
    }

    /// Up to `want` pages of one node, without waiting; its reclaimer is woken when it is low.
    pub(crate) fn ask(&self, node: &Node, want: u32, asker: Asker) -> Option<Grant> {
        let mut state = node.lock();
        let grant = state.grant(want, asker, &self.pages);
        let pressure = state.pressure();
        let unused = std::mem::take(&mut state.unused);
        drop(state);
        count(&self.counters.swap_ra_wasted, unused);
        self.end_turn_if_balanced(node, pressure);
        if pressure >= Pressure::Low {
            self.wake_reclaim(node);
        }
        grant
    }
}

/// Up to `want` pages that readahead may have on a node: only what is above the low watermark.
pub(crate) fn readahead_room(node: &Node, want: u32) -> u32 {
    if want == 0 {
        return 0;
    }
    let state = node.lock();
    want.min(state.available().saturating_sub(state.watermarks.low))
}
