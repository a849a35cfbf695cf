//! Direct reclaim: a fault found no page, and makes room itself.
use crate::base::choice::OnFull;
use crate::base::counters::count;
use crate::base::index::NodeId;
use crate::reclaim::isolate::Quota;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::sys::{futex, process, signal};
use std::sync::atomic::Ordering;
use userswap_policy::kernel::contention::Unmapper;
use userswap_policy::reclaim::{DIRECT_TARGET, Next, Round};

/// How long who finds nothing to reclaim waits for writes under way before looking again.
const WAIT_NS: u64 = 10_000_000;

/// How often all devices must be found full in a row before that is believed.
const FULL_LOOKS: u32 = 3;

/// Pages by which the budget is exceeded at a time when no device has room.
const EXCEED_PAGES: u32 = 256;

impl Core {
    /// A fault found nothing: reclaims itself, or waits for who does, or for writes under way, or, with all
    /// devices full, does what the option says. `seen_freed` is the freed counter from before the failed
    /// grant, `attempt` says how many failed before.
    pub(crate) fn make_room(&self, node: &Node, seen_freed: u32, attempt: u32) {
        count(&self.counters.allocstall, 1);
        self.wake_reclaim(node);
        if self.is_throttled(node) {
            count(&self.counters.pgthrottle, 1);
            futex::wait_for(&self.shortage.freed, seen_freed, WAIT_NS);
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
        futex::wait_for(&self.shortage.freed, seen_freed, WAIT_NS);
    }

    /// The last one who asked for slots got none, and there are none.
    fn are_devices_full(&self) -> bool {
        self.shortage.devices_full.load(Ordering::Relaxed) && self.devices.room().free <= 0
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
            let reclaimed = self.take_batch(node, quota, Unmapper::Direct, &mut scratch);
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

    fn exceed_budget(&self, node: &Node) {
        if self.tuning.on_full == OnFull::Stop {
            crate::base::log::stopping();
            signal::kill_self();
        }
        if !self.shortage.warned_full.swap(true, Ordering::Relaxed) {
            crate::base::log::exceeding();
        }
        count(&self.counters.budget_exceeded, u64::from(EXCEED_PAGES));
        let mut state = node.lock();
        state.spare += EXCEED_PAGES;
        state.debt += EXCEED_PAGES;
    }
}
