//! Unmap locks: a thread that unmaps pages holds the lock of their region, or of their part of it.
//!
//! The kernel moves pages under a lock of the mapping, so several reclaimers in one region wait inside a
//! system call, where it cannot be counted. Here they meet before it: acquisitions, waits and the time waited
//! are counted, and `reclaim_contention` says what a reclaimer does that finds the lock taken
//! (`policy::contention`). An unmap lock is, on purpose, held over the call that moves; nothing else is taken inside but a node's lock.
use crate::base::index::{PageIndex, PageRange};
use crate::state::arena::Arena;
use crate::state::kernel::exclusive::{Claim, Exclusive};
use crate::sys::clock;
use crate::sys::lock::{Guard, Lock};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use userswap_policy::kernel::contention::{Approach, Contention, STALL_MAX_MS, Unmapper, approach};

/// Locks; regions that share one by chance wait for each other in vain, which costs time and nothing else.
const LOCKS: usize = 64;

/// Pages of a region under one lock, as a power of two: 64 MiB.
const PART_BITS: u32 = 14;

/// A lock on a cache line of its own.
#[repr(align(128))]
struct Line(Lock<()>);

/// How the unmap locks were used since the start.
#[derive(Debug, Default)]
pub struct UnmapLockUse {
    /// Times one was taken.
    pub acquisitions: AtomicU64,
    /// Times another thread had it.
    pub contended: AtomicU64,
    /// Nanoseconds spent waiting, sleeps included.
    pub wait_ns: AtomicU64,
    /// Times a reclaimer slept because another was exclusive.
    pub stalled: AtomicU64,
    /// Batches that were left for others.
    pub skipped: AtomicU64,
}

/// The unmap locks of an engine.
pub struct UnmapLocks {
    locks: [Line; LOCKS],
    contention: AtomicU8,
    /// Whose turn it is under `stall`.
    pub(crate) exclusive: Exclusive,
    /// How they were used.
    pub used: UnmapLockUse,
}

/// The part of a region that pages are unmapped from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Part(PageIndex);

impl Part {
    fn lock_index(self) -> usize {
        // Fibonacci hashing: parts of one region go to different locks.
        (self.0.wrapping_mul(0x9E37_79B1) >> 26) as usize % LOCKS
    }
}

/// Finds the parts of pages in order: the region of the last one is remembered.
pub struct Parts<'a> {
    arena: &'a Arena,
    region: std::cell::Cell<PageRange>,
}

impl<'a> Parts<'a> {
    /// Of an arena.
    pub fn new(arena: &'a Arena) -> Self {
        Self { arena, region: std::cell::Cell::new(PageRange { first: 0, count: 0 }) }
    }

    /// The part that a page is in; of a page whose region has just gone, the part where it was.
    pub fn of(&self, page: PageIndex) -> Part {
        if !self.region.get().contains(page) {
            let alone = PageRange { first: page, count: 1 };
            self.region.set(self.arena.region_of(page).unwrap_or(alone));
        }
        let first = self.region.get().first;
        Part(first + ((page - first) >> PART_BITS << PART_BITS))
    }
}

impl UnmapLocks {
    /// All free, `wait`.
    pub fn new() -> Self {
        Self {
            locks: [const { Line(Lock::new(())) }; LOCKS],
            contention: AtomicU8::new(Contention::default().index()),
            exclusive: Exclusive::new(),
            used: UnmapLockUse::default(),
        }
    }

    /// What a reclaimer does that finds a lock taken.
    pub fn contention(&self) -> Contention {
        Contention::of_index(self.contention.load(Ordering::Relaxed))
    }

    /// Changes what a reclaimer does that finds a lock taken.
    pub fn set_contention(&self, contention: Contention) {
        self.contention.store(contention.index(), Ordering::Relaxed);
    }

    /// Takes the lock of `part` as the policy says; None when `unmapper` should look elsewhere.
    pub fn enter(&self, part: Part, unmapper: Unmapper) -> Option<Guard<'_, ()>> {
        let lock = &self.locks[part.lock_index()].0;
        let guard = match approach(self.contention(), unmapper, self.exclusive.owner()) {
            Approach::Block => Some(self.block(lock)),
            Approach::TryThenClaim => Some(self.try_then_claim(lock, unmapper)),
            Approach::TryThenSkip => {
                let guard = lock.try_lock();
                if guard.is_none() {
                    self.used.contended.fetch_add(1, Ordering::Relaxed);
                    self.used.skipped.fetch_add(1, Ordering::Relaxed);
                }
                guard
            }
        };
        self.used.acquisitions.fetch_add(u64::from(guard.is_some()), Ordering::Relaxed);
        guard
    }

    /// Takes the lock of `part`, waiting if need be: there is nothing else to take.
    pub fn enter_at_last(&self, part: Part) -> Guard<'_, ()> {
        self.used.acquisitions.fetch_add(1, Ordering::Relaxed);
        self.block(&self.locks[part.lock_index()].0)
    }

    fn block<'a>(&self, lock: &'a Lock<()>) -> Guard<'a, ()> {
        lock.try_lock().unwrap_or_else(|| {
            self.used.contended.fetch_add(1, Ordering::Relaxed);
            self.wait(lock)
        })
    }

    fn try_then_claim<'a>(&self, lock: &'a Lock<()>, unmapper: Unmapper) -> Guard<'a, ()> {
        if let Some(guard) = lock.try_lock() {
            return guard;
        }
        self.used.contended.fetch_add(1, Ordering::Relaxed);
        if let Unmapper::Background(node) = unmapper
            && self.exclusive.claim(node) == Claim::Lost
        {
            self.used.stalled.fetch_add(1, Ordering::Relaxed);
            let start = clock::now_ns();
            self.exclusive.stall(STALL_MAX_MS * 1_000_000);
            self.used.wait_ns.fetch_add(clock::now_ns() - start, Ordering::Relaxed);
        }
        self.wait(lock)
    }

    fn wait<'a>(&self, lock: &'a Lock<()>) -> Guard<'a, ()> {
        let start = clock::now_ns();
        let guard = lock.lock();
        self.used.wait_ns.fetch_add(clock::now_ns() - start, Ordering::Relaxed);
        guard
    }
}

