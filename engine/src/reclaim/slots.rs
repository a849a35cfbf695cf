//! Giving slots up, when devices have no room.
//!
//! Pages that are mapped keep the slot they came from, in case they leave unchanged; for a page that has to be written
//! those slots are needed more (as the kernel frees the swap of active pages once swap is half full).
use crate::base::index::{PageIndex, Slot};
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use userswap_policy::lru::ListId;

/// Pages looked at in one go, under the node's lock.
const LOOKS: usize = 1024;

/// Slots given up in one go; bounds the stack that a fault needs for it.
const SLOTS: usize = 256;

impl Core {
    /// Frees slots of mapped pages of the nearest node that has some, `node` first; returns how many.
    pub(crate) fn give_up_slots(&self, node: &Node) -> usize {
        let nodes = self.topology.nearest(node.id).iter().map(|id| self.node(*id));
        nodes.map(|node| self.give_up_slots_of(node)).find(|given| *given > 0).unwrap_or(0)
    }

    fn give_up_slots_of(&self, node: &Node) -> usize {
        let mut slots = [None; SLOTS];
        let mut given = 0;
        let mut state = node.lock();
        for _ in 0..LOOKS {
            let Some(page) = next(&state) else { break };
            state.slots_looked_at = Some(page);
            if given == SLOTS {
                break;
            }
            if let Some(slot) = self.detach_slot(page) {
                slots[given] = Some(slot);
                given += 1;
            }
        }
        drop(state);
        slots[..given].iter().flatten().for_each(|slot| self.free_slot(*slot));
        given
    }

    /// Takes its slot from a mapped page; the caller frees it.
    fn detach_slot(&self, page: PageIndex) -> Option<Slot> {
        let seen = self.pages.load(page);
        let slot = seen.state().mapped()?.slot?;
        self.pages.drop_slot(page, seen).then_some(slot)
    }
}

/// The page after the one that was looked at last, active ones before inactive ones before
/// unevictable ones, round and round.
fn next(state: &NodeState) -> Option<PageIndex> {
    let first = |list| state.lists.oldest(list);
    let from_inactive = || first(ListId::Inactive).or_else(|| first(ListId::Unevictable));
    let start = || first(ListId::Active).or_else(from_inactive);
    let Some(last) = state.slots_looked_at else { return start() };
    state.lists.after(last).or_else(|| match state.lists.list_of(last) {
        Some(ListId::Active) => from_inactive(),
        Some(ListId::Inactive) => first(ListId::Unevictable).or_else(start),
        _ => start(),
    })
}
