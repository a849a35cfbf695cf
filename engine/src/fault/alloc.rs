//! Pages for a fault: which node gives them, and who helps when it has nothing left.
//!
//! A page belongs to the node whose CPU touches it. When that node is short, a page of the nearest other
//! node is better than waiting (as the kernel's zone lists have it): first every node above its low
//! watermark is asked, then every node down to its minimum, then the faulting thread reclaims itself.
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use std::sync::atomic::Ordering;
use userswap_policy::watermark::Pressure;

impl Core {
    /// Gets pages for a fault, reclaiming if it must; never fails: at last the budget is exceeded or the
    /// program stopped, as the option says.
    pub(crate) fn obtain(&self, node: &Node, want: u32) -> (&Node, Grant) {
        for attempt in 0u32.. {
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
            self.make_room(node, seen, attempt);
        }
        unreachable!("the attempts do not run out")
    }

    /// One node's answer; its reclaimer is woken when it is low.
    pub(crate) fn ask(&self, node: &Node, want: u32, asker: Asker) -> Option<Grant> {
        let mut state = node.lock();
        let grant = state.grant(want, asker, &self.pages);
        let pressure = state.pressure();
        let unused = std::mem::take(&mut state.unused);
        drop(state);
        crate::base::counters::count(&self.counters.swap_ra_wasted, unused);
        self.end_turn_if_balanced(node, pressure);
        if pressure >= Pressure::Low {
            self.wake_reclaim(node);
        }
        grant
    }
}
