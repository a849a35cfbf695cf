//! The pages of a block leave it together: taken to another address of ours, copied to frames, and dropped by the kernel
//! where nobody else holds them (`sys::alias`).
//!
//! The caller owns all pages of the block, also those that are not mapped: nobody maps a page there while the mapping
//! moves. What the kernel did not drop goes back to its place, the same physical page, and its copy is forgotten.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::state::blocks::Blocks;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::scratch::Unmapped;
use crate::sys::alias::Alias;
use crate::sys::{PAGE_BYTES, pages, process};
use crate::transfer::map::TRIES_MAX;
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};
use userswap_policy::block::BLOCK_PAGES;
use userswap_policy::frames::FrameRun;

/// What became of a page that went back to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Back {
    /// It is there, and stays until somebody takes it out.
    There,
    /// It is there, not to be written to; the kernel may take it for given up.
    Doubtful,
    /// The kernel has dropped it, or its place has gone.
    Missing,
}

/// How far the copies of a block can be relied on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Copies {
    /// There are none, and nothing was given up.
    None,
    /// What has been dropped was copied before.
    Exact,
}

impl Core {
    /// Unmaps those pages of a block that `blocks.seen` says are mapped, to the frames of `blocks`; what has become of each
    /// is in `blocks.outcomes` then. The accounting is the caller's. False when nothing could be done.
    pub(crate) fn unmap_block_pages(
        &self,
        node: &Node,
        range: PageRange,
        blocks: &mut Blocks,
    ) -> bool {
        let Blocks { alias: Some(alias), seen, outcomes, frames, .. } = blocks else {
            unreachable!("the caller has opened it")
        };
        if !self.takes(alias, range) {
            frames.drain(..).for_each(|frame| self.put_frame(node, frame));
            return false;
        }
        outcomes.fill(Unmapped::Stayed);
        let mut there = [false; BLOCK_PAGES as usize];
        self.look_at(alias, range, &mut there);
        for (index, page) in (0..).zip(range.first..range.end()) {
            let is_mapped = seen[index].state().mapped().is_some();
            match (is_mapped, there[index]) {
                (true, true) => {
                    let frame = frames.pop().expect("there is a frame for each mapped page");
                    outcomes[index] = Unmapped::Frame(frame);
                }
                (true, false) => outcomes[index] = Unmapped::Gone,
                // Put there past us, by a raw mremap.
                (false, true) => _ = self.bring_back(alias, page),
                (false, false) => {}
            }
        }
        frames.drain(..).for_each(|frame| self.put_frame(node, frame));
        let copies = self.copy_and_drop(alias, range, &outcomes[..]);
        self.look_at(alias, range, &mut there);
        for (index, page) in (0..).zip(range.first..range.end()) {
            if let (Unmapped::Frame(frame), true) = (outcomes[index], there[index]) {
                outcomes[index] = self.keep(alias, page, frame, copies);
                if outcomes[index] != Unmapped::Frame(frame) {
                    self.put_frame(node, frame);
                }
            }
        }
        if let Err(error) = alias.clear() {
            process::die("userswap: cannot clear address space", error.raw_os_error().unwrap_or(0));
        }
        true
    }

    /// Takes a range away, if it is one mapping that may be written to, without guards of the kernel's.
    fn takes(&self, alias: &Alias, range: PageRange) -> bool {
        let (address, bytes) = self.bytes_of(range);
        let guards = self.uffd.pagemap.entries();
        let guards = guards.and_then(|entries| entries.has_guard(address, range.count as usize));
        matches!(guards, Ok(false)) && alias.take(address, bytes).is_ok()
    }

