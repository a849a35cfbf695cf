//! Reclaim: how hard to look, when to give up, when to wait.
//!
//! The kernel's rules (mm/vmscan.c): a round begins at priority 12, where a list's size divided by 2^12 is
//! looked at, and presses harder as long as that is not enough. A background round that reclaimed nothing
//! down to priority 1 has failed; after 16 of them a node is hopeless, and its reclaimer is not woken until
//! there is progress. Direct reclaim goes on to priority 0 and stops at 32 pages; it waits instead
//! while less than half of the minimum is available. Which pages go is left to `workingset`; when a round
//! begins, to `watermark`.

/// The priority at which a round begins.
pub const PRIORITY_DEFAULT: u8 = 12;
/// Pages that direct reclaim is after (the kernel's SWAP_CLUSTER_MAX).
pub const DIRECT_TARGET: u32 = 32;
/// Failed rounds after which a node is hopeless (the kernel's MAX_RECLAIM_RETRIES).
pub const FAILURES_MAX: u32 = 16;

/// What kind of thread reclaims.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Reclaimer {
    /// A node's own thread (the kernel's kswapd).
    Background,
    /// A thread that needs a page.
    Direct,
}

/// What a round does next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Next {
    /// Another pass, maybe pressing harder.
    Pass,
    /// Nothing was reclaimed although everything was looked at.
    Failed,
    /// It is over: enough, or as much as there was.
    Over,
}

/// One round of reclaim on one node.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Round {
    reclaimer: Reclaimer,
    priority: u8,
    /// Background: pages to look at in one pass before the priority is enough. Direct: pages wanted.
    target: u32,
    reclaimed: u64,
}

impl Round {
    /// A round of a node's reclaimer; `high` is the node's mark.
    pub fn background(high: u32) -> Self {
        Self::new(Reclaimer::Background, high.max(DIRECT_TARGET))
    }

    /// A round of a thread that needs a page.
    pub fn direct() -> Self {
        Self::new(Reclaimer::Direct, DIRECT_TARGET)
    }

    fn new(reclaimer: Reclaimer, target: u32) -> Self {
        Self { reclaimer, priority: PRIORITY_DEFAULT, target, reclaimed: 0 }
    }

    /// How hard it presses: 12 is least.
    pub fn priority(&self) -> u8 {
        self.priority
    }

    /// How many pages of a list of `length` the next pass looks at: at least one batch of `least`, because
    /// what leaves in one batch leaves in runs.
    pub fn scan(&self, length: u32, least: u32) -> u32 {
        (length >> self.priority).max(least).min(length)
    }

    /// What comes after a pass that looked at `scanned` pages and took `reclaimed` of them.
    pub fn on_pass(&mut self, scanned: u32, reclaimed: u32) -> Next {
        self.reclaimed += u64::from(reclaimed);
        let (last, enough) = match self.reclaimer {
            Reclaimer::Background => (1, scanned >= self.target && reclaimed > 0),
            Reclaimer::Direct if self.reclaimed >= u64::from(self.target) => return Next::Over,
            Reclaimer::Direct => (0, false),
        };
        if enough {
            return Next::Pass;
        }
        if self.priority > last {
            self.priority -= 1;
            return Next::Pass;
        }
        if self.reclaimed == 0 { Next::Failed } else { Next::Over }
    }
}

/// Whether a node's reclaim leads anywhere.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Health {
    failures: u32,
}

impl Health {
    /// A background round has failed.
    pub fn on_failure(&mut self) {
        self.failures = (self.failures + 1).min(FAILURES_MAX);
    }

    /// A page got out, or something happened that may let one.
    pub fn on_progress(&mut self) {
        self.failures = 0;
    }

    /// Rounds that failed since the last progress.
    pub fn failures(&self) -> u32 {
        self.failures
    }

    /// Its reclaimer sleeps, and is not woken.
    pub fn is_hopeless(&self) -> bool {
        self.failures >= FAILURES_MAX
    }

    /// Whether a direct reclaimer waits for the background one instead of reclaiming itself.
    pub fn throttles(&self, available: u32, min: u32) -> bool {
        available <= min / 2 && !self.is_hopeless()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_pass_looks_at_a_larger_part_of_the_list_at_each_priority() {
        let mut round = Round::background(4000);
        let mut scans = Vec::new();
        loop {
            let scan = round.scan(1 << 20, 32);
            scans.push(scan);
            // Nothing could be taken.
            if round.on_pass(scan, 0) == Next::Failed {
                break;
            }
        }
        let expected: Vec<u32> = (1..=12).rev().map(|priority| 1 << (20 - priority)).collect();
        assert_eq!(scans, expected);
    }

    #[test]
    fn a_background_round_keeps_its_priority_once_it_looks_at_enough() {
        let mut round = Round::background(1000);
        assert_eq!(round.on_pass(999, 999), Next::Pass);
        assert_eq!(round.priority(), 11);
        assert_eq!(round.on_pass(1000, 1), Next::Pass);
        assert_eq!(round.priority(), 11);
        assert_eq!(round.on_pass(1000, 0), Next::Pass);
        assert_eq!(round.priority(), 10);
    }

    #[test]
    fn direct_reclaim_stops_at_32_pages() {
        let mut round = Round::direct();
        assert_eq!(round.on_pass(40, 31), Next::Pass);
        assert_eq!(round.on_pass(1, 1), Next::Over);
    }

    #[test]
    fn direct_reclaim_presses_down_to_priority_0() {
        let mut round = Round::direct();
        let passes = (0..).take_while(|_| round.on_pass(0, 0) == Next::Pass).count();
        assert_eq!((passes, round.priority()), (12, 0));
        let mut some = Round::direct();
        some.on_pass(5, 5);
        while some.on_pass(0, 0) == Next::Pass {}
        assert_eq!(some.on_pass(0, 0), Next::Over);
    }

    #[test]
    fn sixteen_failed_rounds_make_a_node_hopeless_until_there_is_progress() {
        let mut health = Health::default();
        (0..15).for_each(|_| health.on_failure());
        assert!(!health.is_hopeless());
        assert!(health.throttles(50, 100) && !health.throttles(51, 100));
        health.on_failure();
        assert!(health.is_hopeless() && !health.throttles(0, 100));
        health.on_failure();
        health.on_progress();
        assert_eq!(health, Health::default());
    }

    proptest! {
        #[test]
        fn every_round_ends(passes in prop::collection::vec((0..100u32, 0..2u32), 1..100)) {
            let mut round = Round::direct();
            let ended = passes.iter().position(|(scanned, taken)| {
                round.on_pass(*scanned, (*taken).min(*scanned)) != Next::Pass
            });
            prop_assert!(ended.is_some() || passes.len() < 13);
            prop_assert!(round.scan(1000, 32) <= 1000);
        }
    }
}
