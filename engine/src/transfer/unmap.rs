//! Unmapping pages: the content of resident pages that the caller owns gets to held frames, in runs.
//!
//! MOVE is the rule; the kernel refuses it for memory that is protected differently (EINVAL), and for pages that are
//! shared by fork or pinned for a device (EBUSY). A shared page is made our own by a write that changes nothing, and
//! moved then; a pinned page stays: copying it would lose what the device still writes. What every other refusal means
//! is `verdict.rs`'s.
//!
//! A page that is not there, because the program took it away by a raw system call, is gone: it has no content, and
//! what it counted for is free. To leave it resident until it is touched, as was done once, holds budget for nothing,
//! and lets reclaim try it again and again.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::state::core::{Core, Path};
use crate::state::node::Node;
use crate::state::scratch::Unmapped;
use crate::state::staging::Stage;
use crate::sys::uffd::{Protect, Stopped};
use crate::sys::{PAGE_BYTES, mapping, pages, process};
use crate::transfer::drop::drop_memory;
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};
use userswap_policy::frames::FrameRun;

impl Core {
    /// Unmaps consecutive resident pages that the caller owns in Leaving; one entry of `out` for each.
    pub(crate) fn unmap(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) {
        assert_eq!(range.count as usize, out.len(), "one result for each page");
        let mut done = 0;
        while done < range.count {
            let rest = range.after(done);
            let results = &mut out[done as usize..];
            done += match self.path {
                Path::Move => self.move_out(node, rest, results),
                Path::Copy => self.copy_out(node, rest, results),
            };
        }
    }

    /// Moves out as many pages as go in one run; returns how many results it wrote, at least one.
    fn move_out(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) -> u32 {
        let Some(run) = self.holes(node, range.count) else {
            out[0] = Unmapped::Stayed;
            return 1;
        };
        let (to, from) = (self.frame_address(run.first), self.page_address(range.first));
        let (moved, error) = match self.uffd.move_pages(to, from, run.count as usize * PAGE_BYTES) {
            Ok(()) => (run.count, 0),
            Err(stopped) => ((stopped.done / PAGE_BYTES) as u32, stopped.error),
        };
        let rest = run.after(moved);
        let mut state = node.lock();
        state.on_moved_out(moved);
        if rest.count > 0 {
            state.put_hole(rest);
        }
        drop(state);
        for (frame, result) in (run.first..).zip(&mut out[..moved as usize]) {
            *result = Unmapped::Frame(frame);
        }
        if error == 0 {
            return moved;
        }
        let page = PageRange { first: range.first + moved, count: 1 };
        let result = &mut out[moved as usize];
        *result = match verdict(Call::MoveOut, Extent::of(rest.count), error) {
            // Only what is protected differently is copied.
            Verdict::PageByPage => {
                return moved + self.move_out(node, page, std::slice::from_mut(result));
            }
            Verdict::Unshare => self.move_out_shared(node, page.first),
            Verdict::CopyInstead => self.move_out_otherwise(node, page),
            Verdict::Stays => Unmapped::Stayed,
            Verdict::Gone => self.lose_sight(node),
            _ => process::die("userswap: cannot move pages out", error),
        };
        moved + 1
    }

    /// A page that is protected or locked otherwise than frames are. What cannot be written to is copied; of other memory only MOVE
    /// tells whether a device is writing to it.
    fn move_out_otherwise(&self, node: &Node, page: PageRange) -> Unmapped {
        if self.unshare(page.first) {
            match self.move_out_executable(node, page.first) {
                Some(outcome) => return outcome,
                // It has a key, is locked, or nothing may be executed.
                None if self.is_lending() => return Unmapped::Stayed,
                None => {}
            }
        }
        let mut outcome = Unmapped::Stayed;
        self.copy_out(node, page, std::slice::from_mut(&mut outcome));
        outcome
    }

    /// Makes a page that the caller owns the process's own by a write, which changes no byte of it and takes no fault; false if it
    /// may not be written to.
    fn unshare(&self, page: PageIndex) -> bool {
        if self.clean_pages.is_any() {
            self.unprotect(PageRange { first: page, count: 1 });
        }
        pages::unshare(self.page_address(page))
    }

