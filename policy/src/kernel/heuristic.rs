//! The kernel's readahead heuristic, shared by device order and address order: the window follows recent
//! success (`__swapin_nr_pages` in Linux's mm/swap_state.c, unchanged from 2014 to 2026).
//!
//! Pages used of what was read ahead (hits) widen the window to the next power of two; none of them narrow
//! it to the page alone, or two for a neighbour of the previous fault. The window never shrinks to less
//! than half of the previous one. That rule comes after the cap, as in the kernel: right after the
//! largest window was made smaller, a window may still exceed it.

/// What the windows so far have led to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct History {
    /// Where the fault before was: a slot or a page, whatever the order counts.
    pub previous: u32,
    /// Pages of the last window; 0 before the first one.
    pub window: u32,
    /// Pages read ahead that were used since.
    pub hits: u32,
}

impl History {
    /// The number of pages for a fault at `current`, mostly at most `largest`; always a power of two if
    /// `largest` and the last window are.
    pub fn next_window(self, current: u32, largest: u32) -> u32 {
        let wanted = match self.hits {
            0 if self.previous.abs_diff(current) == 1 => 2,
            0 => 1,
            // The cap first, so that no number of hits overflows; it is a power of two itself.
            hits => hits.saturating_add(2).max(4).min(largest).next_power_of_two(),
        };
        wanted.min(largest).max(self.window / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn r1_to_r15_give_the_kernels_windows() {
        for (number, (input, expected)) in [
            ((0, 1000, 4, 8, 0), 8),
            ((100, 101, 0, 8, 0), 2),
            ((100, 99, 0, 8, 0), 2),
            ((100, 100, 0, 8, 0), 1),
            ((100, 500, 0, 8, 8), 4),
            ((100, 101, 0, 8, 8), 4),
            ((100, 500, 1, 8, 0), 4),
            ((100, 500, 3, 8, 0), 8),
            ((100, 500, 6, 32, 0), 8),
            ((100, 500, 7, 32, 0), 16),
            ((100, 500, 14, 32, 0), 16),
            ((100, 500, 15, 32, 0), 32),
            ((100, 500, 3, 2, 0), 2),
            ((100, 500, 0, 4, 64), 32),
            ((0, 1, 0, 8, 0), 2),
        ]
        .into_iter()
        .enumerate()
        {
            let (previous, current, hits, largest, window) = input;
            let found = History { previous, window, hits }.next_window(current, largest);
            assert_eq!(found, expected, "R{}", number + 1);
        }
    }

    #[test]
    fn hits_select_the_power_of_two_of_the_table() {
        for (hits, expected) in [(1..=2, 4), (3..=6, 8), (7..=14, 16), (15..=30, 32), (31..=62, 64)]
        {
            for hits in hits {
                let history = History { previous: 0, window: 0, hits };
                assert_eq!(history.next_window(9, 1 << 20), expected, "{hits} hits");
            }
        }
    }

    /// The rules as the specification counts them.
    fn by_the_rules(history: History, current: u32, largest: u32) -> u32 {
        let History { previous, window: last, hits } = history;
        let mut window = u64::from(hits) + 2;
        if hits == 0 {
            let (p, c) = (i64::from(previous), i64::from(current));
            window = if c == p + 1 || c == p - 1 { 2 } else { 1 };
        } else {
            let mut power = 4;
            while power < window {
                power *= 2;
            }
            window = power;
        }
        window.min(largest.into()).max(u64::from(last) / 2) as u32
    }

    proptest! {
        #[test]
        fn windows_follow_the_rules_at_any_numbers(
            previous: u32, distance in -3i32..4, hits in prop_oneof![0u32..70, any::<u32>()],
            largest in 0u32..32, last in 0u32..32,
        ) {
            let current = previous.wrapping_add_signed(distance);
            let (largest, history) = (1 << largest, History { previous, window: 1 << last, hits });
            let found = history.next_window(current, largest);
            if previous.abs_diff(current) < 4 {
                prop_assert_eq!(found, by_the_rules(history, current, largest));
            }
            prop_assert!(found.is_power_of_two());
        }
    }
}
