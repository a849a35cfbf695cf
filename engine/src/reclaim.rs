//! Taking pages out: isolate the oldest, move them to frames in runs, sort out what needs no write.
//!
//! The same batch serves the background reclaimer, which keeps many writes in flight, and a faulting
//! thread that finds nothing left (direct reclaim), which writes at once. A dirty page becomes Writing and
//! then Cached; a clean one is Cached right away; one of zeros is Untouched again. Cached pages are the
//! second chance: their frames are taken oldest first, when somebody needs them.
use crate::arena::PageRange;
use crate::checksum::is_zero;
use crate::core::Core;
use crate::counters::count;
use crate::node::Node;
use crate::options::OnFull;
use crate::page::{FrameIndex, NodeId, PageIndex, PageState, Slot};
use crate::sys::{futex, pages, signal};
use crate::transfer::TakenOut;
use crate::write_back::WriteOp;
use std::sync::atomic::Ordering;
use userswap_policy::frames::FrameRun;
use userswap_policy::lru::ListId;

/// Pages of one batch: the largest write, 1 MiB.
pub const BATCH: usize = 256;
/// Pages that direct reclaim takes out (the kernel's SWAP_CLUSTER_MAX, twice: one run).
const DIRECT_BATCH: usize = 64;
/// How long who finds nothing to reclaim waits for writes under way before looking again.
const WAIT_NS: u64 = 10_000_000;
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
    pub fn take_batch(&self, node: &Node, most: usize, scratch: &mut Scratch) -> Reclaimed {
        let scanned = self.isolate(node, most, scratch);
        self.take_out_victims(node, scratch);
        let taken = scratch.count as u32;
        self.sort_out(node, scratch);
        Reclaimed { scanned, taken }
    }

    /// Pops the oldest pages and owns them in Leaving, sorted by address.
    fn isolate(&self, node: &Node, most: usize, scratch: &mut Scratch) -> u32 {
        let mut state = node.lock();
        scratch.count = 0;
        let mut scanned = 0;
        while scratch.count < most.min(BATCH) && scanned < 4 * BATCH as u32 {
            let Some(page) = state.lists.pop_oldest(ListId::Resident) else { break };
            scanned += 1;
            let seen = self.pages.load(page);
            // Pinned pages come back to the list when they are unpinned.
            let PageState::Resident { slot, pins: 0, node: of } = seen.state() else { continue };
            // A page that has meanwhile come back on another node is on that node's list.
            if of == node.id && self.pages.claim(page, seen, PageState::Leaving { slot }) {
                scratch.add(page, slot);
            }
        }
        drop(state);
        scratch.victims[..scratch.count].sort_unstable_by_key(|victim| victim.page);
        scanned
    }

    /// Moves the victims to frames, run by run; who has to stay is published as resident again.
    fn take_out_victims(&self, node: &Node, scratch: &mut Scratch) {
        let (mut from, mut kept) = (0, 0);
        while from < scratch.count {
            let run = run_length(&scratch.victims[from..scratch.count]);
            let range = PageRange { first: scratch.victims[from].page, count: run as u32 };
            let taken = &mut scratch.taken[..run];
            self.take_out(node, range, taken);
            for (place, outcome) in taken.iter().enumerate() {
                let victim = scratch.victims[from + place];
                match *outcome {
                    TakenOut::Frame(frame) => {
                        scratch.victims[kept] = Victim { frame, ..victim };
                        kept += 1;
                    }
                    TakenOut::Stayed => self.stay(node, victim),
                }
            }
            from += run;
        }
        scratch.count = kept;
    }

    /// Takes out pages that the caller has claimed, in the order of addresses, and writes them at once.
    pub fn take_out_claimed(&self, node: &Node, scratch: &mut Scratch) {
        self.take_out_victims(node, scratch);
        self.sort_out(node, scratch);
        self.write_at_once(node, scratch);
    }

    fn stay(&self, node: &Node, victim: Victim) {
        let range = PageRange { first: victim.page, count: 1 };
        self.publish_resident(node, range, |_| victim.slot);
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
            self.publish_resident(node, range, |_| None);
        }
    }

    /// A fault found nothing: reclaims a batch itself, or waits for writes under way, or, with all devices
    /// full, does what the option says. `seen_freed` is the freed counter from before the failed grant.
    pub fn make_room(&self, node: &Node, seen_freed: u32) {
        count(&self.counters.allocstall, 1);
        self.wake_reclaim(node);
        // A node whose pages are all pinned or in transition has neighbours that may have something.
        let reclaims = |id: &NodeId| self.reclaim_directly(self.node(*id)).taken > 0;
        if !self.no_device_has_room() && self.topology.nearest(node.id).iter().any(reclaims) {
            return;
        }
        if self.no_device_has_room() && node.lock().writing == 0 && !self.devices.ask_for_leaving()
        {
            self.exceed_budget(node);
            return;
        }
        futex::wait_for(&self.freed, seen_freed, WAIT_NS);
    }

    /// Whether a device was full the last time one was asked, and none has got room since.
    fn no_device_has_room(&self) -> bool {
        let full = self.devices_full.load(Ordering::Relaxed);
        if full && self.devices.room().0 > 0 {
            self.devices_full.store(false, Ordering::Relaxed);
            return false;
        }
        full
    }

    /// One batch by the calling thread, written at once.
    fn reclaim_directly(&self, node: &Node) -> Reclaimed {
        // Held over the write on purpose: the scratch memory is the permission to reclaim, and there are
        // only a few, as the kernel throttles direct reclaimers.
        let mut scratch = self.scratch().lock();
        let reclaimed = self.take_batch(node, DIRECT_BATCH, &mut scratch);
        count(&self.counters.pgscan_direct, u64::from(reclaimed.scanned));
        count(&self.counters.pgsteal_direct, u64::from(reclaimed.taken));
        self.write_at_once(node, &mut scratch);
        reclaimed
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
