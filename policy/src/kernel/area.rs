//! Readahead in the order of addresses: neighbours of the page, wherever they are swapped to (Linux's
//! "VMA" readahead, since 4.14).
//!
//! All state of a region is one word that anybody may read and write at any time: the page of the last
//! fault or cache hit, the last window, the hits since. A lost update costs a better guess, no more. The
//! word is the kernel's but for its unit: pages instead of bytes above bit 12.
use super::heuristic::History;
use crate::readahead::{Fault, Limits, ReadWindow, Readahead};
use crate::stream::Ahead;

/// Windows have at most 2^5 pages: the word has six bits for them.
const PAGE_CLUSTER_CAP: u8 = 5;
/// Hits that six bits can count.
const HITS_MAX: u32 = 63;
/// Hits of a region in which no fault has been.
const HITS_FIRST: u32 = 4;
/// Pages below one page table (2 MiB), which a window does not leave.
const TABLE_PAGES: u32 = 512;

const HITS_MASK: u64 = HITS_MAX as u64;
const WINDOW_SHIFT: u32 = 6;
const WINDOW_MASK: u64 = 63;
const PAGE_SHIFT: u32 = 12;

/// A region's word; zero is one that has never been written.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Area(u64);

impl Area {
    /// From the word that is kept for the region.
    pub const fn new(word: u64) -> Self {
        Self(word)
    }

    /// The word to keep: page from bit 12, window from bit 6, hits below.
    pub const fn word(self) -> u64 {
        self.0
    }

    /// A page was found in a frame that carried no mark: only where the program is gets noted.
    pub fn on_lookup(&mut self, page: u32) {
        self.write(History { previous: page, ..self.read() });
    }

    fn read(self) -> History {
        if self.0 == 0 {
            return History { previous: 0, window: 0, hits: HITS_FIRST };
        }
        History {
            previous: (self.0 >> PAGE_SHIFT) as u32,
            window: (self.0 >> WINDOW_SHIFT & WINDOW_MASK) as u32,
            hits: (self.0 & HITS_MASK) as u32,
        }
    }

    fn write(&mut self, history: History) {
        let History { previous, window, hits } = history;
        self.0 = u64::from(previous) << PAGE_SHIFT
            | u64::from(window) << WINDOW_SHIFT
            | u64::from(hits.min(HITS_MAX));
    }
}

