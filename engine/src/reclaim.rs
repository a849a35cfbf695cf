//! Taking pages out: isolate the oldest, move them to frames in runs, sort out what needs no write.
//!
//! The same batch serves the background reclaimer, which keeps many writes in flight, and a faulting
//! thread that finds nothing left (direct reclaim), which writes at once. A dirty page becomes Writing and
//! then Cached; a clean one is Cached right away; one of zeros is Untouched again. Cached pages are the
//! second chance: their frames are taken oldest first, when somebody needs them.
use crate::arena::PageRange;
use crate::arrival::Arrival;
use crate::checksum::is_zero;
use crate::core::Core;
use crate::counters::count;
use crate::node::{Node, NodeState};
use crate::options::OnFull;
use crate::page::{FrameIndex, GENERATIONS, NodeId, PageIndex, PageState, Slot, Standing};
use crate::removal::Parts;
use crate::sys::{futex, pages, process, signal};
use crate::transfer::TakenOut;
use crate::write_back::WriteOp;
use std::sync::atomic::Ordering;
use userswap_policy::contention::{Remover, take_same};
use userswap_policy::frames::FrameRun;
use userswap_policy::lru::ListId;
use userswap_policy::reclaim::{DIRECT_TARGET, Next, Round};
use userswap_policy::workingset::Activity;

/// Pages of one batch: the largest write, 1 MiB.
pub const BATCH: usize = 256;
/// Pages in whose aligned block neighbours of a victim go along.
const NEIGHBOURS: u32 = 16;
/// How long who finds nothing to reclaim waits for writes under way before looking again.
const WAIT_NS: u64 = 10_000_000;
/// How often all devices must be found full in a row before that is believed.
const FULL_LOOKS: u32 = 3;
/// Pages by which the budget is exceeded at a time when no device has room.
const EXCEED_PAGES: u32 = 256;

/// A page on its way out.
#[derive(Clone, Copy, Debug)]
pub struct Victim {
    /// The page.
    pub page: PageIndex,
    /// The slot that held its content when it was brought in.
    pub slot: Option<Slot>,
    /// Where its content is now.
    pub frame: FrameIndex,
    /// What it is worth knowing of the content.
    pub checksum: u64,
}

/// Memory for one batch, allocated beforehand: direct reclaim may run in a signal handler.
pub struct Scratch {
    pub(crate) victims: [Victim; BATCH],
    pub(crate) count: usize,
    taken: [TakenOut; BATCH],
    pub(crate) write: WriteOp,
}

/// What a batch achieved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Reclaimed {
    /// Pages looked at.
    pub scanned: u32,
    /// Pages taken out of their regions.
    pub taken: u32,
}

/// How much a batch may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Pages to look at.
    pub scan: u32,
    /// Pages to take out.
    pub take: usize,
}

impl Scratch {
    /// Empty scratch memory.
    pub fn new() -> Self {
        let none = Victim { page: 0, slot: None, frame: 0, checksum: 0 };
        Self {
            victims: [none; BATCH],
            count: 0,
            taken: [TakenOut::Stayed; BATCH],
            write: WriteOp::new(),
        }
    }

    /// One more page, owned in Leaving.
    pub fn add(&mut self, page: PageIndex, slot: Option<Slot>) {
        self.victims[self.count] = Victim { page, slot, frame: 0, checksum: 0 };
        self.count += 1;
    }

    /// Whether there is no room for one more.
    pub fn is_full(&self) -> bool {
        self.count == BATCH
    }

    /// One more page, owned, whose content is in a held frame.
    pub fn add_held(&mut self, victim: Victim) {
        self.victims[self.count] = victim;
        self.count += 1;
    }

    /// The dirty pages that are left to be written.
    pub fn victims(&self) -> &[Victim] {
        &self.victims[..self.count]
    }
}

impl Core {
    /// Takes a batch out; afterwards `scratch` holds the dirty pages, owned in Leaving, to be written.
    pub fn take_batch(
        &self,
        node: &Node,
        quota: Quota,
        remover: Remover,
        scratch: &mut Scratch,
    ) -> Reclaimed {
        let scanned = self.isolate(node, quota, scratch);
        self.remove_victims(node, remover, scratch);
        let taken = scratch.count as u32;
        self.sort_out(node, scratch);
        self.feed_readahead();
        Reclaimed { scanned, taken }
    }

