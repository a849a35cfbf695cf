//! Mapping pages: the content of held frames gets to missing pages that the caller owns, in runs.
//!
//! A run is moved. A page alone is copied, as a move has to flush the other CPUs' TLBs; so is what the kernel refuses
//! to move. Publishing the pages and putting them on their lists comes after, in `lru_add.rs`.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::base::limits::RUN_MAX;
use crate::state::core::{Core, Path};
use crate::state::frame_set::FrameSet;
use crate::state::node::Node;
use crate::sys::uffd::Stopped;
use crate::sys::{PAGE_BYTES, process};
use userswap_policy::frames::FrameRun;

/// Tries to move a frame in that a device has just filled: the kernel lets go of it a moment after the read
/// has returned.
const BUSY_RETRIES: u32 = 32;

/// Frames at least that are worth a call to give them back, for copies of single pages.
const RUN_LEAST: u32 = 16;

impl Core {
    /// Maps held frames at pages that the caller owns in Filling; the frames are given up.
    pub(crate) fn map_in(&self, node: &Node, range: PageRange, frames: FrameRun) {
        assert_eq!(range.count, frames.count, "one frame for each page");
        if range.count == 1 && self.path == Path::Move && self.copy_single(node, range, frames) {
            return;
        }
        let moved = if self.path == Path::Move { self.move_in(range.first, frames) } else { 0 };
        if moved > 0 {
            node.lock().on_moved_in(FrameRun { first: frames.first, count: moved });
        }
        if moved < range.count {
            let rest = PageRange { first: range.first + moved, count: range.count - moved };
            self.copy_in(node, rest, frames.first + moved);
            self.settle_copied(node, FrameRun { first: frames.first + moved, count: rest.count });
        }
    }

    /// A page alone is copied to a spare page, and its frame is free again: a move would have to flush the
    /// other CPUs' TLBs for it, which takes many times as long as the copy. False when no spare page is to be had.
    fn copy_single(&self, node: &Node, range: PageRange, frames: FrameRun) -> bool {
        let copied = self.copy_to_spare(node, range, frames, u32::MAX);
        copied == 1
            || (self.spare_a_run(node) && self.copy_to_spare(node, range, frames, u32::MAX) == 1)
    }

    /// Gives a run of frames back to the kernel, one flush for all of them; false when there is none, or the node
    /// would come near its low watermark meanwhile.
    fn spare_a_run(&self, node: &Node) -> bool {
        let mut state = node.lock();
        if state.available() < state.watermarks.low + RUN_MAX {
            return false;
        }
        let missing = RUN_MAX.saturating_sub(state.pool.free());
        state.steal_cached(missing, &self.pages);
        let Some(run) = state.take_free(RUN_MAX) else { return false };
        if run.count < RUN_LEAST {
            state.put_free(run);
            return false;
        }
        drop(state);
        self.release_run(node, run);
        true
    }

    /// Maps pages of zeros, taken from the kernel, at pages that the caller owns in Filling.
    pub(crate) fn map_zeros(&self, node: &Node, range: PageRange) {
        let _near = self.prefer_node(node);
        let mut done = 0;
        while done < range.count {
            let count = (range.count - done).min(RUN_MAX);
            self.copy_or_abort(self.page_address(range.first + done), self.zeros_address(), count);
            done += count;
        }
        node.lock().resident += range.count;
    }

    /// Copies a held frame's content to a page that the caller owns in Filling; the frame stays held.
    pub(crate) fn map_copy(&self, node: &Node, page: PageIndex, frame: FrameIndex) {
        self.copy_in(node, PageRange { first: page, count: 1 }, frame);
        node.lock().resident += 1;
    }

    /// Copies held frames to pages that the caller owns in Filling, as long as the budget has spare pages and
    /// the node no more than `free_most` free frames; returns how many pages were copied, whose frames are
    /// free then.
    pub(crate) fn copy_to_spare(
        &self,
        node: &Node,
        range: PageRange,
        frames: FrameRun,
        free_most: u32,
    ) -> u32 {
        let mut state = node.lock();
        let wanted = free_most.saturating_sub(state.pool.free()).min(range.count);
        let copied = state.spare.min(wanted);
        state.spare -= copied;
        drop(state);
        if copied > 0 {
            self.copy_in(node, PageRange { first: range.first, count: copied }, frames.first);
            let mut state = node.lock();
            state.resident += copied;
            state.put_free(FrameRun { first: frames.first, count: copied });
        }
        copied
    }

    /// Moves frames to pages; returns how many, fewer when the kernel refuses the next one.
    fn move_in(&self, first: PageIndex, frames: FrameRun) -> u32 {
        let mut moved = 0;
        let mut tries = 0;
        while moved < frames.count {
            let to = self.page_address(first + moved);
            let from = self.frame_address(frames.first + moved);
            let bytes = (frames.count - moved) as usize * PAGE_BYTES;
            let Err(Stopped { done, error }) = self.uffd.move_pages(to, from, bytes) else {
                return frames.count;
            };
            moved += (done / PAGE_BYTES) as u32;
            match error {
                libc::EBUSY if tries < BUSY_RETRIES => {
                    tries += 1;
                    process::yield_now();
                }
                libc::EBUSY | libc::EINVAL => return moved,
                _ => process::die("userswap: cannot move pages in", error),
            }
        }
        moved
    }

    fn copy_in(&self, node: &Node, range: PageRange, first_frame: FrameIndex) {
        let _near = self.prefer_node(node);
        count(&self.counters.pgcopy, u64::from(range.count));
        self.copy_or_abort(
            self.page_address(range.first),
            self.frame_address(first_frame),
            range.count,
        );
    }

    /// Copies pages to missing ones. Where the kernel refuses, nothing could serve the fault: the program ends.
    pub(crate) fn copy_or_abort(&self, to: usize, from: usize, count: u32) {
        let Err(stopped) = self.uffd.copy(to, from, count as usize * PAGE_BYTES) else { return };
        if stopped.error != libc::ENOENT || count == 1 {
            process::die("userswap: cannot copy pages in", stopped.error);
        }
        // The kernel copies within one of its mappings only; the program may have given parts of the run
        // other protections, and so mappings of their own.
        let done = (stopped.done / PAGE_BYTES) as u32;
        for page in done..count {
            let distance = page as usize * PAGE_BYTES;
            self.copy_or_abort(to + distance, from + distance, 1);
        }
    }

    /// After copying in: either there is room for the copies in the budget, or the frames go back.
    fn settle_copied(&self, node: &Node, frames: FrameRun) {
        let mut state = node.lock();
        state.resident += frames.count;
        let kept = state.spare.min(frames.count);
        state.spare -= kept;
        if kept > 0 {
            state.put_free(FrameRun { first: frames.first, count: kept });
        }
        drop(state);
        let rest = FrameRun { first: frames.first + kept, count: frames.count - kept };
        if rest.count > 0 {
            self.release_memory(rest);
            node.lock().put_hole(rest);
        }
    }

    /// Maps the frames of `set` from index `first` on at pages that the caller owns in Filling.
    pub(crate) fn map_set(&self, node: &Node, range: PageRange, set: &FrameSet, first: u32) {
        let mut done = 0;
        while done < range.count {
            let run = set.run_at(first + done, range.count - done);
            self.map_in(node, PageRange { first: range.first + done, count: run.count }, run);
            done += run.count;
        }
    }
}
