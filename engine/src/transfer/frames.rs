//! Frames: held for pages that come or go, given back to the node or to the kernel.
//!
//! Which frames a caller may have is the node's to decide (`state::node`); here a grant becomes frames with physical
//! pages, or a whole set of them.
use crate::base::counters::count;
use crate::base::limits::RUN_MAX;
use crate::state::core::Core;
use crate::state::frame_set::{FrameSet, RUNS_MAX};
use crate::state::node::{Asker, Grant, Node};
use crate::sys::scattered::Scattered;
use crate::sys::{PAGE_BYTES, numa};
use crate::transfer::drop::drop_memory;
use crate::transfer::verdict::Call;
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;

impl Core {
    /// Gives the physical pages of held frames back to the kernel; the frames stay held, without them.
    pub(crate) fn release_memory(&self, frames: FrameRun) {
        let (address, bytes) = self.span_of_frames(frames);
        drop_memory(Call::DropFrames, address, bytes);
    }

    /// Gives held frames up and their physical pages back to the kernel, which pays debt or leaves spare pages. Several runs
    /// go by one call, which the caller has found permitted.
    pub(crate) fn release_set(&self, node: &Node, set: &FrameSet) {
        // Held until the memory is gone: as holes the frames could be filled in between.
        if set.runs().len() == 1 || !self.drops_at_once(set) {
            // What the kernel refuses is found out about run by run; to drop one twice does no harm.
            set.runs().iter().for_each(|run| self.release_memory(*run));
        }
        let mut state = node.lock();
        set.runs().iter().for_each(|run| state.put_hole(*run));
        state.on_released(set.pages());
    }

    /// False when the kernel does not drop all of them.
    fn drops_at_once(&self, set: &FrameSet) -> bool {
        let mut scattered = Scattered::<RUNS_MAX>::default();
        scattered.fill_runs(set.runs().iter().map(|run| self.span_of_frames(*run)));
        scattered.drop_from(0) == set.pages() as usize
    }

    /// Address and bytes of a run of frames.
    fn span_of_frames(&self, frames: FrameRun) -> (usize, usize) {
        (self.frame_address(frames.first), frames.count as usize * PAGE_BYTES)
    }

    /// From here on the program may lend pages to the kernel: see [`Self::replace_memory`].
    pub fn note_lending(&self) {
        self.is_lending.store(true, Ordering::Relaxed);
    }

    pub(super) fn is_lending(&self) -> bool {
        self.is_lending.load(Ordering::Relaxed)
    }

    /// Takes new physical pages for held frames before they are filled, if a page that has left may be one that the
    /// kernel still reads; true if it did, and the frames hold zeros.
    ///
    /// io_uring's SEND_ZC refers to pages without pinning them, and MOVE refuses pinned pages only. The old physical
    /// page lives as long as such a reference, with the bytes that were sent.
    pub(crate) fn replace_memory(&self, frames: FrameRun) -> bool {
        // Relaxed: a program lends only after it was noted, in a thread that a page's departure waits for.
        if !self.is_lending() {
            return false;
        }
        self.release_memory(frames);
        self.copy_zeros(Call::FillFrames, self.frame_address(frames.first), frames.count);
        count(&self.counters.frames_replaced, frames.count.into());
        true
    }

    /// 1 to `want` held frames to copy pages out to, on a loan if need be.
    pub(crate) fn frames_for_copy(&self, node: &Node, want: u32) -> FrameRun {
        let mut state = node.lock();
        let grant = state.grant(want, Asker::Reclaim, &self.pages).unwrap_or_else(|| {
            // Copying out needs room before it makes room: a loan, paid back with the first page dropped.
            state.debt += want;
            Grant::Spare(want)
        });
        drop(state);
        self.frames_of(node, grant)
    }

    /// Turns a grant into held frames with physical pages, one run; of spare pages what is over goes back.
    pub(crate) fn frames_of(&self, node: &Node, grant: Grant) -> FrameRun {
        let spare = match grant {
            Grant::Frames(run) => {
                self.replace_memory(run);
                return run;
            }
            Grant::Spare(count) => count,
        };
        let run = loop {
            let seen = self.shortage.freed.load(Ordering::Acquire);
            match self.holes(node, spare.min(RUN_MAX)) {
                Some(run) => break run,
                // All frames are being written.
                None => self.wait_for_freed(seen),
            }
        };
        self.copy_zeros(Call::FillFrames, self.frame_address(run.first), run.count);
        node.lock().spare += spare - run.count;
        run
    }

    /// Up to `want` held frames without physical pages; free ones give theirs back where there are no others, oldest second
    /// chances as well. None when all frames of the pool are in use.
    pub(crate) fn holes(&self, node: &Node, want: u32) -> Option<FrameRun> {
        let mut state = node.lock();
        if let Some(run) = state.take_holes(want) {
            return Some(run);
        }
        if state.pool.free() == 0 {
            state.steal_cached(want, &self.pages);
        }
        let run = state.take_free(want)?;
        drop(state);
        self.release_memory(run);
        node.lock().on_released(run.count);
        Some(run)
    }

    /// Adds frames to `set` until it holds `want`, as long as `asker` may have them without waiting.
    pub(crate) fn fill_set(&self, node: &Node, set: &mut FrameSet, want: u32, asker: Asker) {
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

    /// Of a set only the first `used` frames are needed: the others are free again.
    pub(crate) fn put_back_frames(&self, node: &Node, frames: &mut FrameSet, used: u32) {
        if used < frames.pages() {
            let rest = frames.split_off(used);
            let mut state = node.lock();
            rest.runs().iter().for_each(|run| state.put_free(*run));
        }
    }

    /// The kernel takes what it allocates for this thread from the node's memory, as long as this is held.
    pub(crate) fn prefer_node(&self, node: &Node) -> Option<numa::Preferred> {
        self.topology.memory_of(node.id).and_then(numa::Preferred::new)
    }
}
