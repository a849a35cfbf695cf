//! One batch of reclaim: isolate the oldest pages, have clean ones (`clean.rs`) and then the others (`victims.rs`)
//! unmapped, and what needs no write sorted out (`sort.rs`).
//!
//! The same batch serves the background reclaimer, which keeps many writes in flight, and a faulting
//! thread that finds nothing left (direct reclaim), which writes at once.
use crate::base::counters::count;
use crate::base::index::PageIndex;
use crate::base::limits::BATCH;
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use crate::state::page::{GENERATIONS, Mapped, PageState, Standing, Word};
use crate::state::scratch::Scratch;
use userswap_policy::kernel::contention::Unmapper;
use userswap_policy::lru::ListId;
use userswap_policy::workingset::Activity;

/// Pages of the aligned block in which neighbours of a victim go along.
const NEIGHBOURS: u32 = 16;

/// What a batch achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pages looked at.
    pub scanned: u32,
    /// Pages unmapped, those to be written among them, and those that turned out to be another node's.
    pub unmapped: u32,
    /// Neighbours of others among those, which left by their calls.
    pub along: u32,
}

/// How much a batch may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Pages to look at; the neighbours of the last one may exceed it.
    pub scan: u32,
    /// Pages to unmap, as far as they are found; [`BATCH`] at most.
    pub unmap: usize,
}

impl Core {
    /// Unmaps a batch; afterwards `scratch` holds the dirty pages, owned in Leaving, to be written.
    pub(crate) fn unmap_batch(
        &self,
        node: &Node,
        quota: Quota,
        unmapper: Unmapper,
        scratch: &mut Scratch,
    ) -> Reclaimed {
        let (scanned, along) = self.isolate(node, quota, scratch);
        let clean = self.unmap_clean(node, scratch);
        let migrated = self.hand_over_migrated(node, unmapper, scratch);
        self.unmap_victims(node, unmapper, scratch);
        let unmapped = scratch.count as u32 + clean + migrated;
        self.sort_out(node, scratch);
        self.feed_readahead();
        Reclaimed { scanned, unmapped, along }
    }

    /// Pops the oldest inactive pages and owns them in Leaving, sorted by address; returns how many it looked at, and how
    /// many went along with others.
    fn isolate(&self, node: &Node, quota: Quota, scratch: &mut Scratch) -> (u32, u32) {
        let most = quota.unmap.min(BATCH);
        let mut state = node.lock();
        scratch.clear();
        let demoted = state.demote(quota.scan.min(most as u32));
        state.retry_unevictable();
        count(&self.counters.pgdeactivate, demoted.into());
        let (mut scanned, mut along) = (0, 0);
        while scratch.added() < most && scanned + along < quota.scan {
            let Some(page) = state.pop_inactive() else { break };
            scanned += 1;
            let word = self.pages.load(page);
            if self.claim_victim(&mut state, page, scratch) {
                along += self.claim_neighbours_of(&mut state, page, word.standing(), scratch);
            }
        }
        drop(state);
        scratch.victims[..scratch.count].sort_unstable_by_key(|victim| victim.page);
        (scanned + along, along)
    }

    /// Owns a page of this node in Leaving; the caller sees to it that the page is on no list. False when it is not
    /// to be reclaimed.
    fn claim_victim(&self, state: &mut NodeState, page: PageIndex, scratch: &mut Scratch) -> bool {
        loop {
            let seen = self.pages.load(page);
            // Pinned pages are listed again when they are unpinned; a page that was meanwhile mapped on another
            // node is on that node's list.
            let Some(Mapped { slot, pins: 0, node }) = seen.state().mapped() else { return false };
            if node != state.id() {
                return false;
            }
            if self.pages.claim(page, seen, PageState::Leaving { slot }) {
                self.add_victim(page, seen, scratch);
                state.workingset.on_look(page);
                return true;
            }
            // Its slot was freed, or it was pinned: whatever changed the word counts on finding the page listed,
            // so it is looked at again rather than forgotten.
        }
    }

    /// A page that was mapped as its word said, and is owned in Leaving now, is one of the batch.
    pub(crate) fn add_victim(&self, page: PageIndex, was: Word, scratch: &mut Scratch) {
        match was.state() {
            // From a device that is being emptied a page has to go elsewhere, and one for which there is a better place.
            PageState::Clean { slot, .. }
                if !self.devices.is_leaving(slot) && !self.devices.promotes(slot) =>
            {
                scratch.add_clean(page, slot);
            }
            state => scratch.add(page, state.mapped().and_then(|mapped| mapped.slot)),
        }
    }

    /// Neighbours in address that are as cold as a victim go along: they are unmapped by the same call, and swapped
    /// in by the same read. Returns how many.
    fn claim_neighbours_of(
        &self,
        state: &mut NodeState,
        page: PageIndex,
        standing: Standing,
        scratch: &mut Scratch,
    ) -> u32 {
        let block = page / NEIGHBOURS * NEIGHBOURS;
        let end = (block + NEIGHBOURS).min(self.pages.pages());
        let before = scratch.added();
        for (from, step) in [(page + 1, 1i64), (page.wrapping_sub(1), -1)] {
            let mut neighbour = from;
            while (block..end).contains(&neighbour)
                && scratch.added() < BATCH
                && self.is_as_cold(state, neighbour, standing)
                && self.claim_victim(state, neighbour, scratch)
            {
                state.lists.remove(neighbour);
                neighbour = (i64::from(neighbour) + step) as PageIndex;
            }
        }
        let along = (scratch.added() - before) as u32;
        count(&self.counters.pgsteal_neighbour, along.into());
        along
    }

    /// Inactive, and mapped in the same sixteenth of the budget's turnover, or the next.
    fn is_as_cold(&self, state: &NodeState, page: PageIndex, victim: Standing) -> bool {
        let standing = self.pages.load(page).standing();
        let younger = standing.generation.wrapping_sub(victim.generation) % GENERATIONS;
        state.lists.list_of(page) == Some(ListId::Inactive)
            && standing.activity == Activity::Inactive
            && younger <= 1
    }
}
