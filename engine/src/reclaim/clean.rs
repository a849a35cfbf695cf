//! Clean pages leave: copied to frames for their second chance, and dropped, hundreds in one call.
//!
//! Such a page is protected against writing, and its slot has its content. A thread or a device that wants to write
//! takes a fault first, which waits for the owner and finds the page Cached; one that holds a reference for reading
//! keeps its physical page. So nothing that is dropped here can be the only copy, and what was copied before the
//! protection was looked at is what the page holds when it goes.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, PageRange};
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use crate::state::page::PageState;
use crate::state::scratch::{Scratch, Victim};
use crate::sys::own_memory::Reader;
use crate::sys::pagemap::Entries;
use crate::sys::{PAGE_BYTES, pages};
use userswap_policy::frames::FrameRun;
use userswap_policy::lru::ListId;
use userswap_trace::Kind;

/// Copies clean pages to frames.
struct Copier<'a> {
    core: &'a Core,
    memory: Reader,
    pagemap: Entries,
}

impl Copier<'_> {
    /// Copies a page to a held frame; false if it is not there any more, not protected, or not what its slot holds,
    /// whoever did that: KSM forgets protections, and a raw system call can take the page away, whose content is not to
    /// come back then.
    fn copies(&self, one: Victim, frame: FrameIndex) -> bool {
        let (from, to) = (self.core.page_address(one.page), self.core.frame_address(frame));
        let is_same =
            |slot| self.core.checksums.of(pages::bytes(to, 1)) == self.core.devices.checksum(slot);
        self.memory.read(from, to, PAGE_BYTES).is_ok()
            // After the copy: protected now, it was so all the time.
            && self.pagemap.is_protected(from)
            && one.slot.is_some_and(is_same)
    }
}

impl Core {
    /// Unmaps the clean pages of `scratch`, owned in Leaving; returns how many. Those that cannot go so are victims like
    /// any other afterwards.
    pub(crate) fn unmap_clean(&self, node: &Node, scratch: &mut Scratch) -> u32 {
        if scratch.clean_count == 0 {
            return 0;
        }
        scratch.clean[..scratch.clean_count].sort_unstable_by_key(|one| one.page);
        self.copy_clean(node, scratch);
        let Scratch { clean, clean_count, scattered, .. } = &mut *scratch;
        scattered.fill(clean[..*clean_count].iter().map(|one| self.page_address(one.page)));
        let (mut dropped, mut from) = (0, 0);
        while from < scratch.clean_count {
            let done = scratch.scattered.drop_from(from);
            self.cache_dropped(node, &scratch.clean[from..from + done]);
            (dropped, from) = (dropped + done as u32, from + done);
            if from < scratch.clean_count {
                // Locked by the program, past us.
                let Victim { page, slot, frame, .. } = scratch.clean[from];
                node.lock().put_free(FrameRun { first: frame, count: 1 });
                scratch.add(page, slot);
                from += 1;
            }
        }
        scratch.clean_count = 0;
        scratch.victims[..scratch.count].sort_unstable_by_key(|victim| victim.page);
        count(&self.counters.swpout_dropped, dropped.into());
        self.announce_freed();
        dropped
    }

    /// Leaves only clean pages that are copied, each with its frame.
    fn copy_clean(&self, node: &Node, scratch: &mut Scratch) {
        let copier = self.copier();
        let (mut kept, mut frames) = (0, FrameRun { first: 0, count: 0 });
        for index in 0..scratch.clean_count {
            let one = scratch.clean[index];
            if frames.count == 0 && copier.is_some() {
                frames = self.frames_at_hand(node, (scratch.clean_count - index) as u32);
            }
            let copies = |copier: &Copier| frames.count > 0 && copier.copies(one, frames.first);
            if copier.as_ref().is_some_and(copies) {
                scratch.clean[kept] = Victim { frame: frames.first, ..one };
                frames = FrameRun { first: frames.first + 1, count: frames.count - 1 };
                kept += 1;
            } else {
                scratch.add(one.page, one.slot);
            }
        }
        if frames.count > 0 {
            node.lock().put_free(frames);
        }
        scratch.clean_count = kept;
    }

    /// Up to `want` held frames, none when there are none without a loan.
    ///
    /// What is dropped becomes spare, and faults live on that: a copy takes the frame of one before it. Where most of what
    /// is available is spare already, copies take that, or the second chance would be short for ever.
    pub(crate) fn frames_at_hand(&self, node: &Node, want: u32) -> FrameRun {
        let mut state = node.lock();
        if state.spare <= state.lists.len(ListId::Cached) {
            let missing = want.saturating_sub(state.pool.free());
            state.steal_cached(missing, &self.pages);
        }
        let free = state.take_free(want).map(Grant::Frames);
        let grant = free.or_else(|| state.grant(want, Asker::Reclaim, &self.pages));
        drop(state);
        grant.map_or(FrameRun { first: 0, count: 0 }, |grant| self.frames_of(node, grant))
    }

    /// What copies a batch; None while no page may be dropped.
    fn copier(&self) -> Option<Copier<'_>> {
        let memory = self.own_memory.reader().ok()?;
        let pagemap = self.uffd.pagemap.entries().ok()?;
        self.clean_pages.may_drop().then_some(Copier { core: self, memory, pagemap })
    }

    /// Publishes pages whose memory has gone, and their second chance begins.
    fn cache_dropped(&self, node: &Node, dropped: &[Victim]) {
        let mut state = node.lock();
        state.on_moved_out(dropped.len() as u32);
        state.on_released(dropped.len() as u32);
        drop(state);
        for Victim { page, slot, frame, .. } in dropped {
            self.clean_pages.on_drop(*page);
            self.trace.note_run(Kind::Left, PageRange { first: *page, count: 1 });
            let cached = PageState::Cached { frame: *frame, slot: *slot, marker: false };
            self.publish(*page, cached);
        }
        let mut state = node.lock();
        dropped.iter().for_each(|one| state.enlist(&self.pages, one.page, 1));
    }
}
