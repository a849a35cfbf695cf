//! Watermarks: how much memory must stay available, and what to do when it does not.
//!
//! The kernel's rule: the minimum grows with the square root of memory, `low` and `high` lie one and two
//! gaps above it, and a mark is met only by *more* pages than it says. Which thread reclaims at which pressure
//! is left to the caller, and so is a reserve: subtract it from the available pages.

/// Bounds of the automatic minimum, in KiB. The kernel raised the upper one later; this is the rule of
/// the specification.
const MIN_FREE_KIB: core::ops::RangeInclusive<u64> = 128..=65536;

/// A scale is a share of managed pages in ten-thousandths.
const SCALE_WHOLE: u64 = 10_000;

/// Three marks in pages, `min` ≤ `low` ≤ `high`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Watermarks {
    /// At or below: the thread that allocates reclaims itself.
    pub min: u32,
    /// At or below: background reclaim starts.
    pub low: u32,
    /// Above: background reclaim stops.
    pub high: u32,
}

/// How short memory is, from plenty to none.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Pressure {
    /// Above `high`: background reclaim can stop.
    Balanced,
    /// Above `low`: nothing starts and nothing stops.
    Fine,
    /// At or below `low`: background reclaim must run.
    Low,
    /// At or below `min`: the thread that allocates reclaims first.
    Min,
}

/// The minimum of available memory for a machine of this size, in KiB.
pub fn min_free_kib(lowmem_kib: u64) -> u64 {
    lowmem_kib.saturating_mul(16).isqrt().clamp(*MIN_FREE_KIB.start(), *MIN_FREE_KIB.end())
}

impl Watermarks {
    /// Marks for `managed_pages` of which `min_pages` must stay; `scale` is the gap between two marks in
    /// ten-thousandths of the managed pages (the kernel's default is 10), at least a quarter of the
    /// minimum: 0 gives the rule before that tunable. Marks saturate; they may exceed a tiny node.
    pub fn new(min_pages: u64, managed_pages: u64, scale: u32) -> Self {
        let scaled = managed_pages.saturating_mul(u64::from(scale)) / SCALE_WHOLE;
        let gap = scaled.max(min_pages / 4);
        let low = min_pages.saturating_add(gap);
        let high = low.saturating_add(gap);
        let mark = |pages: u64| u32::try_from(pages).unwrap_or(u32::MAX);
        Self { min: mark(min_pages), low: mark(low), high: mark(high) }
    }

    /// A node's part of the machine's minimum, in proportion to the pages it manages.
    ///
    /// # Panics
    /// When the node manages more than the whole, or the whole is nothing.
    pub fn share(min_pages: u64, managed_pages: u64, managed_pages_total: u64) -> u64 {
        assert!(
            managed_pages <= managed_pages_total && managed_pages_total > 0,
            "a node manages {managed_pages} of {managed_pages_total} pages"
        );
        let share = u128::from(min_pages) * u128::from(managed_pages);
        (share / u128::from(managed_pages_total)) as u64
    }

    /// The pressure when this many pages are available.
    pub fn pressure(&self, available: u32) -> Pressure {
        if available > self.high {
            Pressure::Balanced
        } else if available > self.low {
            Pressure::Fine
        } else if available > self.min {
            Pressure::Low
        } else {
            Pressure::Min
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KIB_PER_GIB: u64 = 1 << 20;
    const PAGE_KIB: u64 = 4;

    fn marks(nodes: u64, gib_per_node: u64, scale: u32) -> Watermarks {
        let total_kib = nodes * gib_per_node * KIB_PER_GIB;
        let managed = gib_per_node * KIB_PER_GIB / PAGE_KIB;
        let min_pages = min_free_kib(total_kib) / PAGE_KIB;
        let share = Watermarks::share(min_pages, managed, managed * nodes);
        Watermarks::new(share, managed, scale)
    }

    #[test]
    fn marks_follow_the_vectors_of_the_specification() {
        // name, nodes, GiB per node, scale, min, low, high
        let vectors = [
            ("K1", 1, 1, 10, [1024, 1286, 1548]),
            ("K2", 1, 4, 10, [2048, 3096, 4144]),
            ("K3", 1, 16, 10, [4096, 8290, 12484]),
            ("K4", 2, 8, 10, [2048, 4145, 6242]),
            ("K8", 1, 1, 0, [1024, 1280, 1536]),
        ];
        for (name, nodes, gib, scale, [min, low, high]) in vectors {
            assert_eq!(marks(nodes, gib, scale), Watermarks { min, low, high }, "{name}");
        }
    }

    #[test]
    fn pressure_follows_the_vectors_of_the_specification() {
        let vectors = [
            ("K5", 1548, Pressure::Fine),
            ("K5", 1549, Pressure::Balanced),
            ("K6", 1286, Pressure::Low),
            ("K6", 1287, Pressure::Fine),
            ("K7", 1024, Pressure::Min),
            ("K7", 1025, Pressure::Low),
        ];
        for (name, available, pressure) in vectors {
            assert_eq!(marks(1, 1, 10).pressure(available), pressure, "{name}: {available}");
        }
    }

    #[test]
    fn the_minimum_is_bounded() {
        assert_eq!(min_free_kib(0), 128);
        assert_eq!(min_free_kib(u64::MAX), 65536);
    }

    proptest! {
        #[test]
        fn marks_are_in_order_and_pressure_falls_with_more_pages(
            min in any::<u64>(), managed in any::<u64>(), scale in any::<u32>(), at in any::<u32>(),
        ) {
            for shift in [0, 20, 40] {
                let marks = Watermarks::new(min >> shift, managed >> shift, scale);
                prop_assert!(marks.min <= marks.low && marks.low <= marks.high);
                prop_assert!(marks.pressure(at) >= marks.pressure(at.saturating_add(1)));
            }
        }
    }
}