    /// The kernel said EBUSY: shared by fork, or pinned for a device.
    fn move_out_shared(&self, node: &Node, page: PageIndex) -> Unmapped {
        let address = self.page_address(page);
        if self.unshare(page) {
            count(&self.counters.pgcopy, 1);
        }
        let Some(run) = self.holes(node, 1) else { return Unmapped::Stayed };
        let outcome = self.uffd.move_pages(self.frame_address(run.first), address, PAGE_BYTES);
        let mut state = node.lock();
        let Err(stopped) = outcome else {
            state.on_moved_out(1);
            return Unmapped::Frame(run.first);
        };
        state.put_hole(run);
        drop(state);
        let verdict = verdict(Call::MoveUnshared, Extent::Page, stopped.error);
        self.refused(node, verdict, stopped.error)
    }

    /// MOVE did not take a page alone, which is the process's own.
    fn refused(&self, node: &Node, verdict: Verdict, error: i32) -> Unmapped {
        match verdict {
            Verdict::Stays => {
                count(&self.counters.pgreclaim_pinned, 1);
                Unmapped::Stayed
            }
            Verdict::Gone => self.lose_sight(node),
            _ => process::die("userswap: cannot move a page out", error),
        }
    }

    /// Writable memory that MOVE does not take to frames goes by way of a place that may be executed as well, where nothing can
    /// be delivered to it any more; None if it cannot go there either.
    fn move_out_executable(&self, node: &Node, page: PageIndex) -> Option<Unmapped> {
        // Before the place is taken, as this may wait.
        let frame = self.frames_for_copy(node, 1);
        let stage = self.staging.enter(&self.uffd);
        let moved = stage.map(|stage| self.move_by(&stage, page, frame.first));
        let mut state = node.lock();
        if moved == Some(Ok(())) {
            state.on_moved_out(1);
            state.on_released(1);
            drop(state);
            count(&self.counters.pgcopy, 1);
            return Some(Unmapped::Frame(frame.first));
        }
        state.put_free(frame);
        drop(state);
        let error = moved?.err()?;
        match verdict(Call::MoveByStage, Extent::Page, error) {
            Verdict::Unlock => None,
            verdict => Some(self.refused(node, verdict, error)),
        }
    }

    /// Moves a page to the place, copies it to a frame from there, and drops it.
    fn move_by(&self, stage: &Stage<'_>, page: PageIndex, frame: FrameIndex) -> Result<(), i32> {
        let go = || self.uffd.move_pages(stage.address, self.page_address(page), PAGE_BYTES);
        let is_refused_as_locked = |stopped: &Stopped| {
            verdict(Call::MoveByStage, Extent::Page, stopped.error) == Verdict::Unlock
        };
        let mut moved = go();
        if moved.as_ref().is_err_and(is_refused_as_locked) {
            stage.unlock();
            moved = go();
        }
        moved.map_err(|stopped| stopped.error)?;
        pages::copy(self.frame_address(frame), stage.address, 1);
        drop_memory(Call::DropFrames, stage.address, PAGE_BYTES);
        Ok(())
    }

    /// A page that its owner found missing: its physical page went back to the kernel without us.
    fn lose_sight(&self, node: &Node) -> Unmapped {
        let mut state = node.lock();
        state.on_moved_out(1);
        state.on_released(1);
        Unmapped::Gone
    }

    /// Unmaps pages by copying: protect against writing, copy to frames, drop the originals. Returns how many
    /// results it wrote, at least one.
    fn copy_out(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) -> u32 {
        let frames = self.frames_for_copy(node, range.count);
        let out = &mut out[..frames.count as usize];
        self.copy_run_out(PageRange { count: frames.count, ..range }, frames.first, out);
        let mut state = node.lock();
        for (frame, result) in (frames.first..).zip(&*out) {
            if !matches!(result, Unmapped::Frame(_)) {
                state.put_free(FrameRun { first: frame, count: 1 });
            }
        }
        let left = out.iter().filter(|result| !matches!(result, Unmapped::Stayed)).count() as u32;
        state.on_moved_out(left);
        state.on_released(left);
        drop(state);
        let copied = out.iter().filter(|result| matches!(result, Unmapped::Frame(_))).count();
        count(&self.counters.pgcopy, copied as u64);
        frames.count
    }

