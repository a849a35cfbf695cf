//! Unmapping pages: the content of resident pages that the caller owns gets to held frames, in runs.
//!
//! MOVE is the rule; the kernel refuses it for memory that is protected differently (EINVAL), and for pages that are
//! shared by fork or pinned for a device (EBUSY). A shared page is made our own by a write that changes nothing, and
//! moved then; a pinned page stays: copying it would lose what the device still writes.
use crate::base::counters::count;
use crate::base::index::{PageIndex, PageRange};
use crate::state::core::{Core, Path};
use crate::state::node::Node;
use crate::state::scratch::Unmapped;
use crate::sys::uffd::Protect;
use crate::sys::{PAGE_BYTES, mapping, pages, process};
use userswap_policy::frames::FrameRun;

impl Core {
    /// Unmaps consecutive resident pages that the caller owns in Leaving; one entry of `out` for each.
    pub(crate) fn unmap(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) {
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
    fn move_out(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) -> u32 {
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
        for (frame, result) in (run.first..).zip(&mut out[..moved as usize]) {
            *result = Unmapped::Frame(frame);
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
                let mut result = [Unmapped::Stayed];
                self.copy_out(node, page, &mut result);
                result[0]
            }
            // The program unmapped it past us (a raw system call): there is nothing left to save.
            libc::ENOENT => Unmapped::Stayed,
            _ => process::die("userswap: cannot move pages out", error),
        };
        moved + 1
    }

    /// The kernel said EBUSY: shared by fork, or pinned for a device.
    fn move_out_shared(&self, node: &Node, page: PageIndex) -> Unmapped {
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
                Unmapped::Frame(run.first)
            }
            Err(_) => {
                state.put_hole(run);
                count(&self.counters.pgreclaim_pinned, 1);
                Unmapped::Stayed
            }
        }
    }

    /// Unmaps pages by copying: protect against writing, copy to frames, drop the originals. Returns how many
    /// results it wrote, at least one.
    fn copy_out(&self, node: &Node, range: PageRange, out: &mut [Unmapped]) -> u32 {
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
            out[..frames.count as usize].fill(Unmapped::Stayed);
            return frames.count;
        }
        mapping::advise(address, bytes, libc::MADV_DONTNEED).expect("the arena is ours");
        count(&self.counters.pgcopy, u64::from(frames.count));
        let mut state = node.lock();
        state.on_moved_out(frames.count);
        state.on_released(frames.count);
        drop(state);
        for (frame, result) in (frames.first..).zip(&mut out[..frames.count as usize]) {
            *result = Unmapped::Frame(frame);
        }
        frames.count
    }
}
