//! Pages whose write has ended leave the index of their device, under its lock: where reclaimers meet.

use userswap_policy::kernel::contention::{Approach, STALL_MAX_MS, Unmapper, approach};
use userswap_policy::victims::take_same;

use super::{Frame, Memory, PageId, Removal, Slot, count};
use crate::clock::{Class, Thread};

/// A page that is on a slot, and in memory for the last time.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    pub page: PageId,
    pub frame: Frame,
    pub slot: Slot,
}

impl Memory {
    /// Takes pages out of memory that are on their slots; returns how many those were.
    pub(super) async fn remove(
        &self,
        thread: &Thread,
        mut victims: Vec<Victim>,
        background: Option<u16>,
    ) -> u32 {
        let total = victims.len() as u32;
        let mut skipped = Vec::new();
        while !victims.is_empty() {
            let same = match self.rules.get().removal {
                Removal::Page => 1,
                Removal::Batch => take_same(&mut victims, |victim| victim.slot.device),
            };
            let together: Vec<_> = victims.drain(..same).collect();
            let lock = &self.swap.store(together[0].slot.device).index_lock;
            if !self.approach(thread, lock, background).await {
                // One that was skipped is taken after the others, whatever it costs then.
                skipped.push(together);
                continue;
            }
            self.remove_held(thread, together).await;
        }
        for together in skipped {
            let lock = &self.swap.store(together[0].slot.device).index_lock;
            thread.lock(lock).await;
            self.remove_held(thread, together).await;
        }
        total
    }

    /// Takes the lock, in the way that the contention policy wants; false when it is left for later.
    async fn approach(
        &self,
        thread: &Thread,
        lock: &crate::clock::Lock,
        background: Option<u16>,
    ) -> bool {
        let unmapper = background.map_or(Unmapper::Direct, Unmapper::Background);
        match approach(self.contention(), unmapper, self.exclusive.get()) {
            Approach::Block => thread.lock(lock).await,
            Approach::TryThenClaim => {
                if !thread.try_lock(lock).await {
                    self.claim_or_stall(thread, background).await;
                    thread.lock(lock).await;
                }
            }
            Approach::TryThenSkip => {
                if !thread.try_lock(lock).await {
                    count(&self.counts.skips, 1);
                    return false;
                }
            }
        }
        true
    }

    async fn claim_or_stall(&self, thread: &Thread, background: Option<u16>) {
        if self.exclusive.get().is_none() {
            self.exclusive.set(background);
            return;
        }
        count(&self.counts.stalls, 1);
        thread.wait_for(&self.stalled, STALL_MAX_MS * 1_000_000).await;
    }

    /// A node is balanced, or its reclaimer has given up: another one may contend.
    pub(super) fn release_claim(&self, node: u16) {
        if self.exclusive.get() == Some(node) {
            self.exclusive.set(None);
            self.stalled.wake_all(&self.sim);
        }
    }

    /// With the lock held: removes, lets go of it, and gives the frames back.
    async fn remove_held(&self, thread: &Thread, together: Vec<Victim>) {
        let lock = &self.swap.store(together[0].slot.device).index_lock;
        thread.charge(Class::System, self.costs.index_hold.0 * together.len() as u64);
        thread.unlock(lock).await;
        for victim in together {
            self.state.borrow_mut().evict(victim.page, victim.frame, victim.slot);
            self.wake_page(victim.page);
        }
    }
}
