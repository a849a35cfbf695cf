//! Giving slots up, when devices have no room.
//!
//! Pages that are mapped keep the slot they came from, in case they leave unchanged; for a page that has to be written
//! those slots are needed more (as the kernel frees the swap of active pages once swap is half full).
use crate::base::index::{PageIndex, Slot};
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use userswap_policy::lru::ListId;

/// The lists of pages that are mapped.
const LISTS: [ListId; 3] = [ListId::Active, ListId::Inactive, ListId::Unevictable];

/// Pages looked at in one go, under the node's lock.
const LOOKS: usize = 1024;

/// Goes of one call: some milliseconds. The next one goes on from there.
const GOES: usize = 64;

/// Slots given up in one go; bounds the stack that a fault needs for it.
const SLOTS: usize = 64;

impl Core {
    /// Frees slots of mapped pages of the nearest node that has some, `node` first; returns how many. None when no
    /// page of the many that it has looked at has one: then no device is thought to have room.
    pub(crate) fn give_up_slots(&self, node: &Node) -> usize {
        let nodes = self.topology.nearest(node.id).iter().map(|id| self.node(*id));
        nodes.map(|node| self.give_up_slots_of(node)).find(|given| *given > 0).unwrap_or(0)
    }

    /// Looks at the lists of a node once round, or until there are some. Twice as often as they are long: where the page that was
    /// looked at last has left its list, it begins anew.
    fn give_up_slots_of(&self, node: &Node) -> usize {
        let listed = {
            let state = node.lock();
            LISTS.map(|list| state.lists.len(list) as usize).iter().sum::<usize>()
        };
        let goes = (2 * listed).div_ceil(LOOKS).min(GOES);
        (0..goes).map(|_| self.give_up_next_slots(node)).find(|given| *given > 0).unwrap_or(0)
    }

    fn give_up_next_slots(&self, node: &Node) -> usize {
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
    let after = || state.lists.after(last);
    match state.lists.list_of(last) {
        Some(ListId::Active) => after().or_else(from_inactive),
        Some(ListId::Inactive) => after().or_else(|| first(ListId::Unevictable)).or_else(start),
        Some(ListId::Unevictable) => after().or_else(start),
        Some(ListId::Cached) | None => start(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Builder;
    use crate::sys::{PAGE_BYTES, pages};

    #[test]
    fn a_slot_is_found_behind_more_pages_without_than_are_looked_at_in_one_go() {
        let swap = "mem:32M".parse().unwrap();
        let engine = Builder::new(16 << 20).arena_bytes(1 << 28).swap(swap).build().unwrap();
        let fill = |pages: usize| {
            let region = engine.map(pages * PAGE_BYTES).unwrap();
            pages::view_mut(region.as_ptr() as usize, region.len()).fill(1);
            region
        };
        let (without, with) = (fill(LOOKS + 500), fill(16));
        with.page_out(0..with.len()).unwrap();
        pages::touch(with.as_ptr() as usize, 16);
        let core = engine.core();
        let node = &core.nodes[0];
        assert!(node.lock().lists.len(ListId::Active) as usize > LOOKS, "the first are active");
        assert_ne!(core.give_up_slots(node), 0);
        assert_eq!(core.give_up_slots(node), 0, "none is left");
        drop(without);
    }
}
