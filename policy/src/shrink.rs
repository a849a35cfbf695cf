//! How much of a program's cache is looked at when reclaim has looked at so many of a node's pages.
//!
//! The arithmetic is the kernel's (mm/vmscan.c, do_shrink_slab, Linux 4.16 and later): the share of the
//! cache is the share of the pages, times four, divided by what an object costs to make again; it is worked
//! off in batches, and what does not fill a batch, or is refused, is put off to the next time. Where the
//! kernel takes the share from its priority (pages >> priority), here it is the quotient itself, as until
//! Linux 4.12, so that reclaim in batches of any size can say what it did: for whole powers of two both are
//! the same.
//!
//! Which caches there are, and asking them, is left to the caller.

/// What an object costs to make again, unless its cache says otherwise: a read from a disk and one more.
pub const SEEKS_DEFAULT: u32 = 2;
/// Objects that are looked at by one call.
pub const BATCH: u64 = 128;
/// Pages that reclaim is taken to have looked at when it found none: the kernel's SWAP_CLUSTER_MAX.
const SCANNED_MIN: u64 = 32;

/// The share of its pages that reclaim has looked at.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Share {
    scanned: u64,
    eligible: u64,
}

impl Share {
    /// So many pages of so many; a reclaimer that found no page to look at asks for a few.
    pub fn new(scanned: u64, eligible: u64) -> Self {
        Self { scanned: scanned.max(SCANNED_MIN), eligible: eligible.max(1) }
    }

    fn of(self, count: u64) -> u64 {
        let share = u128::from(count) * u128::from(self.scanned) / u128::from(self.eligible);
        u64::try_from(share).unwrap_or(u64::MAX)
    }
}

/// What one cache is asked for, and how far it has got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Work {
    freeable: u64,
    /// What was put off before and what has come up now.
    due: u64,
    /// What is to be looked at this time.
    left: u64,
    scanned: u64,
}

impl Work {
    /// For a cache with so many objects that could go, `deferred` from earlier times; None when there are
    /// none: what was put off stays so. Objects with 0 `seeks` cost nothing to make: half of them are due.
    pub fn new(freeable: u64, deferred: u64, share: Share, seeks: u32) -> Option<Self> {
        if freeable == 0 {
            return None;
        }
        let delta = match seeks {
            0 => freeable / 2,
            seeks => share.of(freeable).saturating_mul(4) / u64::from(seeks),
        };
        let left = share.of(deferred).min(deferred).saturating_add(delta);
        Some(Self {
            freeable,
            due: deferred.saturating_add(delta),
            left: left.min(freeable.saturating_mul(2)),
            scanned: 0,
        })
    }

    /// Objects to look at next; None when the rest is not worth a call.
    pub fn batch(&self) -> Option<u64> {
        let is_worth = self.left >= BATCH || self.left >= self.freeable;
        (is_worth && self.left > 0).then(|| self.left.min(BATCH))
    }

    /// So many objects of a batch were looked at.
    ///
    /// # Panics
    /// They are more than were asked for.
    pub fn on_scanned(&mut self, objects: u64) {
        self.left = self.left.checked_sub(objects).expect("no more is scanned than was asked for");
        self.scanned += objects;
    }

    /// What is put off to the next time.
    pub fn deferred(&self) -> u64 {
        self.due.saturating_sub(self.scanned).min(self.freeable.saturating_mul(2))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What the kernel looks at, and what it puts off, when nothing is refused.
    fn kernel(freeable: u64, deferred: u64, priority: u32, seeks: u64) -> (u64, u64) {
        let pressed = (freeable >> priority) * 4;
        let delta = pressed.checked_div(seeks).unwrap_or(freeable / 2);
        let mut total = ((deferred >> priority) + delta).min(2 * freeable);
        let mut scanned = 0;
        while total >= 128 || total >= freeable {
            let batch = total.min(128);
            total -= batch;
            scanned += batch;
        }
        (scanned, (deferred + delta - scanned).min(2 * freeable))
    }

    fn ours(freeable: u64, deferred: u64, share: Share, seeks: u32) -> (u64, u64) {
        let mut plan = Work::new(freeable, deferred, share, seeks).unwrap();
        while let Some(batch) = plan.batch() {
            plan.on_scanned(batch);
        }
        (plan.scanned, plan.deferred())
    }

    #[test]
    fn a_cache_is_asked_in_proportion_to_the_pages() {
        // freeable, deferred, pages scanned, of, seeks: scanned, deferred
        let rows = [
            ((10_000, 0, 256, 4096, 2), (1152, 98)),
            ((10_000, 98, 256, 4096, 2), (1152, 196)),
            ((10_000, 0, 256, 4096, 8), (256, 56)),
            ((100, 0, 256, 4096, 2), (0, 12)),
            ((100, 0, 4096, 4096, 2), (128, 72)),
            ((1000, 0, 0, 0, 2), (1920, 2000)),
            ((1000, 0, 0, 4096, 0), (384, 116)),
            ((50, 0, 4096, 4096, 4), (50, 0)),
        ];
        for ((freeable, deferred, scanned, eligible, seeks), expected) in rows {
            let share = Share::new(scanned, eligible);
            let found = ours(freeable, deferred, share, seeks);
            assert_eq!(found, expected, "{freeable} {deferred} {share:?} {seeks}");
        }
    }

    #[test]
    fn what_is_refused_is_put_off() {
        let mut plan = Work::new(1000, 0, Share::new(1024, 4096), 2).unwrap();
        assert_eq!(plan.batch(), Some(128));
        plan.on_scanned(128);
        assert_eq!(plan.deferred(), 372);
    }

    #[test]
    fn an_empty_cache_is_not_asked() {
        assert_eq!(Work::new(0, 77, Share::new(1, 1), 2), None);
    }

    proptest! {
        #[test]
        fn shares_that_are_powers_of_two_give_the_kernels_numbers(
            freeable in 1u64..1 << 40, deferred in 0u64..1 << 40, priority in 0u32..=12,
            seeks in 0u32..10,
        ) {
            let share = Share::new(1 << 20, 1 << (20 + priority));
            // Both counts in whole batches of batches, so that the loop is short.
            let (freeable, deferred) = (freeable >> 20, deferred >> 20);
            prop_assume!(freeable > 0);
            let expected = kernel(freeable, deferred, priority, u64::from(seeks));
            prop_assert_eq!(ours(freeable, deferred, share, seeks), expected);
        }

        #[test]
        fn no_number_overflows_and_no_cache_is_asked_for_more_than_twice_what_it_has(
            freeable in 1u64.., deferred: u64, scanned: u64, eligible: u64, seeks: u32,
        ) {
            let plan = Work::new(freeable, deferred, Share::new(scanned, eligible), seeks).unwrap();
            prop_assert!(plan.left <= freeable.saturating_mul(2));
            prop_assert!(plan.deferred() <= freeable.saturating_mul(2));
        }
    }
}
