//! Instead of a batch: all that is mapped of the block in which the oldest page lies leaves, where that costs less.
//!
//! What of it is in use comes back from its second chance. The block's words are owned all of them, also those of pages
//! that are not mapped, which are what they were afterwards. When blocks are worth it is `policy::block`'s; how their pages
//! leave is `transfer::block`'s.
use crate::base::counters::count;
use crate::base::index::{FrameIndex, NodeId, PageIndex, PageRange};
use crate::reclaim::isolate::Reclaimed;
use crate::state::blocks::Blocks;
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use crate::state::page::{PageState, Waiters, Word};
use crate::state::scratch::{Scratch, Unmapped, Victim};
use crate::state::unmap_lock::Parts;
use crate::sys::{PAGE_BYTES, clock};
use std::ops::Range;
use std::sync::atomic::Ordering;
use userswap_policy::block::{BLOCK_PAGES, EXTENTS, ReclaimWay, Way, pays};
use userswap_policy::lru::ListId;
use userswap_policy::workingset::Activity;

/// Blocks that are looked at for one that may be taken: of some a page is being written or read just now.
const CANDIDATES: usize = 16;

/// Pages of the list that are looked at for those blocks.
const LOOKED_AT_MAX: u32 = 1 << 10;

/// Pages of a block that are mapped.
#[derive(Clone, Copy, Default)]
struct InBlock {
    mapped: u32,
    /// On the node that wants room.
    own: u32,
    /// When they were mapped: active.
    active: u32,
}

impl Core {
    /// Unmaps the block of the oldest inactive page, if blocks are what costs less; None if not. Afterwards `scratch`
    /// holds the dirty pages, owned in Leaving, to be written.
    pub(crate) fn unmap_block(
        &self,
        node: &Node,
        blocks: &mut Blocks,
        scratch: &mut Scratch,
    ) -> Option<Reclaimed> {
        if blocks.ways.next(self.reclaim_way()) == Way::Runs {
            return None;
        }
        scratch.clear();
        // What is opened once is no cost of the first block.
        let is_open = blocks.open(&self.threads, self.tuning.filters);
        let start = clock::thread_cpu_ns();
        let reclaimed = if is_open { self.try_block(node, blocks, scratch) } else { None };
        let unmapped = reclaimed.map_or(0, |reclaimed| reclaimed.unmapped);
        if unmapped == 0 {
            blocks.ways.on_refused();
            return None;
        }
        blocks.ways.on_batch(Way::Block, unmapped, clock::thread_cpu_ns() - start);
        self.sort_out(node, scratch);
        self.feed_readahead();
        reclaimed
    }

    fn try_block(
        &self,
        node: &Node,
        blocks: &mut Blocks,
        scratch: &mut Scratch,
    ) -> Option<Reclaimed> {
        let mut pages = self.oldest_of(node).into_iter();
        let (range, mapped) = pages.find_map(|page| self.claim_block(node, page?, blocks))?;
        let part = Parts::new(&self.arena).of(range.first);
        let guard = self.unmap_locks.enter_at_last(part);
        self.frames_for_block(node, mapped, &mut blocks.frames);
        if !self.unmap_block_pages(node, range, blocks) {
            self.give_all_back(range.first..range.end(), blocks);
            return None;
        }
        self.account_for_block(range, blocks);
        note_looks(&mut node.lock(), range, blocks);
        drop(guard);
        for (index, page) in (0..).zip(range.first..range.end()) {
            self.settle_page(page, (blocks.seen[index], blocks.outcomes[index]), scratch);
        }
        for page in &blocks.held {
            let mapped = blocks.seen[(page - range.first) as usize].state().mapped();
            let node = mapped.expect("it was mapped").node;
            self.node(node).lock().set_unevictable(*page);
        }
        let unmapped = scratch.count as u32;
        count(&self.counters.swpout_block, unmapped.into());
        // Faults have what it was mapped by until its copies need that; with all devices full they all come back.
        if unmapped > 0 && !self.shortage.devices_full.load(Ordering::Relaxed) {
            self.announce_freed();
        }
        Some(Reclaimed { scanned: mapped, unmapped, along: 0 })
    }

    /// Some of the pages that are the next to leave, each of another block.
    fn oldest_of(&self, node: &Node) -> [Option<PageIndex>; CANDIDATES] {
        let mut state = node.lock();
        let demoted = state.demote(1);
        state.retry_unevictable();
        count(&self.counters.pgdeactivate, demoted.into());
        let mut next = state.lists.oldest(ListId::Inactive);
        let (mut found, mut steps) = ([None; CANDIDATES], 0);
        let mut free = 0;
        while let Some(page) = next.filter(|_| free < CANDIDATES && steps < LOOKED_AT_MAX) {
            let block = |page: PageIndex| page / BLOCK_PAGES;
            if !found[..free].iter().flatten().any(|other| block(*other) == block(page)) {
                found[free] = Some(page);
                free += 1;
            }
            next = state.lists.after(page);
            steps += 1;
        }
        found
    }

