//! Mapping pages: the content of held frames gets to missing pages that the caller owns, in runs.
//!
//! A run is moved. Few pages are copied, as a move has to flush the other CPUs' TLBs (`spare.rs`); so is what the kernel
//! refuses to move. Publishing the pages and putting them on their lists comes after, in `lru_add.rs`.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::base::limits::RUN_MAX;
use crate::state::core::{Core, Path};
use crate::state::frame_set::FrameSet;
use crate::state::node::{Grant, Node};
use crate::sys::uffd::Stopped;
use crate::sys::{PAGE_BYTES, pages, process};
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};
use userswap_policy::frames::FrameRun;

/// How often a call is repeated that the kernel refuses for the moment, with other threads let run in between.
pub(crate) const TRIES_MAX: u32 = 32;

impl Core {
    /// Maps held frames at pages that the caller owns in Filling; the frames are given up.
    pub(crate) fn map_in(&self, node: &Node, range: PageRange, frames: FrameRun) {
        let mapped = self.map_frames(Call::CopyIn, node, range, frames);
        assert_eq!(mapped, range.count, "content is mapped, or the process has ended");
    }

    /// As [`Self::map_in`], for the content that `call` copies; returns how many pages were mapped, which are fewer
    /// when the mapping of the next one has gone.
    fn map_frames(&self, call: Call, node: &Node, range: PageRange, frames: FrameRun) -> u32 {
        assert_eq!(range.count, frames.count, "one frame for each page");
        let is_moving = self.path == Path::Move;
        let few = if is_moving { self.copy_few(call, node, range, frames) } else { 0 };
        let (range, frames) = (range.after(few), frames.after(few));
        let moved = if is_moving { self.move_in(range.first, frames) } else { 0 };
        if moved > 0 {
            node.lock().on_moved_in(FrameRun { first: frames.first, count: moved });
        }
        let (rest, frames) = (range.after(moved), frames.after(moved));
        if rest.count == 0 {
            return few + moved;
        }
        let copied = self.copy_in(call, node, rest, frames.first);
        self.settle_copied(node, FrameRun { first: frames.first, count: copied });
        if copied < rest.count {
            node.lock().put_free(frames.after(copied));
        }
        few + moved + copied
    }

    /// Maps a held frame at a page that the caller owns in Filling, protected against writing; the frame is given up.
    /// False when the kernel refuses: then nothing has changed, and mapping the page unprotected finds out why.
    pub(crate) fn map_protected(&self, node: &Node, page: PageIndex, frame: FrameIndex) -> bool {
        let has_spare = self.obtain_spare(node, 1);
        let near = self.prefer_node(node);
        let copied =
            self.uffd.copy_protected(self.page_address(page), self.frame_address(frame)).is_ok();
        drop(near);
        node.lock().spare += u32::from(has_spare);
        if copied {
            self.settle_copied(node, FrameRun { first: frame, count: 1 });
        }
        copied
    }

    /// Maps pages of zeros at pages that the caller owns in Filling, up to the first whose mapping has gone; returns
    /// how many, and gives the rest of the grant back.
    pub(crate) fn map_zeros(&self, node: &Node, range: PageRange, grant: Grant) -> u32 {
        let Grant::Frames(frames) = grant else { return self.map_new_zeros(node, range) };
        if frames.count == 1 && self.path == Path::Move && self.take_spare(node, 1..=1) == 1 {
            node.lock().put_free(frames);
            return self.map_new_zeros(node, range);
        }
        if !self.replace_memory(frames) {
            pages::zero(self.frame_address(frames.first), frames.count);
        }
        self.map_frames(Call::CopyZeros, node, range, frames)
    }

    /// As [`Self::map_zeros`], with pages that are taken from the kernel.
    fn map_new_zeros(&self, node: &Node, range: PageRange) -> u32 {
        let _near = self.prefer_node(node);
        let done = self.copy_zeros(Call::CopyZeros, self.page_address(range.first), range.count);
        let mut state = node.lock();
        state.resident += done;
        state.spare += range.count - done;
        done
    }

    /// Copies zeros to missing pages, as many at a time as there are pages of zeros; returns how many, fewer than
    /// `count` when a mapping ends there.
    pub(crate) fn copy_zeros(&self, call: Call, to: usize, count: u32) -> u32 {
        let mut done = 0;
        while done < count {
            let part = (count - done).min(RUN_MAX);
            let copied =
                self.copy_pages(call, to + done as usize * PAGE_BYTES, self.zeros_address(), part);
            done += copied;
            if copied < part {
                break;
            }
        }
        done
    }

    /// Copies a held frame's content to a page that the caller owns in Filling; the frame stays held.
    pub(crate) fn map_copy(&self, node: &Node, page: PageIndex, frame: FrameIndex) {
        self.copy_in(Call::CopyIn, node, PageRange { first: page, count: 1 }, frame);
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
        let free = node.lock().pool.free();
        let taken = self.take_spare(node, 0..=free_most.saturating_sub(free).min(range.count));
        if taken == 0 {
            return 0;
        }
        let range = PageRange { first: range.first, count: taken };
        self.copy_to_taken(Call::CopyIn, node, range, frames)
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
            match verdict(Call::MoveIn, Extent::of(frames.count - moved), error) {
                Verdict::Again if tries < TRIES_MAX => {
                    tries += 1;
                    process::yield_now();
                }
                Verdict::Again | Verdict::CopyInstead => return moved,
                _ => process::die("userswap: cannot move pages in", error),
            }
        }
        moved
    }

    pub(super) fn copy_in(
        &self,
        call: Call,
        node: &Node,
        range: PageRange,
        first_frame: FrameIndex,
    ) -> u32 {
        let _near = self.prefer_node(node);
        count(&self.counters.pgcopy, u64::from(range.count));
        let (to, from) = (self.page_address(range.first), self.frame_address(first_frame));
        self.copy_pages(call, to, from, range.count)
    }

    /// Copies pages to missing ones, up to the first whose mapping has gone; returns how many.
    pub(crate) fn copy_pages(&self, call: Call, to: usize, from: usize, count: u32) -> u32 {
        let (mut done, mut at_once, mut tries) = (0, count, 0);
        while done < count {
            let distance = done as usize * PAGE_BYTES;
            let part = (count - done).min(at_once);
            let outcome =
                self.uffd.copy(to + distance, from + distance, part as usize * PAGE_BYTES);
            let Err(Stopped { done: bytes, error }) = outcome else {
                done += part;
                continue;
            };
            let copied = (bytes / PAGE_BYTES) as u32;
            done += copied;
            match verdict(call, Extent::of(part - copied), error) {
                Verdict::PageByPage => at_once = 1,
                Verdict::Gone => break,
                Verdict::Again if tries < TRIES_MAX => {
                    tries += 1;
                    process::yield_now();
                }
                _ => process::die("userswap: cannot copy pages in", error),
            }
        }
        done
    }

    /// After copying in: either there is room for the copies in the budget, or the frames go back. Until then frame
    /// and copy are both there: the budget is exceeded by at most a run of [`RUN_MAX`] pages, 256 KiB, for each thread
    /// that maps pages at this moment, and by nothing once their faults are answered.
    fn settle_copied(&self, node: &Node, frames: FrameRun) {
        let mut state = node.lock();
        state.resident += frames.count;
        let kept = state.spare.min(frames.count);
        state.spare -= kept;
        if kept > 0 {
            state.put_free(FrameRun { first: frames.first, count: kept });
        }
        drop(state);
        let rest = frames.after(kept);
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
