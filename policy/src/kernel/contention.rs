//! Contention: what a reclaimer does when another one is taking pages out of the same place.
//!
//! Pages are removed under a removal lock, one for each region (the counterpart of the kernel's lock on a
//! mapping's index). Removal is batched: all victims of one region go under one acquisition ([`take_same`];
//! patch 1 of the 2016 series). Who finds the lock taken acts as [`Contention`] says: it waits; or it keeps to
//! the exclusive-reclaimer protocol of that series (patch 3, mm/vmscan.c, never merged), in which one
//! background reclaimer may contend and the others sleep for a moment; or it turns to other victims.
//!
//! The protocol is here as decisions only; `engine/src/removal.rs` has the lock, the claim and the sleep.

use crate::named_choice;

/// How long a stalled reclaimer sleeps at most.
pub const STALL_MAX_MS: u64 = 10;

named_choice! {
    /// What to do about a removal lock that another thread holds.
    #[derive(Default)]
    pub enum Contention, "answer to a contended lock" {
        /// Wait for it.
        #[default]
        Wait = "wait",
        /// One background reclaimer waits for it, the others sleep first.
        Stall = "stall",
        /// Take victims from elsewhere, and come back to these.
        Skip = "skip",
    }
}

/// Who wants a removal lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remover {
    /// A node's background reclaimer.
    Background(u8),
    /// A thread that needs a page.
    Direct,
}

/// How a remover goes about a lock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Approach {
    /// Waits for it at once.
    Block,
    /// Tries; on failure it claims to be the exclusive reclaimer, and sleeps if it is not.
    TryThenClaim,
    /// Tries; on failure it leaves these victims for later.
    TryThenSkip,
}

/// How `remover` goes about a lock while `exclusive` is the node that may contend, if any.
pub fn approach(contention: Contention, remover: Remover, exclusive: Option<u8>) -> Approach {
    match (contention, remover) {
        (Contention::Wait, _) => Approach::Block,
        (Contention::Skip, _) => Approach::TryThenSkip,
        (Contention::Stall, Remover::Direct) => Approach::Block,
        (Contention::Stall, Remover::Background(node)) if exclusive == Some(node) => {
            Approach::Block
        }
        (Contention::Stall, Remover::Background(_)) => Approach::TryThenClaim,
    }
}

/// Moves all items with the first one's key to the front, in order, the others behind them, in order;
/// returns how many those are.
pub fn take_same<T: Copy, K: PartialEq>(items: &mut [T], key: impl Fn(&T) -> K) -> usize {
    let Some(first) = items.first().map(&key) else { return 0 };
    let mut same = 0;
    for place in 0..items.len() {
        if key(&items[place]) == first {
            // What lies between keeps its order: it moves up by one.
            items[same..=place].rotate_right(1);
            same += 1;
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lock acquisitions for a list of (region, referenced), and how many pages are reclaimed.
    fn remove(list: &[(char, bool)]) -> (usize, usize) {
        let mut list = list.to_vec();
        let (mut rest, mut locks, mut removed) = (&mut list[..], 0, 0);
        while !rest.is_empty() {
            let same = take_same(rest, |(region, _)| *region);
            locks += 1;
            removed += rest[..same].iter().filter(|(_, referenced)| !referenced).count();
            rest = &mut rest[same..];
        }
        (locks, removed)
    }

    #[test]
    fn one_acquisition_per_region_and_batch() {
        let plain = |text: &str| text.chars().map(|region| (region, false)).collect::<Vec<_>>();
        assert_eq!(remove(&plain("XXXX")), (1, 4), "B1");
        assert_eq!(remove(&plain("XYXYX")), (2, 5), "B2");
        assert_eq!(remove(&plain("XYZ")), (3, 3), "B3");
        assert_eq!(remove(&[('X', true), ('X', false)]), (1, 1), "B4");
        assert_eq!(remove(&[]), (0, 0), "B5");
    }

    #[test]
    fn the_first_ones_region_comes_first_and_order_is_kept() {
        let mut list = [('X', 1), ('Y', 2), ('X', 3), ('Y', 4), ('X', 5)];
        assert_eq!(take_same(&mut list, |item| item.0), 3);
        assert_eq!(list.map(|item| item.1), [1, 3, 5, 2, 4]);
    }

    #[test]
    fn only_a_background_reclaimer_that_is_not_exclusive_tries() {
        let stall = |remover, exclusive| approach(Contention::Stall, remover, exclusive);
        assert_eq!(stall(Remover::Background(0), None), Approach::TryThenClaim, "X1, X2");
        assert_eq!(stall(Remover::Background(1), Some(0)), Approach::TryThenClaim, "X3");
        assert_eq!(stall(Remover::Background(0), Some(0)), Approach::Block, "X4");
        assert_eq!(stall(Remover::Direct, Some(0)), Approach::Block, "X8");
        assert_eq!(stall(Remover::Direct, None), Approach::Block, "X8");
    }

    #[test]
    fn the_other_policies_treat_all_alike() {
        for remover in [Remover::Direct, Remover::Background(3)] {
            assert_eq!(approach(Contention::Wait, remover, None), Approach::Block);
            assert_eq!(approach(Contention::Skip, remover, Some(3)), Approach::TryThenSkip);
        }
    }

    proptest! {
        #[test]
        fn a_partition_loses_nothing(list in prop::collection::vec(0..4u8, 0..40)) {
            let mut tagged: Vec<(u8, usize)> = list.iter().copied().zip(0..).collect();
            let same = take_same(&mut tagged, |item| item.0);
            let (front, back) = tagged.split_at(same);
            let expect = |equal: bool| list.iter().copied().zip(0..)
                .filter(|item| (Some(&item.0) == list.first()) == equal).collect::<Vec<_>>();
            prop_assert_eq!(front.to_vec(), expect(true));
            prop_assert_eq!(back.to_vec(), expect(false));
        }
    }
}
