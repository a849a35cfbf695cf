//! Moving pages between regions and frames.
//!
//! In: held frames are moved to missing pages that the caller owns, in runs; a single one is copied. Out: resident
//! pages that the caller owns go to held frames, in runs. MOVE is the rule; the kernel refuses it for memory that
//! is protected differently (EINVAL), and for pages that are shared by fork or pinned for a device (EBUSY).
//! A shared page is made our own by an atomic write that changes nothing, and moved then; a pinned page
//! stays: copying it would lose what the device still writes.
use crate::arena::PageRange;
use crate::core::{Core, Path, RUN_MAX};
use crate::counters::count;
use crate::node::{Asker, FrameSet, Grant, Node, RUNS_MAX};
use crate::page::{FrameIndex, PageIndex};
use crate::sys::uffd::{Protect, Stopped};
use crate::sys::{PAGE_BYTES, mapping, pages, process};
use userswap_policy::frames::FrameRun;

/// Tries to move a frame in that a device has just filled: the kernel lets go of it a moment after the read
/// has returned.
const BUSY_RETRIES: u32 = 32;

/// Frames that are worth a call to give them back, for copies of single pages.
const RUN_LEAST: u32 = 16;

/// Where a page went that was taken out.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TakenOut {
    /// Its content is in this held frame.
    Frame(FrameIndex),
    /// It had to stay.
    Stayed,
}

impl Core {
    /// Maps held frames at pages that the caller owns in Filling; the frames are given up.
    pub fn map_in(&self, node: &Node, range: PageRange, frames: FrameRun) {
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
        self.release_memory(run);
        let mut state = node.lock();
        state.put_hole(run);
        state.on_released(run.count);
        true
    }

    /// Maps pages of zeros, taken from the kernel, at pages that the caller owns in Filling.
    pub fn map_zeros(&self, node: &Node, range: PageRange) {
        let _near = self.prefer_node(node);
        let mut done = 0;
        while done < range.count {
            let count = (range.count - done).min(crate::core::RUN_MAX);
            self.copy_or_abort(self.page_address(range.first + done), self.zeros_address(), count);
            done += count;
        }
        node.lock().resident += range.count;
    }

    /// Copies a held frame's content to a page that the caller owns in Filling; the frame stays held.
    pub fn map_copy(&self, node: &Node, page: PageIndex, frame: FrameIndex) {
        self.copy_in(node, PageRange { first: page, count: 1 }, frame);
        node.lock().resident += 1;
    }

