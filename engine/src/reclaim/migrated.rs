//! Pages that the kernel has moved to another node are that node's from here on.
//!
//! Automatic NUMA balancing does it, and move_pages(2), migrate_pages(2) and mbind(2), without a word. It is looked for when
//! pages are to leave: a run that is moved out takes its physical pages along, and those of another node would stay in this
//! node's pool for good. Pages that are copied out, clean ones and those of a block, leave nothing behind.
use crate::base::counters::count;
use crate::base::index::{NodeId, PageRange};
use crate::base::limits::BATCH;
use crate::state::core::{Core, Path};
use crate::state::node::Node;
use crate::state::scratch::{Scratch, Victim};
use crate::sys::numa;
use crate::transfer::lru_add::Origin;
use std::sync::atomic::Ordering;
use userswap_policy::kernel::contention::Unmapper;

impl Core {
    /// Hands the victims of `scratch` that lie on another node over to that node, as pages that were mapped there just
    /// now, or, while it owes too much and is about to pay, leaves them mapped; the others are left in it. Returns how many changed hands.
    pub(crate) fn hand_over_migrated(
        &self,
        node: &Node,
        unmapper: Unmapper,
        scratch: &mut Scratch,
    ) -> u32 {
        let (Path::Move, Some(memory)) = (self.path, self.topology.memory_of(node.id)) else {
            return 0;
        };
        let (mut kept, mut from, mut handed_over) = (0, 0, 0);
        while from < scratch.count {
            let asked = &scratch.victims[from..scratch.count.min(from + numa::ASKED_MAX)];
            let end = from + asked.len();
            let places = numa::nodes_of(asked.len(), |index| self.page_address(asked[index].page));
            for (index, place) in (from..end).zip(places) {
                let victim = scratch.victims[index];
                // A node without CPUs has no pool: its pages are of those that brought them there.
                let other = place.filter(|place| *place != memory);
                let other = other.and_then(|place| self.topology.find(place));
                match other {
                    Some(other) if self.hand_over(node, other, &victim) => handed_over += 1,
                    // A fault takes what there is, and where nobody can pay pages of others are better than none.
                    Some(other) if unmapper != Unmapper::Direct && self.may_pay(other) => {
                        self.stay(node, &victim);
                    }
                    _ => {
                        scratch.victims[kept] = victim;
                        kept += 1;
                    }
                }
            }
            from = end;
        }
        scratch.count = kept;
        if handed_over > 0 {
            count(&self.counters.numa_pages_migrated, u64::from(handed_over));
            self.announce_freed();
        }
        handed_over
    }

    fn may_pay(&self, node: NodeId) -> bool {
        !self.node(node).hopeless.load(Ordering::Relaxed)
    }

    /// Makes a page that the caller owns in Leaving one of another node. False, and nothing has changed, when that node
    /// owes a batch already: it has to pay first, or both together would exceed their budgets without end.
    fn hand_over(&self, node: &Node, to: NodeId, victim: &Victim) -> bool {
        let other = self.node(to);
        let mut state = other.lock();
        if state.debt >= BATCH as u32 {
            return false;
        }
        state.resident += 1;
        match state.spare {
            0 => state.debt += 1,
            _ => state.spare -= 1,
        }
        drop(state);
        let mut state = node.lock();
        state.on_moved_out(1);
        state.on_released(1);
        drop(state);
        let range = PageRange { first: victim.page, count: 1 };
        self.publish_resident(other, range, Origin::Again, |_| victim.slot);
        self.wake_reclaim(other);
        true
    }
}
