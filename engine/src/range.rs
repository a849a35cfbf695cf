//! What a program asks for a range of pages: drop, prefetch, page out, pin, unpin, move elsewhere.
use crate::ahead::{Span, Want};
use crate::arena::PageRange;
use crate::arrival::Arrival;
use crate::core::{Core, RUN_MAX};
use crate::counters::count;
use crate::error::Error;
use crate::node::{Node, RESERVE};
use crate::page::{NodeId, PINS_MAX, PageIndex, PageState, Slot, Word};
use crate::reclaim::Scratch;
use crate::sys::{PAGE_BYTES, futex, mapping, pages, process};
use crate::transfer::TakenOut;
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;

/// Why a page is taken from its place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Purpose {
    /// Nobody wants its content any more.
    Drop,
    /// It goes elsewhere, every byte of it, if possible with its physical page.
    Keep,
    /// It goes elsewhere as a copy: a device or a pipe does not let go of the physical page.
    Copy,
}

/// Whether there is more to do.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Progress {
    More,
    Ended,
}

/// How long who must have a page's content waits for its device before looking again.
const WAIT_NS: u64 = 1_000_000;
/// How often it looks: a transfer takes milliseconds, what is held for longer is held by a pipe, which only
/// reads.
const KEEP_TRIES: u32 = 200;

/// A page taken from its place, with what it held.
#[derive(Clone, Copy, Debug)]
enum Content {
    None,
    Lost,
    Frame(u32, Option<Slot>),
    Slot(Slot),
}

impl Core {
    /// Forgets the content of a range: nothing is written, pages read as zeros afterwards.
    pub fn drop_range(&self, range: PageRange) {
        self.gate.enter();
        self.readahead.forget(range.first);
        let mut page = range.first;
        while page < range.end() {
            page = match self.claim_resident_run(page, range.end()) {
                Some((run, node)) => self.drop_resident(run, self.node(node)),
                None => {
                    let content = self.take_content(page, Purpose::Drop);
                    self.discard(content);
                    page + 1
                }
            };
        }
        count(&self.counters.pgdrop, u64::from(range.count));
        self.announce_freed();
        self.gate.leave();
    }

    /// Owns consecutive resident pages in Leaving, pinned or not: their owner wants them gone.
    fn claim_resident_run(&self, first: PageIndex, end: PageIndex) -> Option<(PageRange, NodeId)> {
        let most = (end - first).min(RUN_MAX);
        let mut node = None;
        let claimed = (0..most).take_while(|place| {
            let seen = self.pages.load(first + place);
            let PageState::Resident { slot, node: here, pins } = seen.state() else { return false };
            let claimed = *node.get_or_insert(here) == here
                && self.pages.claim(first + place, seen, PageState::Leaving { slot });
            if claimed {
                self.forget_pins(pins);
            }
            claimed
        });
        let count = claimed.count() as u32;
        Some((PageRange { first, count }, node.filter(|_| count > 0)?))
    }

    /// Moves dropped pages to frames: they serve the next fault without the kernel's allocator.
    fn drop_resident(&self, run: PageRange, node: &Node) -> PageIndex {
        let mut taken = [TakenOut::Stayed; RUN_MAX as usize];
        let taken = &mut taken[..run.count as usize];
        self.take_out(node, run, taken);
        for (page, outcome) in (run.first..run.end()).zip(taken) {
            let PageState::Leaving { slot } = self.pages.state(page) else {
                unreachable!("page {page} is owned in Leaving")
            };
            match *outcome {
                TakenOut::Frame(frame) => self.discard(Content::Frame(frame, slot)),
                TakenOut::Stayed => self.drop_in_place(node, page, slot),
            }
            // Before publishing: whoever fills the page next puts it on a list again.
            node.lock().lists.remove(page);
            self.publish(page, PageState::Untouched);
        }
        run.end()
    }

    /// A page that would not move (pinned, or gone past us): the kernel drops it.
    fn drop_in_place(&self, node: &Node, page: PageIndex, slot: Option<Slot>) {
        mapping::advise(self.page_address(page), PAGE_BYTES, libc::MADV_DONTNEED)
            .expect("the arena is ours");
        let mut state = node.lock();
        state.on_moved_out(1);
        state.on_released(1);
        drop(state);
        if let Some(slot) = slot {
            self.free_slot(slot);
        }
    }