impl Readahead for Area {
    fn on_fault(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow {
        let largest = 1 << limits.page_cluster.min(PAGE_CLUSTER_CAP);
        if largest == 1 {
            return ReadWindow::One;
        }
        let before = self.read();
        let window = before.next_window(fault.page, largest);
        self.write(History { previous: fault.page, window, hits: 0 });
        if window == 1 { ReadWindow::One } else { around(fault, before.previous, window) }
    }

    fn on_hit(&mut self, page: u32, _: u64, _: &Limits) -> Option<Ahead> {
        let before = self.read();
        self.write(History { previous: page, hits: before.hits + 1, ..before });
        None
    }
}

/// `window` pages after, before or around the fault's, by the direction from `previous`, within the region
/// and the page table.
fn around(fault: &Fault, previous: u32, window: u32) -> ReadWindow {
    let before = if previous.checked_add(1) == Some(fault.page) {
        0
    } else if fault.page.checked_add(1) == Some(previous) {
        window - 1
    } else {
        (window - 1) / 2
    };
    let table = fault.page - fault.page % TABLE_PAGES;
    let (low, high) =
        (table.max(fault.region_first), table.saturating_add(TABLE_PAGES).min(fault.region_end));
    let first = fault.page.saturating_sub(before).max(low);
    // Counted from where the window would begin without the bounds.
    let end = i64::from(fault.page) - i64::from(before) + i64::from(window);
    let end = end.min(i64::from(high)) as u32;
    ReadWindow::Pages { first, count: end - first }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::tests::{cluster as limits, fault};
    use proptest::prelude::*;

    fn area(page: u32, window: u32, hits: u32) -> Area {
        let mut area = Area::default();
        area.write(History { previous: page, window, hits });
        area
    }

    /// A fault in the specification's region: the window that is stored, and first page and end.
    fn step(area: &mut Area, page_cluster: u8, page: u32) -> (u32, (u32, u32)) {
        let fault = Fault { region_first: 9000, region_end: 20_000, ..fault(page, 1) };
        match area.on_fault(&fault, &limits(page_cluster)) {
            ReadWindow::One => (1, (page, page + 1)),
            ReadWindow::Pages { first, count } => (area.read().window, (first, first + count)),
            other => panic!("{other:?} is not in address order"),
        }
    }

    #[test]
    fn a1_and_a2_a_first_window_lies_around_the_fault_and_the_next_one_after_it() {
        let mut fresh = Area::default();
        assert_eq!(step(&mut fresh, 3, 10_000), (8, (9997, 10_005)));
        for page in 10_001..=10_004 {
            assert_eq!(fresh.on_hit(page, 0, &limits(3)), None);
        }
        assert_eq!(fresh, area(10_004, 8, 4));
        assert_eq!(step(&mut fresh, 3, 10_005), (8, (10_005, 10_013)));
    }

    #[test]
    fn a3_to_a11_windows_follow_direction_and_success_within_the_bounds() {
        for (number, stored, page_cluster, page, expected) in [
            (3, (10_001, 8, 3), 3, 10_000, (8, (9993, 10_001))),
            (4, (12_000, 8, 0), 3, 10_000, (4, (9999, 10_003))),
            (5, (12_000, 4, 0), 3, 10_000, (2, (10_000, 10_002))),
            (6, (12_000, 2, 0), 3, 10_000, (1, (10_000, 10_001))),
            (7, (10_238, 8, 6), 3, 10_239, (8, (10_239, 10_240))),
            (8, (12_000, 8, 5), 3, 9001, (8, (9000, 9006))),
            (9, (19_997, 8, 5), 3, 19_998, (8, (19_998, 20_000))),
            (10, (12_000, 32, 60), 8, 10_000, (32, (9985, 10_017))),
            (11, (9999, 0, 0), 3, 10_000, (2, (10_000, 10_002))),
            (11, (10_001, 0, 0), 3, 10_000, (2, (9999, 10_001))),
        ] {
            let (stored_page, window, hits) = stored;
            let mut area = area(stored_page, window, hits);
            assert_eq!(step(&mut area, page_cluster, page), expected, "A{number}");
            let stored = area.read();
            assert_eq!((stored.previous, stored.hits), (page, 0), "A{number}");
        }
    }

    #[test]
    fn a12_a_page_cluster_of_zero_leaves_the_word_alone() {
        for mut area in [Area::default(), area(12_000, 8, 3)] {
            let before = area;
            assert_eq!(step(&mut area, 0, 10_000), (1, (10_000, 10_001)));
            assert_eq!(area, before);
        }
    }

    #[test]
    fn a13_hits_stop_at_63() {
        let mut area = area(12_000, 8, 0);
        (0..64).for_each(|_| assert_eq!(area.on_hit(12_001, 0, &limits(3)), None));
        assert_eq!(area.read(), History { previous: 12_001, window: 8, hits: 63 });
    }

    #[test]
    fn a_lookup_without_a_mark_moves_the_page_and_counts_nothing() {
        let mut fresh = Area::default();
        fresh.on_lookup(500);
        assert_eq!(fresh, area(500, 0, HITS_FIRST));
        let mut used = area(12_000, 8, 3);
        used.on_lookup(12_005);
        assert_eq!(used, area(12_005, 8, 3));
    }

    proptest! {
        #[test]
        fn a_word_keeps_what_was_written(page in 1u32.., window in 0u32..=32, hits in 0u32..=63) {
            let area = area(page, window, hits);
            prop_assert_eq!(area.read(), History { previous: page, window, hits });
            prop_assert_eq!(Area::new(area.word()), area);
        }

        #[test]
        fn a_window_is_every_page_of_the_plain_one_that_region_and_table_have(
            first in 0u32..2000, length in 1u32..2000, offset in 0u32..2000,
            previous in 0u32..4100, power in 1u32..6,
        ) {
            let page = first + offset % length;
            let fault = Fault { region_first: first, region_end: first + length, ..fault(page, 1) };
            let size = 1i64 << power;
            let at = i64::from(page);
            let plain = match at - i64::from(previous) {
                1 => at..at + size,
                -1 => at - size + 1..at + 1,
                _ => at - (size - 1) / 2..at - (size - 1) / 2 + size,
            };
            let ReadWindow::Pages { first: low, count } = around(&fault, previous, 1 << power) else {
                panic!("not in address order")
            };
            for other in 0..4100 {
                let expected = plain.contains(&i64::from(other))
                    && (first..first + length).contains(&other)
                    && other / TABLE_PAGES == page / TABLE_PAGES;
                prop_assert_eq!((low..low + count).contains(&other), expected, "page {}", other);
            }
        }
    }
}