    /// What lies of its region around a page, as far as the next addresses that `extent` pages divide.
    fn block_of(&self, page: PageIndex, extent: u32) -> Option<PageRange> {
        let region = self.arena.region_of(page)?;
        // Blocks are of addresses, and the arena may begin anywhere.
        let before = (self.arena.address() / PAGE_BYTES) as u32 % extent;
        let start = (page + before) / extent * extent;
        let first = start.saturating_sub(before).max(region.first);
        let end = (start + extent - before).min(region.end());
        Some(PageRange { first, count: end - first })
    }

    /// Owns all pages of the block of a page, or of half of it, and takes those that are mapped off their nodes' lists; returns
    /// how many those are. None, and nothing has changed, when that does not pay, or a page is somebody else's.
    fn claim_block(
        &self,
        node: &Node,
        page: PageIndex,
        blocks: &mut Blocks,
    ) -> Option<(PageRange, u32)> {
        let ranges = EXTENTS.map(|extent| self.block_of(page, extent));
        let mut state = node.lock();
        let (range, mapped) = ranges.into_iter().flatten().find_map(|range| {
            let InBlock { mapped, own, active } = self.look_at_block(&state, range, blocks)?;
            let back = match self.reclaim_way() {
                ReclaimWay::Blocks => 0,
                _ => state.workingset.expected_back(mapped - active, active),
            };
            // The loan for copies is paid back by what leaves of the node's own. With one for what others have here as well,
            // both would exceed their budgets, if no device took the copies without end.
            let has_room = state.available() >= mapped - own;
            (pays(mapped, own, back) && has_room).then_some((range, mapped))
        })?;
        for (index, page) in (0..).zip(range.first..range.end()) {
            let seen = blocks.seen[index];
            if !self.pages.claim(page, seen, owned_from(seen.state())) {
                drop(state);
                self.give_all_back(range.first..page, blocks);
                return None;
            }
        }
        take_off_lists(&mut state, range, blocks);
        state.workingset.on_block(range.first, range.end() - 1);
        drop(state);
        // What is owned is on a list or not: until then another reclaimer may find it there, and leave it.
        let mut others = self.nodes.iter().filter(|other| other.id != node.id);
        let is_off = |other: &Node| take_off_lists(&mut other.lock(), range, blocks);
        if !others.all(|other| !has_pages_of(other.id, blocks, range) || is_off(other)) {
            self.give_all_back(range.first..range.end(), blocks);
            return None;
        }
        Some((range, mapped))
    }

    /// Looks at the words of a range, and counts mapped pages; None when a page of it is owned, or not to be touched.
    fn look_at_block(
        &self,
        state: &NodeState,
        range: PageRange,
        blocks: &mut Blocks,
    ) -> Option<InBlock> {
        let mut found = InBlock::default();
        for (seen, page) in blocks.seen.iter_mut().zip(range.first..range.end()) {
            *seen = self.pages.load(page);
            match seen.state() {
                PageState::Untouched | PageState::Swapped { .. } | PageState::Cached { .. } => {}
                // Those of other nodes are asked about once their node is locked.
                PageState::Resident { pins: 0, node, .. } | PageState::Clean { node, .. }
                    if state.lists.list_of(page) != Some(ListId::Unevictable) =>
                {
                    found.mapped += 1;
                    found.own += u32::from(node == state.id());
                    found.active += u32::from(seen.standing().activity == Activity::Active);
                }
                _ => return None,
            }
        }
        Some(found)
    }

    /// The first pages of a block, which are owned, are what they were.
    fn give_all_back(&self, pages: Range<PageIndex>, blocks: &Blocks) {
        pages.zip(blocks.seen.iter()).for_each(|(page, seen)| self.give_back(page, *seen));
    }

    /// A page that is owned is what it was; if its list has forgotten it meanwhile, it is there again.
    fn give_back(&self, page: PageIndex, seen: Word) {
        if self.pages.restore(page, seen) == Waiters::Some {
            self.wake_faults(PageRange { first: page, count: 1 });
        }
        let node = match seen.state() {
            PageState::Cached { frame, .. } => self.node_of_frame(frame),
            PageState::Resident { node, .. } | PageState::Clean { node, .. } => self.node(node),
            _ => return,
        };
        let mut state = node.lock();
        if state.lists.list_of(page).is_none() {
            state.enlist(&self.pages, page, 1);
            if state.lists.list_of(page) == Some(ListId::Cached) {
                // What passed it was taking the oldest.
                state.lists.push_oldest(ListId::Cached, page);
            }
        }
    }

    /// Held frames for so many copies, on a loan if need be.
    fn frames_for_block(&self, node: &Node, want: u32, frames: &mut Vec<FrameIndex>) {
        while frames.len() < want as usize {
            let missing = want - frames.len() as u32;
            let at_hand = self.frames_at_hand(node, missing);
            let run = if at_hand.count > 0 { at_hand } else { self.frames_for_copy(node, missing) };
            frames.extend(run.first..run.first + run.count);
        }
    }