    /// Takes what a page holds, leaving it Untouched; waits while somebody owns it.
    fn take_content(&self, page: PageIndex, purpose: Purpose) -> Content {
        let mut tries = 0;
        loop {
            tries += 1;
            let purpose = if tries > KEEP_TRIES && purpose == Purpose::Keep {
                Purpose::Copy
            } else {
                purpose
            };
            let freed = self.freed.load(Ordering::Acquire);
            let seen = self.pages.load(page);
            let taken = match seen.state() {
                PageState::Untouched => return Content::None,
                PageState::Filling { .. } | PageState::Leaving { .. } => {
                    self.pages.wait_owned(page);
                    continue;
                }
                // The device needs the frame until it has written it.
                PageState::Writing { .. } if purpose != Purpose::Drop => {
                    futex::wait_for(&self.freed, freed, WAIT_NS);
                    continue;
                }
                PageState::Resident { .. } => self.take_resident(page, seen, purpose),
                _ => self.take_unmapped(page, seen),
            };
            if let Some(content) = taken {
                return content;
            }
        }
    }

    /// Takes the content of a page that is not mapped; None if its word has changed.
    fn take_unmapped(&self, page: PageIndex, seen: Word) -> Option<Content> {
        if let PageState::Cached { frame, slot, .. } = seen.state() {
            let taken = self.uncache(page, seen, (frame, PageState::Untouched));
            return taken.then_some(Content::Frame(frame, slot));
        }
        if seen.state() == PageState::Lost {
            return self.take_lost(page, seen).then_some(Content::Lost);
        }
        if !self.pages.claim(page, seen, PageState::Untouched) {
            return None;
        }
        Some(match seen.state() {
            PageState::Swapped { slot } => Content::Slot(slot),
            PageState::Writing { frame, slot } => {
                self.orphan(frame, slot);
                Content::None
            }
            state => {
                unreachable!("{state:?} is not a state without an owner and without a mapping")
            }
        })
    }

    /// Takes the poison off a lost page; owned meanwhile, so that nobody fills it before.
    fn take_lost(&self, page: PageIndex, seen: Word) -> bool {
        let claimed = self.pages.claim(page, seen, PageState::Leaving { slot: None });
        if claimed {
            mapping::advise(self.page_address(page), PAGE_BYTES, libc::MADV_DONTNEED)
                .expect("the arena is ours");
            self.publish(page, PageState::Untouched);
        }
        claimed
    }

    /// Ends a page's second chance; false if its word has changed. Its frame is the caller's then.
    pub fn uncache(&self, page: PageIndex, seen: Word, (frame, next): (u32, PageState)) -> bool {
        // Both under the lock: the list's length counts as available, and whoever brings the page in again
        // puts it on a list behind us.
        let mut state = self.node_of_frame(frame).lock();
        let claimed = self.pages.claim(page, seen, next);
        if claimed {
            state.lists.remove(page);
        }
        claimed
    }

    /// Takes one resident page out; None if its word has changed, or if it is to be tried again because a
    /// device or system call holds the page.
    fn take_resident(&self, page: PageIndex, seen: Word, purpose: Purpose) -> Option<Content> {
        let PageState::Resident { slot, pins, node } = seen.state() else { return None };
        if !self.pages.claim(page, seen, PageState::Leaving { slot }) {
            return None;
        }
        let node = self.node(node);
        let mut taken = [TakenOut::Stayed];
        self.take_out(node, PageRange { first: page, count: 1 }, &mut taken);
        let content = match taken[0] {
            TakenOut::Frame(frame) => Content::Frame(frame, slot),
            TakenOut::Stayed if purpose == Purpose::Keep => {
                self.publish(page, PageState::Resident { slot, pins, node: node.id });
                node.lock().enlist(&self.pages, page, 1);
                futex::wait_for(&self.freed, self.freed.load(Ordering::Acquire), WAIT_NS);
                return None;
            }
            TakenOut::Stayed if purpose == Purpose::Copy => {
                let frame = self.copy_of(node, page);
                self.drop_in_place(node, page, None);
                Content::Frame(frame, slot)
            }
            TakenOut::Stayed => {
                self.drop_in_place(node, page, slot);
                Content::None
            }
        };
        self.forget_pins(pins);
        node.lock().lists.remove(page);
        self.publish(page, PageState::Untouched);
        Some(content)
    }