    /// Pops the oldest inactive pages and owns them in Leaving, sorted by address.
    fn isolate(&self, node: &Node, quota: Quota, scratch: &mut Scratch) -> u32 {
        let most = quota.take.min(BATCH);
        let mut state = node.lock();
        scratch.count = 0;
        let demoted = state.demote(BATCH as u32);
        count(&self.counters.pgdeactivate, demoted.into());
        let mut scanned = 0;
        while scratch.count < most && scanned < quota.scan {
            let Some(page) = state.lists.pop_oldest(ListId::Inactive) else { break };
            scanned += 1;
            let word = self.pages.load(page);
            if self.claim_victim(&state, page, scratch) {
                let along = self.claim_neighbours_of(&mut state, page, word.standing(), scratch);
                scanned += along;
            }
        }
        drop(state);
        scratch.victims[..scratch.count].sort_unstable_by_key(|victim| victim.page);
        scanned
    }

    /// Owns a page of this node in Leaving; the caller has taken it off its list.
    fn claim_victim(&self, state: &NodeState, page: PageIndex, scratch: &mut Scratch) -> bool {
        loop {
            let seen = self.pages.load(page);
            // Pinned pages come back to the list when they are unpinned; a page that has meanwhile come back
            // on another node is on that node's list.
            let PageState::Resident { slot, pins: 0, node } = seen.state() else { return false };
            if node != state.id() {
                return false;
            }
            if self.pages.claim(page, seen, PageState::Leaving { slot }) {
                scratch.add(page, slot);
                return true;
            }
            // Somebody took its slot, or pinned it: who does not take it off the list must find it there, so
            // it is looked at again rather than forgotten.
        }
    }