impl Default for UnmapLocks {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Barrier;

    const PART: Part = Part(0);

    fn stalling() -> UnmapLocks {
        let locks = UnmapLocks::new();
        locks.set_contention(Contention::Stall);
        locks
    }

    fn wait_until(happened: impl Fn() -> bool) {
        while !happened() {
            std::thread::yield_now();
        }
    }

    fn stalled(locks: &UnmapLocks) -> u64 {
        locks.used.stalled.load(Ordering::Relaxed)
    }

    /// Lets `unmappers` meet a taken lock one after the other, waiting for `met` after each; then runs
    /// `meanwhile`, frees the lock, and waits for all.
    fn collide(
        locks: &UnmapLocks,
        unmappers: &[(Unmapper, &dyn Fn() -> bool)],
        meanwhile: impl FnOnce(),
    ) {
        std::thread::scope(|scope| {
            let held = locks.enter_at_last(PART);
            for (unmapper, met) in unmappers {
                let unmapper = *unmapper;
                scope.spawn(move || drop(locks.enter(PART, unmapper)));
                wait_until(met);
            }
            meanwhile();
            drop(held);
        });
    }

    fn background(node: u16) -> Unmapper {
        Unmapper::Background(node)
    }

    #[test]
    fn a_lock_that_is_free_changes_nothing() {
        let locks = stalling();
        assert!(locks.enter(PART, background(0)).is_some());
        assert_eq!((locks.exclusive.owner(), stalled(&locks)), (None, 0), "X1");
    }

    #[test]
    fn the_first_to_collide_may_contend_and_the_second_sleeps() {
        let locks = stalling();
        let first = || locks.exclusive.owner() == Some(0);
        let second = || stalled(&locks) == 1;
        collide(&locks, &[(background(0), &first), (background(1), &second)], || {});
        // X2, X3, X7: nobody was balanced, so it is still node 0's turn.
        assert_eq!((locks.exclusive.owner(), stalled(&locks)), (Some(0), 1));
    }

    #[test]
    fn a_balanced_node_ends_its_own_turn_only() {
        let locks = stalling();
        assert_eq!(locks.exclusive.claim(0), Claim::Won);
        assert!(!locks.exclusive.release(1), "X6");
        assert_eq!(locks.exclusive.owner(), Some(0), "X6");
        assert!(locks.exclusive.release(0), "X12: whoever looks may release");
        assert_eq!(locks.exclusive.owner(), None, "X5");
        assert_eq!(locks.exclusive.claim(1), Claim::Won, "X10");
    }

    #[test]
    fn a_release_wakes_all_who_sleep() {
        const HOUR_NS: u64 = 3_600_000_000_000;
        let locks = stalling();
        assert_eq!(locks.exclusive.claim(0), Claim::Won);
        std::thread::scope(|scope| {
            let sleepers: Vec<_> =
                (0..2).map(|_| scope.spawn(|| locks.exclusive.stall(HOUR_NS))).collect();
            // Whether they sleep already cannot be seen: a release before that is missed (X11).
            while sleepers.iter().any(|sleeper| !sleeper.is_finished()) {
                locks.exclusive.release(0);
                locks.exclusive.claim(0);
            }
        });
    }

    #[test]
    fn direct_reclaim_waits_and_takes_no_part() {
        let locks = stalling();
        let met = || locks.used.contended.load(Ordering::Relaxed) == 1;
        collide(&locks, &[(Unmapper::Direct, &met)], || {});
        assert_eq!((locks.exclusive.owner(), stalled(&locks)), (None, 0), "X8");
    }

    #[test]
    fn of_three_that_collide_at_once_one_is_exclusive_and_two_sleep() {
        let locks = stalling();
        let start = Barrier::new(4);
        std::thread::scope(|scope| {
            let held = locks.enter_at_last(PART);
            for node in 0..3 {
                let (locks, start) = (&locks, &start);
                scope.spawn(move || {
                    start.wait();
                    drop(locks.enter(PART, background(node)));
                });
            }
            start.wait();
            wait_until(|| stalled(&locks) == 2);
            assert!(locks.exclusive.owner().is_some(), "X9");
            drop(held);
        });
        assert_eq!(stalled(&locks), 2, "X9");
    }

    #[test]
    fn a_hopeless_owner_delays_each_collision_once_and_stops_none() {
        let locks = stalling();
        assert_eq!(locks.exclusive.claim(0), Claim::Won);
        for collision in 1..=3 {
            let met = || stalled(&locks) == collision;
            collide(&locks, &[(background(1), &met)], || {});
        }
        assert_eq!((stalled(&locks), locks.exclusive.owner()), (3, Some(0)), "X13");
    }

    #[test]
    fn skip_looks_elsewhere_and_waits_at_last() {
        let locks = UnmapLocks::new();
        locks.set_contention(Contention::Skip);
        let held = locks.enter_at_last(PART);
        assert!(locks.enter(PART, background(0)).is_none());
        assert!(locks.enter(PART, Unmapper::Direct).is_none());
        drop(held);
        assert!(locks.enter(PART, background(0)).is_some());
        assert_eq!(locks.used.skipped.load(Ordering::Relaxed), 2);
    }
}