    /// A held frame with a copy of a page that the caller owns in Leaving.
    fn copy_of(&self, node: &Node, page: PageIndex) -> u32 {
        let frames = self.frames_for_copy(node, 1);
        let address = self.page_address(page);
        process::read_own(address, self.frame_address(frames.first), PAGE_BYTES)
            .expect("a page of a region that is moved can be read");
        frames.first
    }

    fn discard(&self, content: Content) {
        match content {
            Content::None | Content::Lost => {}
            Content::Slot(slot) => self.free_slot(slot),
            Content::Frame(frame, slot) => {
                self.node_of_frame(frame).lock().put_free(FrameRun { first: frame, count: 1 });
                if let Some(slot) = slot {
                    self.free_slot(slot);
                }
            }
        }
    }

    /// Brings a range in, as far as the budget goes without reclaiming; the program need not wait for it.
    pub fn prefetch_range(&self, range: PageRange) {
        let span = Span::Run { first: range.first, count: range.count, step: 1 };
        let mut want = Want::new(span, self.node_here().id);
        loop {
            self.gate.enter();
            let progress = self.prefetch_some(&mut want);
            self.gate.leave();
            if progress == Progress::Ended {
                return;
            }
        }
    }

    /// Reads the next batch of a want.
    fn prefetch_some(&self, want: &mut Want) -> Progress {
        let Some((mut batch, behind)) = self.next_of(want) else { return Progress::Ended };
        while batch.len() > 0 {
            let Some(started) = self.start_ahead(&batch, want) else { return Progress::Ended };
            if let Some(job) = started.job {
                self.read_now(job);
            }
            batch.keep(started.entries, batch.len() - started.entries);
        }
        want.done = behind;
        Progress::More
    }

    /// Takes a range out to the devices; pinned pages stay.
    pub fn page_out_range(&self, range: PageRange) {
        let mut page = range.first;
        while page < range.end() {
            let batch = PageRange { first: page, count: RUN_MAX.min(range.end() - page) };
            self.gate.enter();
            self.wait_for_owners(batch);
            let mut scratch = self.scratch().lock();
            self.page_out_batch(batch, &mut scratch);
            drop(scratch);
            self.gate.leave();
            page = batch.end();
        }
    }

    /// Waits for pages on their way, before anything is held that their owners could need.
    pub(crate) fn wait_for_owners(&self, range: PageRange) {
        (range.first..range.end()).for_each(|page| self.pages.wait_owned(page));
    }

    /// Inside the gate: takes out at most a batch of pages, writes what is dirty, and frees the frames.
    pub(crate) fn page_out_batch(&self, range: PageRange, scratch: &mut Scratch) -> u32 {
        let mut put_back = 0;
        for node in &self.nodes {
            scratch.count = 0;
            (range.first..range.end()).for_each(|page| scratch_claim(self, node.id, page, scratch));
            put_back += self.take_out_claimed(node, scratch);
        }
        self.release_cached(range);
        put_back
    }

    /// Pages on their second chance give up their frames.
    pub(crate) fn release_cached(&self, range: PageRange) {
        for page in range.first..range.end() {
            let seen = self.pages.load(page);
            let PageState::Cached { frame, slot: Some(slot), .. } = seen.state() else { continue };
            if self.uncache(page, seen, (frame, PageState::Swapped { slot })) {
                let freed = FrameRun { first: frame, count: 1 };
                self.node_of_frame(frame).lock().put_free(freed);
            }
        }
        self.announce_freed();
    }

    /// Brings a range in and keeps it there until unpinned; pins nest.
    ///
    /// # Errors
    /// More than the budget can hold beside what must stay available; nothing is pinned then.
    pub fn pin_range(&self, range: PageRange) -> Result<(), Error> {
        self.gate.enter();
        let most = self.usable_pages();
        self.gate.leave();
        // Counted before anything is pinned, so that two callers cannot both take the last room.
        let before = self.pins.fetch_add(range.count, Ordering::Relaxed);
        if before + range.count > most {
            self.forget_pins(range.count);
            return Err(Error::PinTooLarge(range.count, most.saturating_sub(before)));
        }
        for page in range.first..range.end() {
            while !self.try_pin(page) {
                // Not there: the access brings it in, and it is tried again before it can leave.
                pages::touch(self.page_address(page), 1);
            }
        }
        Ok(())
    }

