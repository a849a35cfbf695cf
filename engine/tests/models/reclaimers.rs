//! Reclaimers that want to be the only one: `exclusive.rs`.
use crate::exclusive::{Claim, Exclusive};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, Ordering};

const STALL_NS: u64 = userswap_policy::kernel::contention::STALL_MAX_MS * 1_000_000;

/// Every order with at most four switches away from a thread that could go on: seconds instead of minutes,
/// and far beyond what a race of three threads needs.
fn in_every_order(model: impl Fn() + Send + Sync + 'static) {
    let mut checker = loom::model::Builder::new();
    checker.preemption_bound = Some(4);
    checker.check(model);
}

/// A reclaimer that meets a taken lock; returns whether it slept.
fn collide(exclusive: &Exclusive, owners: &AtomicU32, node: u16) -> bool {
    match exclusive.claim(node) {
        Claim::Won => {
            assert_eq!(owners.fetch_add(1, Ordering::AcqRel), 0, "never two owners");
            owners.fetch_sub(1, Ordering::AcqRel);
            assert!(exclusive.release(node), "the owner's turn is its own");
            false
        }
        Claim::Lost => {
            exclusive.stall(STALL_NS);
            true
        }
    }
}

#[test]
fn there_are_never_two_exclusive_reclaimers_and_all_go_on() {
    in_every_order(|| {
        let exclusive = Arc::new(Exclusive::new());
        let owners = Arc::new(AtomicU32::new(0));
        let reclaimers: Vec<_> = (0..2)
            .map(|node| {
                let (exclusive, owners) = (exclusive.clone(), owners.clone());
                loom::thread::spawn(move || collide(&exclusive, &owners, node))
            })
            .collect();
        collide(&exclusive, &owners, 2);
        // Joining them is the proof of progress: no sleep was ended by a wake-up.
        reclaimers.into_iter().for_each(|reclaimer| _ = reclaimer.join().unwrap());
        assert_eq!(exclusive.owner(), None);
    });
}

#[test]
fn an_allocation_that_releases_for_the_owner_does_it_once() {
    in_every_order(|| {
        let exclusive = Arc::new(Exclusive::new());
        assert_eq!(exclusive.claim(0), Claim::Won);
        let releases: Vec<_> = (0..2)
            .map(|_| {
                let exclusive = exclusive.clone();
                loom::thread::spawn(move || exclusive.release(0))
            })
            .collect();
        let next = exclusive.claim(1);
        let released = releases.into_iter().map(|one| one.join().unwrap());
        assert_eq!(released.filter(|released| *released).count(), 1);
        assert_eq!(exclusive.owner(), (next == Claim::Won).then_some(1));
    });
}