    /// Copies pages to frames and drops them; the accounting is the caller's.
    fn copy_run_out(&self, range: PageRange, first_frame: FrameIndex, out: &mut [Unmapped]) {
        match self.copy_protected(range, first_frame) {
            Ok(()) => self.drop_copied(range, first_frame, out),
            Err(Verdict::PageByPage) => {
                for (index, result) in (0..).zip(out) {
                    let page = PageRange { first: range.first + index, count: 1 };
                    self.copy_run_out(page, first_frame + index, std::slice::from_mut(result));
                }
            }
            Err(Verdict::Gone) => out.fill(Unmapped::Gone),
            Err(Verdict::GoneIfMissing) if self.is_missing(range.first) => {
                out.fill(Unmapped::Gone);
            }
            Err(_) => {
                self.unprotect(range);
                out.fill(Unmapped::Stayed);
            }
        }
    }

    /// Protects pages against writing and copies them to frames; the verdict when the kernel refuses.
    fn copy_protected(&self, range: PageRange, first_frame: FrameIndex) -> Result<(), Verdict> {
        let (address, bytes) = self.span_of(range);
        let refused = |call, errno| match verdict(call, Extent::of(range.count), errno) {
            Verdict::Die => process::die("userswap: cannot copy pages out", errno),
            verdict => verdict,
        };
        self.uffd
            .write_protect(address, bytes, Protect::On)
            .map_err(|errno| refused(Call::Protect, errno))?;
        let to = self.frame_address(first_frame);
        self.own_memory.read(address, to, bytes).map_err(|errno| refused(Call::Read, errno))
    }

    /// Drops pages whose content is in frames, each alone where the kernel refuses the run: then part of it may be
    /// dropped already, and only its frames have the content.
    fn drop_copied(&self, range: PageRange, first_frame: FrameIndex, out: &mut [Unmapped]) {
        let (address, bytes) = self.span_of(range);
        let Err(errno) = mapping::drop_memory(address, bytes) else {
            (first_frame..).zip(out).for_each(|(frame, result)| *result = Unmapped::Frame(frame));
            return;
        };
        match verdict(Call::DropCopied, Extent::of(range.count), errno) {
            Verdict::PageByPage => {
                for (index, result) in (0..).zip(out) {
                    let page = PageRange { first: range.first + index, count: 1 };
                    self.drop_copied(page, first_frame + index, std::slice::from_mut(result));
                }
            }
            Verdict::Stays => {
                self.unprotect(range);
                out.fill(Unmapped::Stayed);
            }
            Verdict::Gone => out.fill(Unmapped::Gone),
            _ => process::die("userswap: cannot drop pages that were copied", errno),
        }
    }

    /// Lets pages that stay be written again, as far as they are still there.
    pub(crate) fn unprotect(&self, range: PageRange) {
        let (address, bytes) = self.span_of(range);
        let Err(errno) = self.uffd.write_protect(address, bytes, Protect::Off) else { return };
        match verdict(Call::Unprotect, Extent::of(range.count), errno) {
            Verdict::Gone => {}
            Verdict::PageByPage => {
                for first in range.first..range.end() {
                    self.unprotect(PageRange { first, count: 1 });
                }
            }
            _ => process::die("userswap: cannot lift a write protection", errno),
        }
    }

    /// Whether nothing is mapped at a page that the caller owns. Without /proc it counts as there.
    pub(crate) fn is_missing(&self, page: PageIndex) -> bool {
        matches!(self.uffd.pagemap.is_present(self.page_address(page)), Ok(false))
    }

    /// The address of pages, and their length in bytes.
    pub(super) fn span_of(&self, range: PageRange) -> (usize, usize) {
        (self.page_address(range.first), range.count as usize * PAGE_BYTES)
    }
}
