//! Unmapping a batch of victims: region by region, each under its unmap lock.
//!
//! What the policy of contention keeps from a lock is left for later; what the kernel does not let go of stays mapped.
//! Both are published as resident again. The calls that unmap are `transfer::unmap`'s.
use crate::base::index::PageRange;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Unmapped, Victim};
use crate::state::unmap_lock::Parts;
use crate::transfer::lru_add::Origin;
use std::ops::Range;
use userswap_policy::kernel::contention::Unmapper;
use userswap_policy::lru::ListId;
use userswap_policy::victims::take_same;

impl Core {
    /// Unmaps the victims of `scratch`, region by region under its unmap lock; those that are unmapped are left in it.
    pub(crate) fn unmap_victims(&self, node: &Node, unmapper: Unmapper, scratch: &mut Scratch) {
        let parts = Parts::new(&self.arena);
        let (mut from, mut kept, mut skipped) = (0, 0, 0);
        while from < scratch.count {
            let waiting = &mut scratch.victims[from..scratch.count];
            let same = take_same(waiting, |victim| parts.of(victim.page));
            let part = parts.of(waiting[0].page);
            let guard = match self.unmap_locks.enter(part, unmapper) {
                Some(guard) => guard,
                // Every part is tried once before one is waited for.
                None if skipped + same < waiting.len() => {
                    waiting.rotate_left(same);
                    skipped += same;
                    continue;
                }
                None if kept > 0 => break,
                None => self.unmap_locks.enter_at_last(part),
            };
            self.unmap_group(node, scratch, from..from + same, &mut kept);
            drop(guard);
            from += same;
            skipped = 0;
        }
        self.leave_for_later(node, &scratch.victims[from..scratch.count]);
        scratch.count = kept;
    }

    /// Victims that another thread's unmap lock kept from leaving: they are the oldest still.
    fn leave_for_later(&self, node: &Node, victims: &[Victim]) {
        for victim in victims.iter().rev() {
            self.stay(node, victim);
            let mut state = node.lock();
            if state.lists.list_of(victim.page) == Some(ListId::Inactive) {
                state.lists.push_oldest(ListId::Inactive, victim.page);
            }
        }
    }

    /// Unmaps a group of the victims, run by run, and keeps them in `scratch` from `kept` on; those that have to
    /// stay are published as resident again.
    fn unmap_group(
        &self,
        node: &Node,
        scratch: &mut Scratch,
        group: Range<usize>,
        kept: &mut usize,
    ) {
        let mut from = group.start;
        while from < group.end {
            let run = run_length(&scratch.victims[from..group.end]);
            let range = PageRange { first: scratch.victims[from].page, count: run as u32 };
            let taken = &mut scratch.taken[..run];
            self.unmap(node, range, taken);
            self.trace.note_left(range, taken);
            for (index, outcome) in taken.iter().enumerate() {
                let victim = scratch.victims[from + index];
                match *outcome {
                    Unmapped::Frame(frame) => {
                        scratch.victims[*kept] = Victim { frame, ..victim };
                        *kept += 1;
                    }
                    Unmapped::Gone => self.forget_gone(&victim),
                    Unmapped::Stayed => {
                        self.stay(node, &victim);
                        node.lock().set_unevictable(victim.page);
                    }
                }
            }
            from += run;
        }
    }

    /// Unmaps pages that the caller owns in Leaving, in the order of addresses, and writes them at once; returns
    /// how many no device would take.
    pub(crate) fn unmap_claimed(&self, node: &Node, scratch: &mut Scratch) -> u32 {
        self.unmap_clean(node, scratch);
        self.unmap_victims(node, Unmapper::Direct, scratch);
        self.sort_out(node, scratch);
        self.write_at_once(node, scratch)
    }

    /// A victim that was not there: it has no content, in a slot neither.
    pub(crate) fn forget_gone(&self, victim: &Victim) {
        self.publish(victim.page, PageState::Untouched);
        self.free_any_slot(victim.slot);
        self.announce_freed();
    }

    /// A victim that is still mapped, with the slot that it had.
    pub(crate) fn stay(&self, node: &Node, victim: &Victim) {
        let range = PageRange { first: victim.page, count: 1 };
        self.publish_resident(node, range, Origin::Again, |_| victim.slot);
    }
}

/// How many victims from the first on are consecutive pages.
fn run_length(victims: &[Victim]) -> usize {
    1 + victims.windows(2).take_while(|pair| pair[1].page == pair[0].page + 1).count()
}