    /// Copies held frames to pages that the caller owns in Filling, as long as the budget has spare pages and
    /// the node no more than `free_most` free frames; returns how many pages were copied, whose frames are
    /// free then.
    pub fn copy_to_spare(
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

    fn copy_or_abort(&self, to: usize, from: usize, count: u32) {
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

    /// Gives the physical pages of held frames back to the kernel.
    pub fn release_memory(&self, frames: FrameRun) {
        let (address, bytes) =
            (self.frame_address(frames.first), frames.count as usize * PAGE_BYTES);
        mapping::advise(address, bytes, libc::MADV_DONTNEED)
            .expect("the pool is ours to give back");
    }

    /// Takes out consecutive resident pages that the caller owns in Leaving; one entry of `out` for each.
    pub fn take_out(&self, node: &Node, range: PageRange, out: &mut [TakenOut]) {
        assert_eq!(range.count as usize, out.len(), "one result for each page");
        let mut done = 0;
        while done < range.count {
            let rest = PageRange { first: range.first + done, count: range.count - done };
            let results = &mut out[done as usize..];
            done += match self.path {
                Path::Move => self.move_out(node, rest, results),
                Path::Copy => self.copy_out(node, rest, results),
            };
        }
    }

    /// Moves out as many pages as go in one run; returns how many results it wrote, at least one.
    fn move_out(&self, node: &Node, range: PageRange, out: &mut [TakenOut]) -> u32 {
        let run = node.lock().take_holes(range.count);
        let (to, from) = (self.frame_address(run.first), self.page_address(range.first));
        let (moved, error) = match self.uffd.move_pages(to, from, run.count as usize * PAGE_BYTES) {
            Ok(()) => (run.count, 0),
            Err(stopped) => ((stopped.done / PAGE_BYTES) as u32, stopped.error),
        };
        let rest = FrameRun { first: run.first + moved, count: run.count - moved };
        let mut state = node.lock();
        state.on_moved_out(moved);
        if rest.count > 0 {
            state.put_hole(rest);
        }
        drop(state);
        for (place, result) in out[..moved as usize].iter_mut().enumerate() {
            *result = TakenOut::Frame(run.first + place as u32);
        }
        if error == 0 {
            return moved;
        }
        let page = PageRange { first: range.first + moved, count: 1 };
        out[moved as usize] = match error {
            // The run crosses a boundary of kernel mappings: page by page, and only what is protected
            // differently is copied.
            libc::EINVAL if range.count - moved > 1 => {
                return moved
                    + self.move_out(node, page, &mut out[moved as usize..=moved as usize]);
            }
            libc::EBUSY => self.move_out_shared(node, page.first),
            libc::EINVAL => {
                let mut result = [TakenOut::Stayed];
                self.copy_out(node, page, &mut result);
                result[0]
            }
            // The program unmapped it past us (a raw system call): there is nothing left to save.
            libc::ENOENT => TakenOut::Stayed,
            _ => process::die("userswap: cannot move pages out", error),
        };
        moved + 1
    }

    /// The kernel said EBUSY: shared by fork, or pinned for a device.
    fn move_out_shared(&self, node: &Node, page: PageIndex) -> TakenOut {
        let address = self.page_address(page);
        if pages::unshare(address) {
            count(&self.counters.pgcopy, 1);
        }
        let run = node.lock().take_holes(1);
        let outcome = self.uffd.move_pages(self.frame_address(run.first), address, PAGE_BYTES);
        let mut state = node.lock();
        match outcome {
            Ok(()) => {
                state.on_moved_out(1);
                TakenOut::Frame(run.first)
            }
            Err(_) => {
                state.put_hole(run);
                count(&self.counters.pgreclaim_pinned, 1);
                TakenOut::Stayed
            }
        }
    }

    /// Takes pages out by copying: protect against writing, copy to frames, drop the originals.
    fn copy_out(&self, node: &Node, range: PageRange, out: &mut [TakenOut]) -> u32 {
        let frames = self.frames_for_copy(node, range.count);
        let (address, bytes) = (self.page_address(range.first), frames.count as usize * PAGE_BYTES);
        let protected = self.uffd.write_protect(address, bytes, Protect::On).is_ok();
        if !protected
            || process::read_own(address, self.frame_address(frames.first), bytes).is_err()
        {
            if protected {
                self.uffd
                    .write_protect(address, bytes, Protect::Off)
                    .expect("it was just protected");
            }
            node.lock().put_free(frames);
            out[..frames.count as usize].fill(TakenOut::Stayed);
            return frames.count;
        }
        mapping::advise(address, bytes, libc::MADV_DONTNEED).expect("the arena is ours");
        count(&self.counters.pgcopy, u64::from(frames.count));
        let mut state = node.lock();
        state.on_moved_out(frames.count);
        state.on_released(frames.count);
        drop(state);
        for (place, result) in out[..frames.count as usize].iter_mut().enumerate() {
            *result = TakenOut::Frame(frames.first + place as u32);
        }
        frames.count
    }

    /// Frames to copy pages out to, on a loan if need be.
    pub fn frames_for_copy(&self, node: &Node, want: u32) -> FrameRun {
        let mut state = node.lock();
        let grant = state.grant(want, Asker::Reclaim, &self.pages).unwrap_or_else(|| {
            // Copying out needs room before it makes room: a loan, paid back with the first page dropped.
            state.debt += want;
            Grant::Spare(want)
        });
        drop(state);
        self.frames_of(node, grant)
    }

    /// Turns a grant into held frames with physical pages.
    pub fn frames_of(&self, node: &Node, grant: Grant) -> FrameRun {
        let spare = match grant {
            Grant::Frames(run) => return run,
            Grant::Spare(count) => count,
        };
        let run = node.lock().take_holes(spare.min(crate::core::RUN_MAX));
        self.copy_or_abort(self.frame_address(run.first), self.zeros_address(), run.count);
        node.lock().spare += spare - run.count;
        run
    }

    /// Adds frames to `set` until it holds `want`, as long as `asker` may have them without waiting.
    pub fn fill_set(&self, node: &Node, set: &mut FrameSet, want: u32, asker: Asker) {
        while set.pages() < want && set.runs().len() < RUNS_MAX {
            let mut state = node.lock();
            let grant = state.grant(want - set.pages(), asker, &self.pages);
            let unused = std::mem::take(&mut state.unused);
            let is_sinking = state.is_sinking();
            drop(state);
            count(&self.counters.swap_ra_wasted, unused);
            if is_sinking {
                // Before readahead has to stop: it takes what nobody reclaims for otherwise.
                self.wake_reclaim(node);
            }
            let Some(grant) = grant else { return };
            assert!(set.push(self.frames_of(node, grant)), "there was room for a run");
        }
    }

    /// Maps the frames of `set` from `place` on at pages that the caller owns in Filling.
    pub fn map_set(&self, node: &Node, range: PageRange, set: &FrameSet, place: u32) {
        let mut done = 0;
        while done < range.count {
            let run = set.run_at(place + done, range.count - done);
            self.map_in(node, PageRange { first: range.first + done, count: run.count }, run);
            done += run.count;
        }
    }
}