    /// Pages that may be pinned: reclaim, readahead and writes under way need the others.
    fn usable_pages(&self) -> u32 {
        let budget: u32 = self.nodes.iter().map(|node| node.lock().budget).sum();
        budget - (budget / 4).max(8 * RESERVE).min(budget)
    }

    fn forget_pins(&self, pins: u32) {
        self.pins.fetch_sub(pins, Ordering::Relaxed);
    }

    /// Pins a page that is resident.
    fn try_pin(&self, page: PageIndex) -> bool {
        let seen = self.pages.load(page);
        match seen.state() {
            PageState::Resident { slot, pins, node } => {
                assert!(pins < PINS_MAX, "page {page} is pinned too often");
                self.pages.claim(page, seen, PageState::Resident { slot, pins: pins + 1, node })
            }
            _ => false,
        }
    }

    /// Takes one pin off each page of a range; pages without are left alone.
    pub fn unpin_range(&self, range: PageRange) {
        self.gate.enter();
        self.unpin_pages(range);
        self.gate.leave();
    }

    fn unpin_pages(&self, range: PageRange) {
        for page in range.first..range.end() {
            loop {
                let seen = self.pages.load(page);
                if let PageState::Leaving { .. } = seen.state() {
                    // Who looks after it for a moment remembers its pins, and gives them back.
                    self.pages.wait_owned(page);
                    continue;
                }
                let PageState::Resident { slot, pins, node } = seen.state() else { break };
                let Some(pins) = pins.checked_sub(1) else { break };
                if self.pages.claim(page, seen, PageState::Resident { slot, pins, node }) {
                    self.forget_pins(1);
                    self.relist(page, pins, node);
                    break;
                }
            }
        }
    }

    /// Reclaim forgets pinned pages it meets: the last unpin puts the page back on the list.
    fn relist(&self, page: PageIndex, pins: u32, node: NodeId) {
        if pins == 0 {
            self.node(node).lock().enlist(&self.pages, page, 1);
            self.note_progress();
        }
    }

    /// Claims a page without content. Nobody uses it yet, but a run of zeros next to it may have reached it, or
    /// a message from its former life.
    fn claim_fresh(&self, page: PageIndex, state: PageState) {
        while !self.pages.change(page, PageState::Untouched, state) {
            let content = self.take_content(page, Purpose::Drop);
            self.discard(content);
        }
    }

    /// Moves the content of pages to other pages that are Untouched (mremap): no byte is copied.
    pub fn move_range(&self, from: PageRange, to: PageIndex) {
        self.gate.enter();
        for place in 0..from.count {
            let (source, target) = (from.first + place, to + place);
            let content = self.take_content(source, Purpose::Keep);
            let (state, frame) = match content {
                Content::None => continue,
                Content::Lost => (PageState::Lost, None),
                Content::Slot(slot) => (PageState::Swapped { slot }, None),
                Content::Frame(frame, slot) => (PageState::Filling { slot }, Some((frame, slot))),
            };
            if let PageState::Swapped { slot } | PageState::Filling { slot: Some(slot) } = state {
                self.devices.set_page(slot, target);
            }
            self.claim_fresh(target, state);
            if let Some((frame, slot)) = frame {
                let node = self.node_of_frame(frame);
                let range = PageRange { first: target, count: 1 };
                self.map_in(node, range, FrameRun { first: frame, count: 1 });
                self.publish_resident(node, range, Arrival::New, |_| slot);
            }
        }
        self.gate.leave();
    }
}

fn scratch_claim(core: &Core, of: NodeId, page: PageIndex, scratch: &mut Scratch) {
    let seen = core.pages.load(page);
    let PageState::Resident { slot, pins: 0, node } = seen.state() else { return };
    if node == of && core.pages.claim(page, seen, PageState::Leaving { slot }) {
        scratch.add(page, slot);
    }
}