    /// What has left goes to the accounts of the nodes that had it, wherever its copies are.
    fn account_for_block(&self, range: PageRange, blocks: &Blocks) {
        let outcomes = &blocks.outcomes[..range.count as usize];
        for node in &self.nodes {
            let has_left = |(seen, outcome): &(&Word, &Unmapped)| {
                **outcome != Unmapped::Stayed && is_of(seen, node.id)
            };
            let left = blocks.seen.iter().zip(outcomes).filter(has_left).count() as u32;
            if left > 0 {
                let mut state = node.lock();
                state.on_moved_out(left);
                state.on_released(left);
            }
        }
        self.trace.note_left(range, outcomes);
    }

    /// Publishes a page of a block, or, if it has left, adds it to `scratch`.
    fn settle_page(
        &self,
        page: PageIndex,
        (seen, outcome): (Word, Unmapped),
        scratch: &mut Scratch,
    ) {
        let Some(mapped) = seen.state().mapped() else { return self.give_back(page, seen) };
        let victim = Scratch::victim(page, mapped.slot);
        match outcome {
            Unmapped::Frame(frame) => {
                if matches!(seen.state(), PageState::Clean { .. }) {
                    self.clean_pages.on_drop(page);
                }
                scratch.add_held(Victim { frame, ..victim });
            }
            Unmapped::Gone => self.forget_gone(&victim),
            Unmapped::Stayed => self.stay(self.node(mapped.node), &victim),
        }
    }
}

/// Takes the pages of a block that are mapped on a node off its lists; false, and none is taken, if something holds one. Those that were
/// active give way as demoted ones do: should they come back, newcomers had too much room.
fn take_off_lists(state: &mut NodeState, range: PageRange, blocks: &Blocks) -> bool {
    let (pages, node) = ((range.first..range.end()).zip(blocks.seen.iter()), state.id());
    let mapped = pages.filter(|(_, seen)| is_of(seen, node)).map(|(page, _)| page);
    if mapped.clone().any(|page| state.lists.list_of(page) == Some(ListId::Unevictable)) {
        return false;
    }
    for page in mapped {
        if state.lists.list_of(page) == Some(ListId::Active) {
            state.workingset.on_demotion(page);
        }
        state.lists.remove(page);
    }
    true
}

/// What has left a block has its second chance on the node that has the copies, whose it was before.
fn note_looks(state: &mut NodeState, range: PageRange, blocks: &Blocks) {
    for (outcome, page) in blocks.outcomes.iter().zip(range.first..range.end()) {
        if matches!(outcome, Unmapped::Frame(_)) {
            state.workingset.on_look(page);
        }
    }
}

fn has_pages_of(node: NodeId, blocks: &Blocks, range: PageRange) -> bool {
    blocks.seen[..range.count as usize].iter().any(|seen| is_of(seen, node))
}

/// Whether a page is mapped on a node.
fn is_of(word: &Word, node: NodeId) -> bool {
    word.state().mapped().is_some_and(|mapped| mapped.node == node)
}

/// The state of an owned page that was in another.
fn owned_from(state: PageState) -> PageState {
    match state {
        PageState::Cached { slot, .. } => PageState::Filling { slot },
        PageState::Swapped { slot } => PageState::Filling { slot: Some(slot) },
        state => match state.mapped() {
            Some(mapped) => PageState::Leaving { slot: mapped.slot },
            None => PageState::Filling { slot: None },
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use userswap_policy::frames::FrameRun;
    use userswap_policy::watermark::Watermarks;
    use userswap_policy::workingset::{Counts, Need};

    const FULL: Counts =
        Counts { inactive: 616, active: 7380, unmapped: 196, budget: 8192, reserved: 300 };

    /// By how many pages newcomers have less room after a block has left, all of it on a list, and come back.
    fn room_lost(list: ListId) -> u32 {
        let marks = Watermarks { min: 64, low: 80, high: 96 };
        let frames = FrameRun { first: 0, count: 8192 };
        let node = Node::new(NodeId(0), frames, 2048, marks, BLOCK_PAGES).unwrap();
        let mut blocks = Blocks::new();
        let mapped = PageState::Resident { slot: None, pins: 0, node: NodeId(0) };
        blocks.seen.fill(Word::new(mapped));
        let mut state = node.lock();
        (0..2000).for_each(|_| _ = state.workingset.on_first_touch(FULL));
        let before = state.workingset.demote(FULL);
        (0..BLOCK_PAGES).for_each(|page| state.lists.push_newest(list, page));
        let range = PageRange { first: 0, count: BLOCK_PAGES };
        assert!(take_off_lists(&mut state, range, &blocks));
        assert_eq!(state.lists.len(list), 0);
        for page in 0..BLOCK_PAGES {
            let shadow = state.workingset.now();
            state.workingset.on_refault(page, shadow, Need::Asked, FULL);
        }
        before.saturating_sub(state.workingset.demote(FULL))
    }

    #[test]
    fn active_pages_of_a_block_are_regretted_as_those_that_give_way() {
        let lost = room_lost(ListId::Active);
        assert!(lost > 1000, "newcomers have {lost} pages less");
        assert_eq!(room_lost(ListId::Inactive), 0, "nothing was kept that is missed now");
    }
}