    /// Neighbours in address that are as cold as a victim go along: they leave in the same call, and come
    /// back in the same read.
    fn claim_neighbours_of(
        &self,
        state: &mut NodeState,
        page: PageIndex,
        standing: Standing,
        scratch: &mut Scratch,
    ) -> u32 {
        let block = page / NEIGHBOURS * NEIGHBOURS;
        let end = (block + NEIGHBOURS).min(self.pages.pages());
        let before = scratch.count;
        for (from, step) in [(page + 1, 1i64), (page.wrapping_sub(1), -1)] {
            let mut neighbour = from;
            while (block..end).contains(&neighbour)
                && !scratch.is_full()
                && self.is_as_cold(state, neighbour, standing)
                && self.claim_victim(state, neighbour, scratch)
            {
                state.lists.remove(neighbour);
                neighbour = (i64::from(neighbour) + step) as PageIndex;
            }
        }
        let along = (scratch.count - before) as u32;
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

    /// Moves the victims to frames, region by region under its removal lock.
    fn remove_victims(&self, node: &Node, remover: Remover, scratch: &mut Scratch) {
        let parts = Parts::new(&self.arena);
        let (mut from, mut kept, mut skipped) = (0, 0, 0);
        while from < scratch.count {
            let waiting = &mut scratch.victims[from..scratch.count];
            let same = take_same(waiting, |victim| parts.of(victim.page));
            let part = parts.of(waiting[0].page);
            let guard = match self.removal.enter(part, remover) {
                Some(guard) => guard,
                // Everybody is looked at once before somebody is waited for.
                None if skipped + same < waiting.len() => {
                    waiting.rotate_left(same);
                    skipped += same;
                    continue;
                }
                None if kept > 0 => break,
                None => self.removal.enter_at_last(part),
            };
            self.take_out_group(node, scratch, (from, from + same), &mut kept);
            drop(guard);
            from += same;
            skipped = 0;
        }
        self.leave_for_later(node, &scratch.victims[from..scratch.count]);
        scratch.count = kept;
    }

    /// Victims that somebody else's removal kept from leaving: they are the oldest still.
    fn leave_for_later(&self, node: &Node, victims: &[Victim]) {
        for victim in victims.iter().rev() {
            let range = PageRange { first: victim.page, count: 1 };
            self.publish_resident(node, range, Arrival::Again, |_| victim.slot);
            let mut state = node.lock();
            if state.lists.list_of(victim.page) == Some(ListId::Inactive) {
                state.lists.push_oldest(ListId::Inactive, victim.page);
            }
        }
    }

    /// Moves victims `from..end` to frames, run by run, and keeps them from `kept` on; who has to stay is
    /// published as resident again.
    fn take_out_group(
        &self,
        node: &Node,
        scratch: &mut Scratch,
        (mut from, end): (usize, usize),
        kept: &mut usize,
    ) {
        while from < end {
            let run = run_length(&scratch.victims[from..end]);
            let range = PageRange { first: scratch.victims[from].page, count: run as u32 };
            let taken = &mut scratch.taken[..run];
            self.take_out(node, range, taken);
            for (place, outcome) in taken.iter().enumerate() {
                let victim = scratch.victims[from + place];
                match *outcome {
                    TakenOut::Frame(frame) => {
                        scratch.victims[*kept] = Victim { frame, ..victim };
                        *kept += 1;
                    }
                    TakenOut::Stayed => self.stay(node, victim),
                }
            }
            from += run;
        }
    }

    /// Takes out pages that the caller has claimed, in the order of addresses, and writes them at once; returns
    /// how many no device would take.
    pub fn take_out_claimed(&self, node: &Node, scratch: &mut Scratch) -> u32 {
        self.remove_victims(node, Remover::Direct, scratch);
        self.sort_out(node, scratch);
        self.write_at_once(node, scratch)
    }

    fn stay(&self, node: &Node, victim: Victim) {
        let range = PageRange { first: victim.page, count: 1 };
        self.publish_resident(node, range, Arrival::Again, |_| victim.slot);
    }

    /// Publishes pages of zeros and clean pages; keeps the dirty ones, with their checksums.
    fn sort_out(&self, node: &Node, scratch: &mut Scratch) {
        let mut dirty = 0;
        for place in 0..scratch.count {
            let victim = scratch.victims[place];
            let bytes = pages::bytes(self.frame_address(victim.frame), 1);
            if is_zero(bytes) {
                self.drop_zero(node, victim);
                continue;
            }
            let checksum = self.checksums.of(bytes);
            match victim.slot {
                Some(slot)
                    if self.devices.checksum(slot) == checksum
                        && !self.devices.is_leaving(slot) =>
                {
                    count(&self.counters.swpout_clean, 1);
                    self.cache(node, victim, slot);
                }
                old => {
                    if let Some(slot) = old {
                        self.free_slot(slot);
                    }
                    scratch.victims[dirty] = Victim { checksum, slot: None, ..victim };
                    dirty += 1;
                }
            }
        }
        scratch.count = dirty;
    }

    fn drop_zero(&self, node: &Node, victim: Victim) {
        count(&self.counters.swpout_zero, 1);
        self.publish(victim.page, PageState::Untouched);
        node.lock().put_free(FrameRun { first: victim.frame, count: 1 });
        if let Some(slot) = victim.slot {
            self.free_slot(slot);
        }
        self.announce_freed();
    }

    /// A page whose content is in a frame and on a slot: second chance.
    pub fn cache(&self, node: &Node, victim: Victim, slot: Slot) {
        let state = PageState::Cached { frame: victim.frame, slot: Some(slot), marker: false };
        self.publish(victim.page, state);
        node.lock().enlist(&self.pages, victim.page, 1);
        self.announce_freed();
    }

    /// Puts dirty pages back that no device would take.
    pub fn put_back(&self, node: &Node, victims: &[Victim]) {
        self.devices_full.store(true, Ordering::Relaxed);
        for victim in victims {
            let range = PageRange { first: victim.page, count: 1 };
            self.map_in(node, range, FrameRun { first: victim.frame, count: 1 });
            self.publish_resident(node, range, Arrival::Again, |_| None);
        }
    }

    /// A fault found nothing: reclaims itself, or waits for who does, or for writes under way, or, with all
    /// devices full, does what the option says. `seen_freed` is the freed counter from before the failed
    /// grant, `attempt` says how many failed before.
    pub fn make_room(&self, node: &Node, seen_freed: u32, attempt: u32) {
        count(&self.counters.allocstall, 1);
        self.wake_reclaim(node);
        if self.is_throttled(node) {
            count(&self.counters.pgthrottle, 1);
            futex::wait_for(&self.freed, seen_freed, WAIT_NS);
            return;
        }
        // A node whose pages are all pinned or in transition has neighbours that may have something.
        let reclaims = |id: &NodeId| self.reclaim_directly(self.node(*id)) > 0;
        if !self.are_devices_full() && self.topology.nearest(node.id).iter().any(reclaims) {
            self.note_progress();
            return;
        }
        let quiet = |node: &Node| node.lock().writing == 0;
        if self.are_devices_full() && self.nodes.iter().all(quiet) {
            // Who searches holds slots for a moment that it gives back: one look may be mistaken.
            match attempt {
                ..FULL_LOOKS => return process::yield_now(),
                // A device that is going comes back, and caches give way, before the budget is exceeded.
                FULL_LOOKS.. if self.devices.ask_for_leaving() => {}
                // It has just come back.
                FULL_LOOKS.. if !self.are_devices_full() => return,
                FULL_LOOKS.. if self.caches_give_way(node, seen_freed) => return,
                FULL_LOOKS.. => return self.exceed_budget(node),
            }
        }
        futex::wait_for(&self.freed, seen_freed, WAIT_NS);
    }

    /// The last one who asked for slots got none, and there are none.
    fn are_devices_full(&self) -> bool {
        self.devices_full.load(Ordering::Relaxed) && self.devices.room().0 <= 0
    }

    /// The background reclaimer is near enough to its end that one more in its way would not help.
    fn is_throttled(&self, node: &Node) -> bool {
        let state = node.lock();
        let throttled = state.health.throttles(state.available(), state.watermarks.min);
        // Behind a closed gate it does not work, and a fork waits for us.
        throttled && state.writing > 0 && !self.gate.is_closed()
    }

    /// One round by the calling thread, written at once; returns how many pages it took out.
    fn reclaim_directly(&self, node: &Node) -> u32 {
        // Held over the write on purpose: the scratch memory is the permission to reclaim, and there are
        // only a few, as the kernel throttles direct reclaimers.
        let mut scratch = self.scratch().lock();
        let mut round = Round::direct();
        let mut taken = 0;
        loop {
            let counts = node.lock().counts();
            let scan = round.scan(counts.inactive + counts.active, DIRECT_TARGET);
            let quota = Quota { scan, take: DIRECT_TARGET as usize };
            let reclaimed = self.take_batch(node, quota, Remover::Direct, &mut scratch);
            count(&self.counters.pgscan_direct, u64::from(reclaimed.scanned));
            count(&self.counters.pgsteal_direct, u64::from(reclaimed.taken));
            self.shrink_caches(node.id, reclaimed.scanned, counts.inactive + counts.active);
            let put_back = self.write_at_once(node, &mut scratch);
            let kept_out = reclaimed.taken - put_back;
            taken += kept_out;
            if round.on_pass(reclaimed.scanned, kept_out) != Next::Pass || put_back > 0 {
                return taken;
            }
        }
    }

    /// Something happened that may let reclaim succeed: hopeless nodes get another chance.
    pub fn note_progress(&self) {
        // Almost always there is none: a load is all that this costs.
        if self.hopeless.load(Ordering::Relaxed) == 0 {
            return;
        }
        for node in &self.nodes {
            if node.hopeless.swap(false, Ordering::AcqRel) {
                self.hopeless.fetch_sub(1, Ordering::AcqRel);
                node.lock().health.on_progress();
                self.wake_reclaim(node);
            }
        }
    }

    fn exceed_budget(&self, node: &Node) {
        if self.tuning.on_full == OnFull::Stop {
            crate::log::stopping();
            signal::kill_self();
        }
        if !self.warned_full.swap(true, Ordering::Relaxed) {
            crate::log::exceeding();
        }
        count(&self.counters.budget_exceeded, u64::from(EXCEED_PAGES));
        let mut state = node.lock();
        state.spare += EXCEED_PAGES;
        state.debt += EXCEED_PAGES;
    }
}

/// How many victims from the first on are consecutive pages.
fn run_length(victims: &[Victim]) -> usize {
    1 + victims.windows(2).take_while(|pair| pair[1].page == pair[0].page + 1).count()
}
