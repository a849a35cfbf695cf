//! Direct reclaim: a fault found no page, and makes room itself.
//!
//! It reclaims a small batch and writes it at once; it waits instead while the background reclaimer is about to have
//! pages, and with all devices full does what the option says. Runs in a signal handler, too.
use crate::base::choice::OnFull;
use crate::base::counters::count;
use crate::base::index::NodeId;
use crate::base::log::{self, OutOfPages};
use crate::reclaim::isolate::Quota;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::sys::{clock, futex, process, signal};
use std::sync::atomic::Ordering;
use userswap_policy::kernel::contention::Unmapper;
use userswap_policy::reclaim::{DIRECT_TARGET, Next, Round};

/// How long a fault that found nothing to reclaim waits for writes under way before looking again.
const WAIT_NS: u64 = 10_000_000;

/// How long after it has taken a block the background reclaimer counts as going that way: longer than a block takes that the
/// device has to be waited for.
const BLOCK_NS: u64 = 50_000_000;

/// How often all devices must be found full in a row before that is believed.
const FULL_LOOKS: u32 = 3;

/// Pages by which the budget is exceeded at a time when no device has room.
const EXCEED_PAGES: u32 = 256;

/// Rounds of one fault in a row that got nothing, with a wait after each in which no frame became free anywhere, after
/// which nothing is thought able to leave: 0.1 s of waits.
const VAIN_ROUNDS: u32 = 10;

/// As [`VAIN_ROUNDS`], where the program is to be stopped then: 1 s, longer than a disk's hiccup.
const VAIN_ROUNDS_TO_STOP: u32 = 100;

/// What one fault has tried to get its page.
#[derive(Debug, Default)]
pub(crate) struct Tried {
    /// Rounds so far.
    rounds: u32,
    /// The last of them, in a row, that found all devices full and nothing on its way.
    full: u32,
    /// The last of them, in a row, between which no frame has become free.
    in_vain: u32,
    /// The freed counter at the last one.
    freed: u32,
}

impl Tried {
    /// Counts a round that is about to begin.
    fn on_round(&mut self, freed: u32) {
        self.in_vain = if self.rounds > 0 && freed == self.freed { self.in_vain + 1 } else { 0 };
        self.rounds += 1;
        self.freed = freed;
    }

    /// What this round found; returns how many before it, in a row, found devices full.
    fn on_look(&mut self, is_full: bool) -> u32 {
        let before = self.full;
        self.full = if is_full { before + 1 } else { 0 };
        before
    }
}

impl Core {
    /// A fault found nothing: reclaims itself, or waits for other reclaimers or for writes under way, or, with all
    /// devices full or nothing that can leave, does what the option says. `seen_freed` is the freed counter from
    /// before the failed grant.
    pub(crate) fn make_room(&self, node: &Node, seen_freed: u32, tried: &mut Tried) {
        count(&self.counters.allocstall, 1);
        self.wake_reclaim(node);
        // A compressed device that had no memory may have some again, and nobody else may look.
        self.settle_stored(node);
        let wait = || futex::wait_for(&self.shortage.freed, seen_freed, WAIT_NS);
        if self.is_throttled(node) {
            count(&self.counters.pgthrottle, 1);
            return wait();
        }
        tried.on_round(seen_freed);
        // A node whose pages are all pinned or in transition has neighbours that may have something.
        let reclaims = |id: &NodeId| self.reclaim_directly(self.node(*id)) > 0;
        if !self.are_devices_full() && self.topology.nearest(node.id).iter().any(reclaims) {
            tried.on_look(false);
            return self.note_progress();
        }
        let quiet = |node: &Node| node.lock().writing == 0;
        let is_full = self.are_devices_full() && self.nodes.iter().all(quiet);
        let looks = tried.on_look(is_full);
        if is_full {
            // A search holds slots for a moment and gives them back: one look may be mistaken.
            return match looks {
                ..FULL_LOOKS => process::yield_now(),
                // A device that is going comes back, and caches give way, before the budget is exceeded.
                FULL_LOOKS.. if self.devices.ask_for_leaving() => wait(),
                // It has just come back.
                FULL_LOOKS.. if !self.are_devices_full() => {}
                FULL_LOOKS.. if self.caches_give_way(node, seen_freed) => {}
                FULL_LOOKS.. if self.devices.lack_memory_only() => {
                    self.exceed_budget(node, OutOfPages::CompressedFull);
                }
                FULL_LOOKS.. => self.exceed_budget(node, OutOfPages::DevicesFull),
            };
        }
        if self.has_nothing_to_leave(seen_freed, tried) {
            return self.exceed_budget(node, OutOfPages::NothingCanLeave);
        }
        wait();
    }

