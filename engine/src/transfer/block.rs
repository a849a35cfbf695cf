//! The pages of a block leave it together: taken to another address of ours, copied to frames, and dropped by the kernel
//! where nobody else holds them (`sys::alias`).
//!
//! The caller owns all pages of the block, also those that are not mapped: nobody maps a page there while the mapping
//! moves. What the kernel did not drop goes back to its place, the same physical page, and its copy is forgotten.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageIndex, PageRange};
use crate::state::blocks::Blocks;
use crate::state::core::{Core, Path};
use crate::state::node::Node;
use crate::state::page::{PageState, Word};
use crate::state::scratch::Unmapped;
use crate::sys::alias::Alias;
use crate::sys::pagemap::Look;
use crate::sys::{PAGE_BYTES, pages, process};
use crate::transfer::map::TRIES_MAX;
use crate::transfer::verdict::{Call, Extent, Verdict, verdict};
use userswap_policy::block::BLOCK_PAGES;
use userswap_policy::frames::FrameRun;

/// What became of a page that went back to its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Back {
    /// It is there.
    There,
    /// It is there, and something holds it.
    Held,
    /// It was not there, or its place has gone.
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
    /// is in `blocks.outcomes` then, and those that a device holds in `blocks.held`. The accounting is the caller's. False
    /// when nothing could be done.
    pub(crate) fn unmap_block_pages(
        &self,
        node: &Node,
        range: PageRange,
        blocks: &mut Blocks,
    ) -> bool {
        let Blocks { alias: Some(alias), seen, outcomes, frames, held, .. } = blocks else {
            unreachable!("the caller has opened it")
        };
        held.clear();
        if !self.takes(alias, range, &seen[..]) {
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
                outcomes[index] = self.keep(alias, page, (frame, copies), held);
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

    /// Takes a range away, if it is one mapping that may be written to, without guards of the kernel's: elsewhere a page that
    /// stays could not be taken back from the kernel.
    fn takes(&self, alias: &mut Alias, range: PageRange, seen: &[Word]) -> bool {
        let (address, bytes) = self.span_of(range);
        // A Clean one is protected all the same.
        let is_dirty = |word: &Word| matches!(word.state(), PageState::Resident { .. });
        let pages = (range.first..range.end()).zip(seen);
        let mut dirty = pages.filter(|(_, word)| is_dirty(word)).map(|(page, _)| page);
        let entries = self.uffd.pagemap.entries();
        let looked = entries.and_then(|entries| entries.look(address, range.count as usize));
        let permits = |look: Look| {
            // The kernel keeps what a forked child shares; here each of those takes a mapping to go back. Pages of zeros count as well.
            let is_shared = self.path == Path::Copy && look.shared > look.present / 2;
            !look.has_guard && !is_shared
        };
        dirty.next().is_some_and(|page| pages::unshare(self.page_address(page)))
            && looked.is_ok_and(permits)
            && alias.take(address, bytes).is_ok()
    }

    /// Copies the pages that have frames, and has the kernel drop them, as far as it does.
    fn copy_and_drop(&self, alias: &mut Alias, range: PageRange, out: &[Unmapped]) -> Copies {
        let pages = || {
            (0..).zip(out).filter_map(|(index, outcome)| match outcome {
                Unmapped::Frame(frame) => Some((range.first + index, *frame)),
                _ => None,
            })
        };
        let to = alias.place_of(self.page_address(range.first));
        let place = |(page, _): (PageIndex, _)| to + (page - range.first) as usize * PAGE_BYTES;
        if !alias.hold(pages().map(place)) {
            return Copies::None;
        }
        let given_up = alias.give_up();
        // As late as can be: a buffer that is being registered is pinned first, and counted then.
        let may_drop = given_up.is_ok() && alias.may_take();
        if !alias.copy_held(pages().map(|(_, frame)| self.frame_address(frame))) {
            process::die("userswap: a pipe of its own was taken away", 0);
        }
        if may_drop {
            // What the kernel refuses to drop stays, and is seen.
            let _ = alias.drop_given_up();
        }
        Copies::Exact
    }

    /// A page that was not dropped goes back to its place, with what was delivered into it; of one that has been dropped
    /// after all the copy counts.
    fn keep(
        &self,
        alias: &mut Alias,
        page: PageIndex,
        (frame, copies): (FrameIndex, Copies),
        held: &mut Vec<PageIndex>,
    ) -> Unmapped {
        if copies == Copies::Exact {
            match alias.keeps(self.page_address(page), &self.uffd.pagemap) {
                Some(true) => {}
                Some(false) => return Unmapped::Frame(frame),
                None => process::die("userswap: cannot look at a page that stays", 0),
            }
        }
        count(&self.counters.swpout_block_kept, 1);
        match self.bring_back(alias, page) {
            Back::Missing => Unmapped::Gone,
            Back::There => Unmapped::Stayed,
            Back::Held => {
                held.push(page);
                Unmapped::Stayed
            }
        }
    }

    /// Brings back a page that the caller owns, and that the kernel does not take for given up.
    fn bring_back(&self, alias: &Alias, page: PageIndex) -> Back {
        let to = self.page_address(page);
        if self.path == Path::Copy {
            // Whether something holds it is not known. It has the standing of a page that stayed: one of those that are tried
            // again soon would be copied while a device still writes to it.
            return match self.put_mapping_back(alias, to) {
                Back::Held => Back::There,
                back => back,
            };
        }
        let from = alias.place_of(to);
        let mut tries = 0;
        while let Err(stopped) = self.uffd.move_pages(to, from, PAGE_BYTES) {
            match verdict(Call::MoveBack, Extent::Page, stopped.error) {
                Verdict::Gone => return Back::Missing,
                Verdict::Again if tries < TRIES_MAX => {
                    tries += 1;
                    process::yield_now();
                }
                Verdict::Again | Verdict::Remap => return self.put_mapping_back(alias, to),
                _ => process::die("userswap: cannot move a page back", stopped.error),
            }
        }
        Back::There
    }

    /// A page that cannot be moved goes back with its mapping; until that is registered again it is there.
    fn put_mapping_back(&self, alias: &Alias, address: usize) -> Back {
        let put = self.put_backs.put(|| {
            // Where nothing is mapped any more, there is nothing to put it to.
            if !alias.protect_as_its_place(address)? {
                return Ok(Ok(Back::Missing));
            }
            alias.put_back(address)?;
            Ok(self.uffd.register(address, PAGE_BYTES).map(|()| Back::Held))
        });
        match put {
            Ok(Ok(back)) => back,
            Err(error) if self.path == Path::Copy && error.raw_os_error() == Some(libc::ENOMEM) => {
                self.copy_back(alias, address)
            }
            Ok(Err(error)) | Err(error) => {
                process::die("userswap: cannot put a page back", error.raw_os_error().unwrap_or(0))
            }
        }
    }

    /// Where the process may have no more mappings (vm.max_map_count), the page's content goes back, as it would have come
    /// from a frame.
    fn copy_back(&self, alias: &Alias, address: usize) -> Back {
        alias.open(address);
        match self.uffd.copy(address, alias.place_of(address), PAGE_BYTES) {
            Ok(()) => Back::There,
            Err(stopped) if stopped.error == libc::ENOENT => Back::Missing,
            Err(stopped) => process::die("userswap: cannot copy a page back", stopped.error),
        }
    }

    /// Which pages of a range that was taken away are there.
    fn look_at(&self, alias: &Alias, range: PageRange, there: &mut [bool]) {
        let (address, bytes) = self.span_of(range);
        let from = alias.place_of(address);
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
}
