//! The time that no swap can undercut: the load's own work, or the disk moving what must move.

use super::args::Plan;
use super::case::{self, Case};
use crate::disk::Disk;
use crate::usemem::SKEW;
use userswap::internals::PAGE_BYTES;

/// Steps of the numeric sum over a random load; more change the result by less than 1 in 1000.
const SUM_STEPS: u32 = 10_000;

/// The bytes that have to go to the disk and come back within the measured part.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Traffic {
    pub(crate) written: f64,
    pub(crate) read: f64,
}

/// The larger of the load's own user time and the disk's share; nothing where one of them is not known.
pub(crate) fn seconds(plan: &Plan, native_user_s: f64, disk: Option<Disk>) -> Option<f64> {
    let traffic = Traffic::of(plan)?;
    let disk = disk?;
    let moving = traffic.written / disk.write_bytes_per_s + traffic.read / disk.read_bytes_per_s;
    Some(native_user_s.max(moving))
}

impl Disk {
    /// Seconds that the reads of `plan` take at least.
    pub(crate) fn read_s(self, plan: &Plan) -> Option<f64> {
        Some(Traffic::of(plan)?.read / self.read_bytes_per_s)
    }
}

impl Traffic {
    /// The least that the load of `plan` must move, whatever the policy; nothing where that cannot be told.
    /// Content that comes back and leaves unchanged is taken as written once.
    pub(crate) fn of(plan: &Plan) -> Option<Self> {
        let excess = touched_bytes(plan).saturating_sub(plan.ram_bytes) as f64;
        let later_passes = (plan.repeat - 1) as f64;
        let page = PAGE_BYTES as f64;
        let operations = case::page_operations(plan).unwrap_or(0) as f64;
        // What is written in the measured part may still be in RAM at its end.
        let reads = |missing: f64| Self { written: 0.0, read: operations * missing * page };
        let out_of = |bytes: u64| bytes.saturating_sub(plan.ram_bytes) as f64 / bytes as f64;
        Some(match plan.case {
            // What does not fit leaves in the first pass; every later one must fetch as much.
            Case::SwapWSeq | Case::SwapWSeqMt => {
                Self { written: excess, read: excess * later_passes }
            }
            Case::SwapWRand | Case::SwapWRandMt => Self::random_writes(plan),
            Case::Swapin => Self { written: 0.0, read: excess * plan.repeat as f64 },
            Case::PageRandRead | Case::PointerChase => reads(out_of(plan.size_bytes)),
            Case::ZipfRead | Case::ZipfWrite => reads(unpopular(plan)),
            // The hash table has half of the memory.
            Case::HashJoin => reads(out_of(plan.size_bytes / 2)),
            // How objects lie in pages is the allocator's business.
            Case::GcHeap => return None,
        })
    }

    /// Random accesses miss as often as the page is in use but not in RAM: no policy knows better.
    fn random_writes(plan: &Plan) -> Self {
        let page = PAGE_BYTES as f64;
        let pages = plan.size_bytes as f64 / page;
        let room = plan.ram_bytes as f64 / page;
        let step = plan.step_bytes.unwrap_or(case::RANDOM_STEP_BYTES);
        let accesses = plan.size_bytes.div_ceil(step) as f64 * plan.repeat as f64;
        let (mut written, mut read) = (0.0, 0.0);
        for number in 0..SUM_STEPS {
            let done = accesses * (f64::from(number) + 0.5) / f64::from(SUM_STEPS);
            let in_use = pages * (1.0 - (-done / pages).exp());
            let swapped = (in_use - room).max(0.0);
            let share = accesses / f64::from(SUM_STEPS) / pages;
            read += swapped * share;
            if swapped > 0.0 {
                // A page that comes for the first time pushes another out for the first time.
                written += (pages - in_use) * share;
            }
        }
        Self { written: written * page, read: read * page }
    }
}

