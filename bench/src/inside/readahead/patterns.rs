//! The orders in which `bench readahead` reads pages: each one is a list, made before the clock runs.
use crate::random::{Random, shuffled};
use clap::ValueEnum;
use serde::Serialize;

/// Skew of `zipf`: that of the YCSB benchmarks.
const ZIPF_SKEW: f64 = 0.99;
/// Entries of an inner page of the tree.
const FAN_OUT: usize = 256;
/// One lookup in so many goes on to the following leaves.
const SCAN_EVERY: usize = 8;
/// Leaves of such a scan.
const SCAN_LEAVES: usize = 8;

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Pattern {
    /// From the first page to the last
    Sequential,
    /// From the last to the first
    Backward,
    /// Every third page
    Strided,
    /// Two sequential scans in turns, one in each half
    Interleaved,
    /// Any page, all alike
    Random,
    /// Any page, some much more often than others
    Zipf,
    /// Lookups in a tree of pages: root, inner page, leaf; some go on to the next leaves
    Btree,
}

impl Pattern {
    /// The pages in order, for data of `pages` pages.
    pub(super) fn order(self, pages: usize) -> Vec<u32> {
        let mut random = Random::new(42);
        let page = |page: usize| page as u32;
        match self {
            Self::Sequential => (0..pages).map(page).collect(),
            Self::Backward => (0..pages).rev().map(page).collect(),
            Self::Strided => (0..pages).step_by(3).map(page).collect(),
            Self::Interleaved => {
                let half = pages / 2;
                (0..half).flat_map(|index| [page(index), page(half + index)]).collect()
            }
            Self::Random => (0..pages / 2).map(|_| random.below(pages as u64) as u32).collect(),
            Self::Zipf => zipf(pages, &mut random),
            Self::Btree => tree(pages, &mut random),
        }
    }

    /// Pages that the order goes over, whether it reads them or not.
    pub(super) fn span(self, pages: usize) -> usize {
        match self {
            Self::Strided => pages,
            _ => self.order(pages).len(),
        }
    }
}

/// As many reads as there are pages; the popular ones lie anywhere.
fn zipf(pages: usize, random: &mut Random) -> Vec<u32> {
    let popular_first = shuffled(pages, random);
    let mut sum = 0.0;
    let weights = (1..=pages).map(|rank| {
        sum += (rank as f64).powf(-ZIPF_SKEW);
        sum
    });
    let weights: Vec<f64> = weights.collect();
    let pick = |random: &mut Random| {
        let wanted = random.below(1 << 31) as f64 / f64::from(1u32 << 31) * sum;
        popular_first[weights.partition_point(|weight| *weight <= wanted).min(pages - 1)]
    };
    (0..pages).map(|_| pick(random)).collect()
}

/// The root is page 0, inner pages follow, then the leaves in order.
fn tree(pages: usize, random: &mut Random) -> Vec<u32> {
    let inner = pages.div_ceil(FAN_OUT + 1);
    let leaves = pages.saturating_sub(1 + inner).max(1);
    let mut order = Vec::new();
    for lookup in 0..pages / 8 {
        let leaf = random.below(leaves as u64) as usize;
        let length = if lookup % SCAN_EVERY == 0 { SCAN_LEAVES } else { 1 };
        order.extend([0, 1 + (leaf / FAN_OUT) as u32]);
        order.extend((leaf..(leaf + length).min(leaves)).map(|leaf| (1 + inner + leaf) as u32));
    }
    order.retain(|page| (*page as usize) < pages);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_order_stays_within_the_data_and_reads_something() {
        for pattern in Pattern::value_variants() {
            for pages in [8, 1000, 4096] {
                let order = pattern.order(pages);
                assert!(!order.is_empty(), "{pattern:?} of {pages}");
                assert!(order.iter().all(|page| (*page as usize) < pages), "{pattern:?}");
            }
        }
    }

    #[test]
    fn orders_are_what_their_names_say() {
        assert_eq!(Pattern::Sequential.order(3), [0, 1, 2]);
        assert_eq!(Pattern::Backward.order(3), [2, 1, 0]);
        assert_eq!(Pattern::Strided.order(8), [0, 3, 6]);
        assert_eq!(Pattern::Strided.span(8), 8);
        assert_eq!(Pattern::Interleaved.order(6), [0, 3, 1, 4, 2, 5]);
    }

    #[test]
    fn a_tenth_of_the_pages_gets_most_of_a_zipf_order() {
        let mut reads = vec![0u32; 10_000];
        let order = Pattern::Zipf.order(reads.len());
        order.iter().for_each(|page| reads[*page as usize] += 1);
        reads.sort_unstable_by_key(|reads| std::cmp::Reverse(*reads));
        let popular: u32 = reads[..1000].iter().sum();
        assert!(popular as usize > order.len() / 2, "{popular} of {}", order.len());
    }
}
