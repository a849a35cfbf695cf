//! What the kernel's side gets where compressed pages are part of our budget: a control group does not contain what zram
//! takes, so that both together are held to the budget.
//!
//! The limit is found by trying: with what a run's zram took at most, the limit of the next follows.

use super::args::Plan;

/// The first limit is this share of the budget.
const FIRST_SHARE: u64 = 4;
/// Both together may be so many thousandths of the budget.
const LEAST: u64 = 980;
const MOST: u64 = 1005;
/// What is tried for.
const AIM: f64 = 0.995;
/// A limit below this share of the budget leaves the load no room.
const LEAST_SHARE: u64 = 32;

/// The limit of the next run.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Beside {
    budget_bytes: u64,
    size_bytes: u64,
    pub(super) limit_bytes: u64,
}

impl Beside {
    pub(super) fn new(plan: &Plan) -> Self {
        let budget_bytes = plan.ram_bytes;
        let limit_bytes = budget_bytes / FIRST_SHARE;
        Self { budget_bytes, size_bytes: plan.size_bytes, limit_bytes }
    }

    /// Whether a run whose zram took so much used the budget, and no more.
    pub(super) fn fits(&self, zram_bytes: u64) -> bool {
        let both = self.limit_bytes + zram_bytes;
        (LEAST..=MOST).contains(&(both * 1000 / self.budget_bytes))
    }

    /// Takes the limit from what zram took; false where none can fit.
    pub(super) fn learn(&mut self, zram_bytes: u64) -> bool {
        let out_bytes = self.size_bytes.saturating_sub(self.limit_bytes).max(1);
        // What a byte of the limit costs or saves of zram.
        let cost = zram_bytes as f64 / out_bytes as f64;
        let aim = self.budget_bytes as f64 * AIM;
        let missing = aim - self.limit_bytes as f64 - zram_bytes as f64;
        let limit = self.limit_bytes as f64 + missing / (1.0 - cost);
        let least = (self.budget_bytes / LEAST_SHARE) as f64;
        self.limit_bytes = limit.clamp(least, aim) as u64;
        cost < 1.0 && limit >= least
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    #[test]
    fn the_limit_is_found_in_a_few_runs_and_where_there_is_none_that_is_said() {
        let beside = |size: &str| Beside::new(&plan(&format!("swap-w-seq --size {size}")));
        // What is out takes a bit more than its share, and slabs beside that.
        let zram = |beside: &Beside, share: f64| {
            ((beside.size_bytes - beside.limit_bytes) as f64 * share) as u64 + (3 << 20)
        };
        for (size, share) in [("800M", 0.52), ("900M", 0.5), ("1500M", 0.26), ("3G", 0.001)] {
            let mut beside = beside(size);
            let runs = (1..).find(|_| {
                let zram = zram(&beside, share);
                beside.fits(zram) || !beside.learn(zram)
            });
            assert!(beside.fits(zram(&beside, share)), "{size}: {beside:?}");
            assert!(runs.unwrap() <= 4, "{size} took {runs:?}");
        }
        for (size, share) in [("2G", 0.5), ("600M", 1.01)] {
            let mut beside = beside(size);
            let zram = zram(&beside, share);
            assert!(!beside.learn(zram) && !beside.fits(zram), "{size}: {beside:?}");
        }
    }
}
