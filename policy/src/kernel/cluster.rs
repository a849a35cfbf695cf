//! Readahead in the order of the device: an aligned block of slots around the one that is needed.
//!
//! Three numbers for all devices and programs together, as in the kernel since 2.6: the hits since the last
//! window, the slot of the last fault that had no hits, the last window. [`Scaling`] sizes the block by the
//! kernel's heuristic. [`Fixed`] always takes the largest one (the patch of 12 April 2020, v1): it neither
//! reads nor writes that state, while hits go on being counted, so the first window after switching back is
//! the largest.
use super::heuristic::History;
use crate::readahead::{Fault, Limits, ReadWindow, Readahead};
use crate::stream::Ahead;

/// Hits that a fresh system is credited with: the first window is a large one.
const HITS_FIRST: u32 = 4;

/// What the kernel's device-order policies share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Cluster {
    /// Its `previous` is the slot of the last fault that had no hits, on whatever device.
    history: History,
}

impl Default for Cluster {
    fn default() -> Self {
        Self::new()
    }
}

impl Cluster {
    /// As after boot: no fault yet, and four hits credited.
    pub const fn new() -> Self {
        Self { history: History { previous: 0, window: 0, hits: HITS_FIRST } }
    }

    /// A page that was read ahead has been used.
    pub fn count_hit(&mut self) {
        self.history.hits = self.history.hits.saturating_add(1);
    }

    fn scaled(&mut self, slot: u32, page_cluster: u8) -> u32 {
        let largest = 1 << page_cluster;
        if largest == 1 {
            return 1;
        }
        let before = self.history;
        let previous = if before.hits == 0 { slot } else { before.previous };
        let window = before.next_window(slot, largest);
        self.history = History { previous, window, hits: 0 };
        window
    }
}

/// The policy `scaling`: blocks that follow recent success.
#[derive(Debug)]
pub struct Scaling<'a>(pub &'a mut Cluster);

impl Readahead for Scaling<'_> {
    fn on_fault(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow {
        block_around(fault, self.0.scaled(fault.slot, limits.page_cluster))
    }

    fn on_hit(&mut self, _: u32, _: u64, _: &Limits) -> Option<Ahead> {
        self.0.count_hit();
        None
    }
}

/// The policy `fixed`: the largest block at every fault.
#[derive(Debug)]
pub struct Fixed<'a>(pub &'a mut Cluster);

impl Readahead for Fixed<'_> {
    fn on_fault(&mut self, fault: &Fault, limits: &Limits) -> ReadWindow {
        block_around(fault, 1 << limits.page_cluster)
    }

    fn on_hit(&mut self, _: u32, _: u64, _: &Limits) -> Option<Ahead> {
        self.0.count_hit();
        None
    }
}

