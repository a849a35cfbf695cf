//! Spare pages of the budget for copies: few pages that come in together are copied, as a move would have to flush the
//! other CPUs' TLBs for them, which takes many times as long as the copy. Where there are no spare pages, frames are
//! given back for them, many by one call.
use crate::base::index::PageRange;
use crate::base::limits::RUN_MAX;
use crate::state::core::Core;
use crate::state::frame_set::{FrameSet, RUNS_MAX};
use crate::state::node::Node;
use crate::sys::filters;
use crate::transfer::verdict::Call;
use std::ops::RangeInclusive;
use userswap_policy::frames::FrameRun;

/// Pages at most that are copied rather than moved.
const FEW: u32 = 2;

/// Frames at least that are worth a call to give them back.
const WORTH_LEAST: u32 = 16;

impl Core {
    /// Copies few pages to spare ones, and their frames are free again; returns how many: 0 when they are more than few or
    /// no spare pages are to be had, fewer than the range's when the mapping of the next one has gone.
    pub(super) fn copy_few(
        &self,
        call: Call,
        node: &Node,
        range: PageRange,
        frames: FrameRun,
    ) -> u32 {
        if range.count > FEW {
            return 0;
        }
        match self.obtain_spare(node, range.count) {
            true => self.copy_to_taken(call, node, range, frames),
            false => 0,
        }
    }

    /// Takes as many spare pages, which are made if need be, or none.
    pub(super) fn obtain_spare(&self, node: &Node, count: u32) -> bool {
        let takes = || self.take_spare(node, count..=count) == count;
        takes() || (self.make_spare(node) && takes())
    }

    /// Takes as many spare pages of the budget as there are of the most wanted, if they are as many as the least; else none.
    pub(super) fn take_spare(&self, node: &Node, wanted: RangeInclusive<u32>) -> u32 {
        let mut state = node.lock();
        let taken = state.spare.min(*wanted.end());
        if taken < *wanted.start() {
            return 0;
        }
        state.spare -= taken;
        taken
    }

    /// Copies held frames to pages for which spare pages were taken; returns how many, whose frames are free then.
    pub(super) fn copy_to_taken(
        &self,
        call: Call,
        node: &Node,
        range: PageRange,
        frames: FrameRun,
    ) -> u32 {
        let copied = self.copy_in(call, node, range, frames.first);
        let mut state = node.lock();
        state.resident += copied;
        state.spare += range.count - copied;
        if copied > 0 {
            state.put_free(FrameRun { first: frames.first, count: copied });
        }
        copied
    }

    /// Gives frames back to the kernel, with one flush for all of them; false when there are too few, or the node would come
    /// near its low watermark meanwhile.
    fn make_spare(&self, node: &Node) -> bool {
        let mut state = node.lock();
        if state.available() < state.watermarks.min + 2 * RUN_MAX {
            return false;
        }
        let missing = RUN_MAX.saturating_sub(state.pool.free());
        state.steal_cached(missing, &self.pages);
        let runs_most = if self.drops_scattered() { RUNS_MAX } else { 1 };
        let mut set = FrameSet::new();
        while set.runs().len() < runs_most
            && let Some(run) = state.take_free(RUN_MAX - set.pages())
        {
            assert!(set.push(run), "there is room for a run");
        }
        if set.pages() < WORTH_LEAST {
            set.runs().iter().for_each(|run| state.put_free(*run));
            return false;
        }
        drop(state);
        self.release_set(node, &set);
        true
    }

    /// Whether scattered frames may be dropped by one call: filters that the program makes may forbid it.
    fn drops_scattered(&self) -> bool {
        self.drops_scattered && !filters::are_expected()
    }
}