/// The pages that a pass in order touches: a step may leave some out.
fn touched_bytes(plan: &Plan) -> u64 {
    let page = PAGE_BYTES as u64;
    plan.size_bytes / plan.step_bytes.unwrap_or(page).max(page) * page
}

/// The share of zipf's accesses that goes to pages beyond the most popular ones that fit.
fn unpopular(plan: &Plan) -> f64 {
    let weight = |pages: u64| -> f64 { (1..=pages).map(|rank| (rank as f64).powf(-SKEW)).sum() };
    let page = PAGE_BYTES as u64;
    let all = plan.size_bytes / page;
    1.0 - weight((plan.ram_bytes / page).min(all)) / weight(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::outside::args::tests::plan;

    fn traffic(plan: &Plan) -> Traffic {
        Traffic::of(plan).unwrap()
    }

    const GIB: f64 = (1u64 << 30) as f64;

    #[test]
    fn a_sequential_write_moves_what_does_not_fit() {
        let moved = traffic(&plan("swap-w-seq"));
        assert_eq!(moved, Traffic { written: 1.5 * GIB, read: 0.0 });
        let moved = traffic(&plan("swap-w-seq --repeat 3"));
        assert_eq!(moved, Traffic { written: 1.5 * GIB, read: 3.0 * GIB });
        let moved = traffic(&plan("swap-w-seq --size 512M"));
        assert_eq!(moved, Traffic { written: 0.0, read: 0.0 });
        // Every second page.
        let moved = traffic(&plan("swapin --step 8192"));
        assert_eq!(moved, Traffic { written: 0.0, read: 0.5 * GIB });
        assert_eq!(traffic(&plan("swapin --step 4096")).read, 1.5 * GIB);
    }

    #[test]
    fn a_read_after_a_write_only_fetches() {
        assert_eq!(traffic(&plan("swapin")), Traffic { written: 0.0, read: 1.5 * GIB });
        let reads = traffic(&plan("page-rand-read"));
        assert_eq!(reads, Traffic { written: 0.0, read: 0.375 * GIB });
        // Half of the table of 1 GiB fits.
        let reads = traffic(&plan("hash-join"));
        assert_eq!(reads, Traffic { written: 0.0, read: 0.125 * GIB });
    }

    #[test]
    fn popular_pages_need_not_move() {
        let reads = traffic(&plan("zipf-read --ram 512M")).read / GIB;
        assert!(reads > 0.0 && reads < 0.15 * 0.25, "{reads}");
        assert_eq!(traffic(&plan("zipf-write --size 512M")).read, 0.0);
    }

    #[test]
    fn of_a_heap_nobody_can_tell() {
        assert_eq!(Traffic::of(&plan("gc-heap")), None);
    }

    #[test]
    fn random_writes_in_a_budget_that_holds_all_move_nothing() {
        let moved = traffic(&plan("swap-w-rand --size 512M"));
        assert_eq!(moved, Traffic { written: 0.0, read: 0.0 });
    }

    #[test]
    fn random_writes_approach_the_share_that_is_out() {
        // After many accesses everything is in use: three of four accesses miss.
        let moved = traffic(&plan("swap-w-rand --repeat 100"));
        let misses = moved.read / PAGE_BYTES as f64;
        let accesses = 100.0 * 2.0 * GIB / 4096.0;
        assert!((misses / accesses - 0.75).abs() < 0.02, "{}", misses / accesses);
        assert!((moved.written / GIB - 1.5).abs() < 0.02, "{moved:?}");
    }

    #[test]
    fn the_slower_of_load_and_disk_is_the_bound() {
        let disk = Disk { write_bytes_per_s: GIB, read_bytes_per_s: GIB };
        let plan = plan("swap-w-seq");
        assert_eq!(seconds(&plan, 0.5, Some(disk)), Some(1.5));
        assert_eq!(seconds(&plan, 2.5, Some(disk)), Some(2.5));
        assert_eq!(seconds(&plan, 2.5, None), None);
    }
}