    /// Nothing has left for a while, or since that was last found, and nothing is on its way.
    fn has_nothing_to_leave(&self, seen_freed: u32, tried: &Tried) -> bool {
        let rounds = match self.tuning.on_full {
            OnFull::Exceed => VAIN_ROUNDS,
            OnFull::Stop => VAIN_ROUNDS_TO_STOP,
        };
        let moment = u64::from(seen_freed) + 1;
        let found_before = self.shortage.nothing_left_after.load(Ordering::Relaxed) == moment;
        let has_none = |node: &Node| {
            let state = node.lock();
            state.writing == 0 && state.available() <= state.watermarks.min
        };
        // The nodes before the counter: a write that ends lists its pages, and counts them then.
        let is_so = (tried.in_vain >= rounds || found_before)
            && self.nodes.iter().all(has_none)
            && self.shortage.freed.load(Ordering::Acquire) == seen_freed;
        if is_so {
            self.shortage.nothing_left_after.store(moment, Ordering::Relaxed);
        }
        is_so
    }

    /// The last search for slots found none, and there are none.
    fn are_devices_full(&self) -> bool {
        self.shortage.devices_full.load(Ordering::Relaxed) && self.devices.room().free <= 0
    }

    /// The background reclaimer is near enough to its end that one more in its way would not help, or goes a way that costs
    /// less, and on which pages that leave one by one would be in its way.
    fn is_throttled(&self, node: &Node) -> bool {
        let taken_ns = node.block_taken_ns.load(Ordering::Relaxed);
        let goes_by_block = clock::now_ns() - taken_ns < BLOCK_NS && !self.are_devices_full();
        let state = node.lock();
        let is_near = state.health.throttles(state.available(), state.watermarks.min);
        // While the gate is closed it does not work, and a fork waits for us.
        (goes_by_block || is_near && state.writing > 0) && !self.gate.is_closed()
    }

    /// One round by the calling thread, written at once; returns how many pages it reclaimed.
    fn reclaim_directly(&self, node: &Node) -> u32 {
        // Held over the write on purpose: the scratch memory is the permission to reclaim, and there are
        // only a few, as the kernel throttles direct reclaimers.
        let mut scratch = self.scratch().lock();
        let mut round = Round::direct();
        let mut reclaimed = 0;
        loop {
            let counts = node.lock().counts();
            let scan = round.scan(counts.inactive + counts.active, DIRECT_TARGET);
            let quota = Quota { scan, unmap: DIRECT_TARGET as usize };
            let batch = self.unmap_batch(node, quota, Unmapper::Direct, &mut scratch);
            count(&self.counters.pgscan_direct, u64::from(batch.scanned));
            count(&self.counters.pgsteal_direct, u64::from(batch.unmapped));
            self.shrink_caches(node.id, batch.scanned, counts.inactive + counts.active);
            let put_back = self.write_at_once(node, &mut scratch);
            let kept_out = batch.unmapped - put_back;
            reclaimed += kept_out;
            if round.on_pass(batch.scanned, kept_out) != Next::Pass || put_back > 0 {
                return reclaimed;
            }
        }
    }

    /// The program is stopped, or the node gets pages beyond its budget, as a debt.
    fn exceed_budget(&self, node: &Node, out_of: OutOfPages) {
        if self.tuning.on_full == OnFull::Stop {
            log::stopping(out_of);
            signal::kill_self();
        }
        if !self.shortage.warned_full.swap(true, Ordering::Relaxed) {
            log::exceeding(out_of);
        }
        count(&self.counters.budget_exceeded, u64::from(EXCEED_PAGES));
        let mut state = node.lock();
        state.spare += EXCEED_PAGES;
        state.debt += EXCEED_PAGES;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_looks_in_a_row_make_devices_full() {
        let mut tried = Tried::default();
        for round in 0..5 {
            tried.on_round(round);
            assert_eq!(tried.on_look(false), 0);
        }
        assert_eq!(
            [true, true, false, true, true].map(|full| tried.on_look(full)),
            [0, 1, 2, 0, 1]
        );
    }

    #[test]
    fn a_round_is_in_vain_after_which_no_frame_became_free() {
        let mut tried = Tried::default();
        let in_vain = [4, 4, 4, 5, 5].map(|freed| {
            tried.on_round(freed);
            tried.in_vain
        });
        assert_eq!(in_vain, [0, 1, 2, 0, 1]);
    }
}
