//! The nodes' watermarks: the rule of the specification, with the settings that may be changed while
//! running.
//!
//! `min_free` and `watermark_scale` are the kernel's (vm.min_free_kbytes, vm.watermark_scale_factor since
//! Linux 4.6), counted on the RAM budget instead of the machine's memory. `second_chance` is our own: a
//! share of the budget that is kept unmapped in frames beyond what the watermarks ask for.
use crate::base::limits::RESERVE;
use crate::sys::PAGE_BYTES;
use userswap_policy::watermark::{Watermarks, min_free_kib};

const PAGE_KIB: u64 = PAGE_BYTES as u64 / 1024;

/// A scale of 1000 is a tenth of the budget between two watermarks, as the kernel's largest.
pub const SCALE_MAX: u32 = 1000;

/// The kernel's 10 keeps one reclaim batch apart here; see ARCHITECTURE.md for the measurement.
pub const SCALE_DEFAULT: u32 = 300;

/// A second chance of more than half of the budget leaves too little mapped.
pub const SECOND_CHANCE_MAX: u32 = 50;

/// The settings that decide about the watermarks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct WatermarkSettings {
    /// Memory that must stay available, in KiB; None for the kernel's rule.
    pub min_free_kib: Option<u64>,
    /// Share of the budget between two watermarks, in 1/10000.
    pub scale: u32,
    /// Share of the budget on its second chance beyond that, in percent.
    pub second_chance_percent: u32,
}

impl Default for WatermarkSettings {
    fn default() -> Self {
        Self { min_free_kib: None, scale: SCALE_DEFAULT, second_chance_percent: 0 }
    }
}

impl WatermarkSettings {
    /// What must stay available of a budget, in KiB.
    pub fn min_free_kib(&self, budget_pages: u32) -> u64 {
        self.min_free_kib.unwrap_or_else(|| min_free_kib(u64::from(budget_pages) * PAGE_KIB))
    }

    /// The watermarks of a node with `pages` of a budget of `total` pages.
    pub fn of_node(&self, pages: u32, total: u32) -> Watermarks {
        let min_pages = self.min_free_kib(total) / PAGE_KIB;
        let share = Watermarks::share(min_pages, pages.into(), total.into());
        // Below a run reclaim by copying could not begin.
        let bare = Watermarks::new(share.max(RESERVE.into()), pages.into(), self.scale);
        let more = (u64::from(pages) * u64::from(self.second_chance_percent) / 100) as u32;
        let (low, high) = (bare.low.saturating_add(more), bare.high.saturating_add(more));
        Watermarks { min: bare.min, low, high }
    }

    /// As [`Self::of_node`], as far as the node has room for it: what was asked for on a larger budget takes no more
    /// than half of a smaller one, and is in force again when that grows.
    pub fn fitting(&self, pages: u32, total: u32) -> Watermarks {
        let asked = self.of_node(pages, total);
        let most = (pages / 2).max(RESERVE);
        if asked.high <= most {
            return asked;
        }
        let part = |mark: u32| (u64::from(mark) * u64::from(most) / u64::from(asked.high)) as u32;
        let min = part(asked.min).max(RESERVE);
        Watermarks { min, low: part(asked.low).max(min), high: most }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn watermarks_follow_the_kernels_rule_on_the_budget() {
        let kernels = WatermarkSettings { scale: 10, ..WatermarkSettings::default() };
        let pages = 1 << 18;
        assert_eq!(kernels.of_node(pages, pages), Watermarks { min: 1024, low: 1286, high: 1548 });
        let share = kernels.of_node(pages / 2, pages);
        assert_eq!(share, Watermarks { min: 512, low: 643, high: 774 });
    }

    #[test]
    fn the_second_chance_comes_on_top_and_the_minimum_is_a_run() {
        let settings =
            WatermarkSettings { min_free_kib: Some(4), scale: 100, second_chance_percent: 10 };
        assert_eq!(settings.of_node(4096, 4096), Watermarks { min: 64, low: 513, high: 553 });
        let most = WatermarkSettings { min_free_kib: Some(u64::MAX), ..settings };
        assert_eq!(most.of_node(4096, 4096).high, u32::MAX);
    }

    #[test]
    fn what_a_budget_has_no_room_for_takes_half_of_it() {
        let settings = WatermarkSettings { min_free_kib: Some(16 << 10), ..Default::default() };
        let roomy = settings.of_node(1 << 18, 1 << 18);
        assert_eq!(settings.fitting(1 << 18, 1 << 18), roomy);
        // 4096 pages are asked for, and 1024 between two marks.
        assert_eq!(settings.fitting(4096, 4096), Watermarks { min: 1365, low: 1706, high: 2048 });
        assert_eq!(settings.fitting(1024, 4096), Watermarks { min: 341, low: 426, high: 512 });
        let most = WatermarkSettings { min_free_kib: Some(u64::MAX), ..settings };
        assert_eq!(most.fitting(4096, 4096).high, 2048);
        for pages in [1, 64, 128, 512] {
            let marks = most.fitting(pages, pages);
            assert!(RESERVE <= marks.min && marks.min <= marks.low && marks.low <= marks.high);
        }
    }
}