    /// Copies the pages that have frames, and has the kernel drop them, as far as it does.
    fn copy_and_drop(&self, alias: &mut Alias, range: PageRange, out: &[Unmapped]) -> Copies {
        let (address, bytes) = self.bytes_of(range);
        let pages = || {
            (0..).zip(out).filter_map(|(index, outcome)| match outcome {
                Unmapped::Frame(frame) => Some((range.first + index, *frame)),
                _ => None,
            })
        };
        let to = alias.address_for(address);
        let place = |(page, _): (PageIndex, _)| to + (page - range.first) as usize * PAGE_BYTES;
        // Where the program may not write, a page that stays could not be taken back from the kernel.
        let writes = pages().next().is_some_and(|first| pages::unshare(place(first)));
        if !writes || !alias.hold(pages().map(place)) {
            return Copies::None;
        }
        let given_up = alias.give_up(address, bytes);
        // As late as can be: a buffer that is being registered is pinned first, and counted then.
        let may_drop = given_up.is_ok() && alias.may_take();
        if !alias.copy_held(pages().map(|(_, frame)| self.frame_address(frame))) {
            process::die("userswap: a pipe of its own was taken away", 0);
        }
        if may_drop {
            // What the kernel refuses to drop stays, and is seen.
            let _ = alias.drop_given_up(address, bytes);
        }
        Copies::Exact
    }

    /// A page that was not dropped stays in its place; where it has gone from there after all, its copy counts.
    fn keep(&self, alias: &Alias, page: PageIndex, frame: FrameIndex, copies: Copies) -> Unmapped {
        count(&self.counters.swpout_block_kept, 1);
        let dropped = match copies {
            Copies::Exact => Unmapped::Frame(frame),
            Copies::None => Unmapped::Gone,
        };
        match (self.bring_back(alias, page), copies) {
            (Back::Missing, _) => dropped,
            (Back::There, _) | (Back::Doubtful, Copies::None) => Unmapped::Stayed,
            (Back::Doubtful, Copies::Exact) => {
                let mut out = [Unmapped::Stayed];
                self.copy_run_out(PageRange { first: page, count: 1 }, frame, &mut out);
                if out[0] == Unmapped::Gone { dropped } else { out[0] }
            }
        }
    }

    /// Brings back a page that the caller owns. The kernel may still take it for given up: a write that changes nothing
    /// ends that, if it is not too late.
    fn bring_back(&self, alias: &Alias, page: PageIndex) -> Back {
        let to = self.page_address(page);
        let from = alias.address_for(to);
        let mut tries = 0;
        while let Err(stopped) = self.uffd.move_pages(to, from, PAGE_BYTES) {
            match verdict(Call::MoveBack, Extent::Page, stopped.error) {
                Verdict::Gone => return Back::Missing,
                Verdict::Again if tries < TRIES_MAX => {
                    tries += 1;
                    process::yield_now();
                }
                Verdict::Remap => {
                    self.put_mapping_back(alias, to);
                    break;
                }
                Verdict::CopyInstead => {
                    let copied = self.copy_pages(Call::CopyZeros, to, from, 1);
                    return if copied == 1 { Back::There } else { Back::Missing };
                }
                _ => process::die("userswap: cannot move a page back", stopped.error),
            }
        }
        match pages::unshare(to) {
            true => Back::There,
            false if self.is_missing(page) => Back::Missing,
            false => Back::Doubtful,
        }
    }

    /// A page that a device holds goes back with its mapping; until that is registered again it is there.
    fn put_mapping_back(&self, alias: &Alias, address: usize) {
        let outcome =
            alias.put_back(address).and_then(|()| self.uffd.register(address, PAGE_BYTES));
        if let Err(error) = outcome {
            process::die("userswap: cannot put a page back", error.raw_os_error().unwrap_or(0));
        }
    }

    /// Which pages of a range that was taken away are there.
    fn look_at(&self, alias: &Alias, range: PageRange, there: &mut [bool]) {
        let (address, bytes) = self.bytes_of(range);
        let from = alias.address_for(address);
        there.fill(false);
        let looked = self.uffd.pagemap.for_each_present(from, from + bytes, |start, end| {
            there[(start - from) / PAGE_BYTES..(end - from) / PAGE_BYTES].fill(true);
        });
        if let Err(error) = looked {
            process::die("userswap: cannot look at pages", error.raw_os_error().unwrap_or(0));
        }
    }

    fn put_frame(&self, node: &Node, frame: FrameIndex) {
        node.lock().put_free(FrameRun { first: frame, count: 1 });
    }

    fn bytes_of(&self, range: PageRange) -> (usize, usize) {
        (self.page_address(range.first), range.count as usize * PAGE_BYTES)
    }
}
