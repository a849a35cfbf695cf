//! Contention: what a reclaimer does when another one is unmapping pages of the same region.
//!
//! Pages are unmapped under a lock, one for each region (the counterpart of the kernel's lock on a mapping's
//! index). A reclaimer that finds it taken acts as [`Contention`] says: it waits; or it keeps to the
//! exclusive-reclaimer protocol of the kernel's series of 2016 (patch 3, mm/vmscan.c, never merged), in which
//! one background reclaimer may contend and the others sleep for a moment; or it turns to other victims.
//!
//! The protocol is here as decisions only: the lock, the claim and the sleep are the engine's.

use crate::named_choice;

/// The longest sleep of a stalled reclaimer.
pub const STALL_MAX_MS: u64 = 10;

named_choice! {
    /// What to do about an unmap lock that another thread holds.
    #[derive(Default)]
    pub enum Contention, "answer to a contended lock" {
        /// Wait for it, as the kernel does.
        #[default]
        Wait = "wait",
        /// One background reclaimer waits for it, the others sleep first.
        Stall = "stall",
        /// Take victims from elsewhere, and come back to these.
        Skip = "skip",
        /// As [`Self::Stall`], and the turn lasts until its node is balanced: the protocol as it was proposed.
        StallBalanced = "stall-balanced",
    }
}

/// What happens to the node whose turn it is to contend.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TurnEvent {
    /// It was seen above its high watermark.
    Balanced,
    /// Its reclaimer sleeps, be it for a write under way.
    Sleeps,
    /// Its reclaimer has found it hopeless, or ends. As proposed the turn would last for ever then.
    GivesUp,
}

/// Whether the turn is over. Under every other answer a turn is left from before the answer was changed.
pub fn ends_turn(contention: Contention, event: TurnEvent) -> bool {
    contention != Contention::StallBalanced || event != TurnEvent::Sleeps
}

/// What kind of thread wants an unmap lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Unmapper {
    /// The background reclaimer of the node with this number.
    Background(u16),
    /// A thread that needs a page.
    Direct,
}

/// How a thread goes about the lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approach {
    /// Waits for it at once.
    Block,
    /// Tries; on failure it claims to be the exclusive reclaimer, and sleeps if it is not.
    TryThenClaim,
    /// Tries; on failure it leaves these victims for later.
    TryThenSkip,
}

/// How `unmapper` goes about a lock while `exclusive` is the node that may contend, if any.
pub fn approach(contention: Contention, unmapper: Unmapper, exclusive: Option<u16>) -> Approach {
    match (contention, unmapper) {
        (Contention::Wait, _) => Approach::Block,
        (Contention::Skip, _) => Approach::TryThenSkip,
        (Contention::Stall | Contention::StallBalanced, unmapper) => match unmapper {
            Unmapper::Direct => Approach::Block,
            Unmapper::Background(node) if exclusive == Some(node) => Approach::Block,
            Unmapper::Background(_) => Approach::TryThenClaim,
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_background_reclaimer_that_is_not_exclusive_tries() {
        for contention in [Contention::Stall, Contention::StallBalanced] {
            let stall = |unmapper, exclusive| approach(contention, unmapper, exclusive);
            assert_eq!(stall(Unmapper::Background(0), None), Approach::TryThenClaim, "X1, X2");
            assert_eq!(stall(Unmapper::Background(1), Some(0)), Approach::TryThenClaim, "X3");
            assert_eq!(stall(Unmapper::Background(0), Some(0)), Approach::Block, "X4");
            assert_eq!(stall(Unmapper::Direct, Some(0)), Approach::Block, "X8");
            assert_eq!(stall(Unmapper::Direct, None), Approach::Block, "X8");
        }
    }

    #[test]
    fn only_as_proposed_a_turn_outlasts_a_sleep() {
        for contention in Contention::ALL {
            assert!(ends_turn(contention, TurnEvent::Balanced), "X5");
            assert!(ends_turn(contention, TurnEvent::GivesUp), "X13");
            let outlasts = !ends_turn(contention, TurnEvent::Sleeps);
            assert_eq!(outlasts, contention == Contention::StallBalanced, "{contention}");
        }
    }

    #[test]
    fn the_other_policies_treat_all_alike() {
        for unmapper in [Unmapper::Direct, Unmapper::Background(3)] {
            assert_eq!(approach(Contention::Wait, unmapper, None), Approach::Block);
            assert_eq!(approach(Contention::Skip, unmapper, Some(3)), Approach::TryThenSkip);
        }
    }
}