/// The aligned block of `count` slots (a power of two) around the fault's, without the header and without
/// what lies after the device's end.
pub(crate) fn block_around(fault: &Fault, count: u32) -> ReadWindow {
    if count == 1 {
        return ReadWindow::One;
    }
    let low_bits = count - 1;
    let first = (fault.slot & !low_bits).max(1);
    let last = (fault.slot | low_bits).min(fault.slots - 1);
    ReadWindow::Slots { first, count: last - first + 1 }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::readahead::PAGE_CLUSTER_MAX;
    use crate::readahead::tests::{cluster as limits, fault};
    use proptest::prelude::*;

    /// First and last slot of a window.
    fn ends(window: ReadWindow, slot: u32) -> (u32, u32) {
        match window {
            ReadWindow::One => (slot, slot),
            ReadWindow::Slots { first, count } => (first, first + count - 1),
            other => panic!("{other:?} is not a block of slots"),
        }
    }

    /// A fault after some hits.
    fn step(state: &mut Cluster, page_cluster: u8, slot: u32, hits: u32) -> (u32, (u32, u32)) {
        let limits = limits(page_cluster);
        (0..hits).for_each(|_| assert_eq!(Scaling(state).on_hit(slot, 0, &limits), None));
        let window = Scaling(state).on_fault(&fault(0, slot), &limits);
        let size = if limits.page_cluster == 0 { 1 } else { state.history.window };
        (size, ends(window, slot))
    }

    /// Faults as (slot, hits before it, window, first slot), and the state's `previous` afterwards.
    fn trace(state: &mut Cluster, page_cluster: u8, table: &[(u32, u32, u32, u32)]) {
        for &(slot, hits, size, first) in table {
            let expected = (size, (first, first + size - 1));
            assert_eq!(step(state, page_cluster, slot, hits), expected, "slot {slot}");
        }
    }

    fn state(previous: u32, window: u32, hits: u32) -> Cluster {
        Cluster { history: History { previous, window, hits } }
    }

    fn without_hits() -> Cluster {
        state(0, 0, 0)
    }

    #[test]
    fn t1_without_success_the_window_halves_down_to_the_page_alone() {
        let mut state = Cluster::new();
        for (slot, size, last, previous) in [
            (1000, 8, 1007, 0),
            (5000, 4, 5003, 5000),
            (9000, 2, 9001, 9000),
            (13000, 1, 13000, 13000),
            (17000, 1, 17000, 17000),
        ] {
            assert_eq!(step(&mut state, 3, slot, 0), (size, (slot, last)));
            assert_eq!(state.history.previous, previous, "after {slot}");
        }
    }

    #[test]
    fn t2_and_t3_neighbours_get_two_pages_forwards_and_backwards() {
        trace(
            &mut without_hits(),
            3,
            &[(100, 0, 1, 100), (101, 0, 2, 100), (102, 0, 2, 102), (103, 0, 2, 102)],
        );
        trace(
            &mut without_hits(),
            3,
            &[(500, 0, 1, 500), (499, 0, 2, 498), (498, 0, 2, 498), (497, 0, 2, 496)],
        );
    }

    #[test]
    fn t4_with_every_page_used_the_window_stays_the_largest() {
        let mut state = Cluster::new();
        trace(&mut state, 3, &[(1000, 0, 8, 1000), (1008, 7, 8, 1008), (1016, 7, 8, 1016)]);
        assert_eq!(state.history.previous, 0);
    }

    #[test]
    fn t5_windows_double_with_success_and_halve_without() {
        trace(
            &mut Cluster::new(),
            5,
            &[
                (1000, 0, 8, 1000),
                (1008, 7, 16, 1008),
                (1024, 15, 32, 1024),
                (1056, 31, 32, 1056),
                (5000, 0, 16, 4992),
                (6000, 0, 8, 6000),
                (7000, 0, 4, 7000),
                (8000, 0, 2, 8000),
                (9000, 0, 1, 9000),
            ],
        );
    }

    #[test]
    fn t6_right_after_the_cap_was_lowered_windows_exceed_it() {
        let mut state = Cluster::new();
        trace(&mut state, 6, &[(4096, 60, 64, 4096)]);
        trace(
            &mut state,
            2,
            &[
                (9000, 0, 32, 8992),
                (9100, 0, 16, 9088),
                (9200, 0, 8, 9200),
                (9300, 0, 4, 9300),
                (9400, 0, 2, 9400),
            ],
        );
    }

    #[test]
    fn t7_a_page_cluster_of_zero_leaves_the_state_alone() {
        let mut state = without_hits();
        trace(&mut state, 3, &[(100, 0, 1, 100)]);
        trace(&mut state, 0, &[(101, 5, 1, 101)]);
        assert_eq!(state, self::state(100, 1, 5));
        trace(&mut state, 3, &[(102, 0, 8, 96)]);
    }

    #[test]
    fn t8_a_fault_with_hits_does_not_move_the_previous_slot() {
        let mut state = without_hits();
        trace(&mut state, 3, &[(100, 0, 1, 100), (300, 2, 4, 300)]);
        assert_eq!(state.history.previous, 100);
        trace(&mut state, 3, &[(101, 0, 2, 100), (102, 0, 2, 102)]);
    }

    #[test]
    fn t9_interleaved_streams_hide_each_other() {
        let mut state = without_hits();
        for (slot, size) in [(100, 1), (200, 1), (101, 1), (201, 1), (200, 2)] {
            assert_eq!(step(&mut state, 3, slot, 0).0, size, "slot {slot}");
        }
    }

    #[test]
    fn t10_to_t12_blocks_leave_out_the_header_and_what_lies_after_the_end() {
        for (slot, slots, expected) in
            [(3, 5000, (1, 7)), (998, 1000, (992, 999)), (1003, 1006, (1000, 1005))]
        {
            let window = block_around(&Fault { slots, ..fault(0, slot) }, 8);
            assert_eq!(ends(window, slot), expected);
        }
    }

    #[test]
    fn p1_to_p4_fixed_blocks_are_the_largest_whatever_happened() {
        for (page_cluster, size) in [1, 2, 4, 8, 16, 32, 64, 128, 256].into_iter().enumerate() {
            let limits = limits(page_cluster as u8);
            let window = Fixed(&mut Cluster::new()).on_fault(&fault(0, 1 << 20), &limits);
            assert_eq!(ends(window, 1 << 20), (1 << 20, (1 << 20) + size - 1));
        }
        let mut state = Cluster::new();
        for (page_cluster, slot, expected) in [
            (3, 1003, (1000, 1007)),
            (4, 1003, (992, 1007)),
            (8, 1003, (768, 1023)),
            (3, 5, (1, 7)),
            (3, 1003, (1000, 1007)),
        ] {
            let window = Fixed(&mut state).on_fault(&fault(0, slot), &limits(page_cluster));
            assert_eq!(ends(window, slot), expected);
            step(&mut state, 3, slot * 3, 0);
        }
    }

    #[test]
    fn p5_fixed_counts_hits_and_leaves_the_rest_of_the_state_alone() {
        let (mut state, limits) = (Cluster::new(), limits(3));
        for fault_number in 1..=5 {
            Fixed(&mut state).on_fault(&fault(0, fault_number * 100), &limits);
            (0..7).for_each(|page| assert_eq!(Fixed(&mut state).on_hit(page, 0, &limits), None));
        }
        assert_eq!(state, self::state(0, 0, 39));
        assert_eq!(step(&mut state, 3, 77_777, 0).0, 8);
    }

    #[test]
    fn p9_a_task_that_reads_fixed_blocks_leaves_the_others_heuristic_untouched() {
        let (mut state, mut alone) = (without_hits(), without_hits());
        for slot in [100, 5000, 5001, 9000, 8999] {
            let window = Fixed(&mut state).on_fault(&fault(0, slot), &limits(3));
            assert_eq!(ends(window, slot).1 - ends(window, slot).0, 7);
            assert_eq!(step(&mut state, 3, slot, 0), step(&mut alone, 3, slot, 0));
        }
    }

    proptest! {
        #[test]
        fn a_block_is_all_slots_that_differ_from_the_faults_in_the_low_bits_only(
            slots in 2u32..3000, offset in 0u32..3000, page_cluster in 0..=PAGE_CLUSTER_MAX,
        ) {
            let slot = 1 + offset % (slots - 1);
            let mut state = Cluster::new();
            let window = Fixed(&mut state)
                .on_fault(&Fault { slots, ..fault(0, slot) }, &limits(page_cluster));
            let (first, last) = ends(window, slot);
            for other in 0..slots + 2 {
                let expected = (1..slots).contains(&other)
                    && other >> page_cluster == slot >> page_cluster;
                prop_assert_eq!((first..=last).contains(&other), expected, "slot {}", other);
            }
        }

        #[test]
        fn the_state_is_what_a_diary_of_all_faults_says(
            steps in prop::collection::vec((1u32..200, 0u32..20, 0u8..7), 1..100),
        ) {
            let mut state = Cluster::new();
            // Every fault so far: slot, hits taken, window; the first entry stands for the start.
            let mut diary = vec![(0, 0, 0)];
            let mut hits_waiting = HITS_FIRST;
            for (slot, hits, page_cluster) in steps {
                let (size, (first, last)) = step(&mut state, page_cluster, slot, hits);
                prop_assert!((first..=last).contains(&slot));
                hits_waiting += hits;
                if page_cluster == 0 {
                    continue;
                }
                let previous = diary.iter().rev().find(|entry| entry.1 == 0).map_or(0, |e| e.0);
                let before = diary.last().map_or(0, |entry: &(u32, u32, u32)| entry.2);
                let history = History { previous, window: before, hits: hits_waiting };
                let expected = history.next_window(slot, 1 << page_cluster);
                prop_assert_eq!(size, expected);
                diary.push((slot, std::mem::take(&mut hits_waiting), expected));
            }
        }
    }
}
