//! The exclusive reclaimer: of the background reclaimers that meet a taken unmap lock, one may wait for it
//! and go on; the others sleep for at most ten milliseconds first (patch 3 of the 2016 series).
//!
//! A claim ends when the owner's node is balanced, which any thread may see and act on; and, as the patch
//! did not, when the owner finds its node hopeless, or ends, or under `stall` just sleeps. A release just before a
//! reclaimer goes to sleep is missed by it: it sleeps its full time, and nothing depends on the wake-up.
use crate::sys::sync::{AtomicU32, Ordering, sleep, wake_all};

/// No node has the turn.
const NONE: u32 = u32::MAX;

/// Whose turn it is to contend.
#[derive(Debug)]
pub struct Exclusive {
    /// A node's number, or `NONE`.
    owner: AtomicU32,
    /// Counts releases; slept on.
    releases: AtomicU32,
}

/// What came of a claim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Claim {
    /// The node may contend, until it releases.
    Won,
    /// Another one may.
    Lost,
}

impl Exclusive {
    /// No node's turn.
    pub fn new() -> Self {
        Self { owner: AtomicU32::new(NONE), releases: AtomicU32::new(0) }
    }

    /// The node that may contend.
    pub fn owner(&self) -> Option<u16> {
        let owner = self.owner.load(Ordering::Acquire);
        (owner != NONE).then_some(owner as u16)
    }

    /// A background reclaimer of `node` has met a taken lock.
    pub fn claim(&self, node: u16) -> Claim {
        // AcqRel pairs with `release`: the next owner sees what the last one did.
        let claimed =
            self.owner.compare_exchange(NONE, node.into(), Ordering::AcqRel, Ordering::Acquire);
        if claimed.is_ok() { Claim::Won } else { Claim::Lost }
    }

    /// Sleeps until a turn ends, at most so long.
    pub fn stall(&self, most_ns: u64) {
        sleep(&self.releases, self.releases.load(Ordering::Acquire), most_ns);
    }

    /// `node` does not contend any more; true if it was its turn.
    pub fn release(&self, node: u16) -> bool {
        // Almost always it is not: a load is all that the path of every allocation pays.
        if self.owner() != Some(node) {
            return false;
        }
        let released =
            self.owner.compare_exchange(node.into(), NONE, Ordering::AcqRel, Ordering::Relaxed);
        if released.is_ok() {
            self.releases.fetch_add(1, Ordering::Release);
            wake_all(&self.releases);
        }
        released.is_ok()
    }
}
