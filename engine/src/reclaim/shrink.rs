//! Shrinkers: a program's own caches give way to its pages, as the kernel's do (mm/shrinker.c).
//!
//! Whoever reclaims pages of a node notes how many it looked at; one thread, which exists from the first
//! registration on, then asks every cache in proportion (`policy::shrink`). It is neither the reclaimer's
//! thread nor a faulting one: a cache may touch managed memory, wait for the program's locks, or take its
//! time, and no thread that is needed to swap pages in waits for it. It is outside the gate, and holds no lock
//! of the engine's, while a cache is asked. A fork may come meanwhile; the child finds the cache's locks as
//! the scan had them, as those of every other thread.
//!
//! What the memory of a cache takes from the budget is told with an [`Account`](crate::Account).
use crate::base::counters::count;
use crate::base::error::Error;
use crate::base::index::NodeId;
use crate::base::log;
use crate::list_lru::ShrinkRequest;
use crate::state::core::Core;
use crate::state::node::Node;
use crate::state::shrinkers::{Registered, Request, ShrinkResult};
use crate::sys::futex;
use crate::sys::thread::Thread;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::shrink::{Share, Work};

/// How long a fault that has no page left to hope for waits for the caches.
const GIVE_WAY_NS: u64 = 100_000_000;

impl Core {
    /// Reclaim has looked at `scanned` of a node's `eligible` pages: the program's caches are going to be
    /// asked for as large a share. Only notes it: safe in a signal handler.
    pub(crate) fn shrink_caches(&self, node: NodeId, scanned: u32, eligible: u32) {
        if self.shrinkers.is_empty() {
            return;
        }
        let request = &self.shrinkers.requests[node.0 as usize];
        request.scanned.fetch_add(scanned.into(), Ordering::Relaxed);
        request.eligible.store(eligible.into(), Ordering::Relaxed);
        // Release pairs with the swap in `share_of`; the numbers may still be of two calls.
        if !request.is_made.swap(true, Ordering::Release) {
            self.shrinkers.wake();
        }
    }

    /// Nothing else is left to be had on a node: whether its caches, asked for all they have, freed
    /// something. Waits for that, but not for long.
    pub(crate) fn caches_give_way(&self, node: &Node, seen_freed: u32) -> bool {
        if self.shrinkers.is_empty() || node.lock().charged == 0 {
            return false;
        }
        self.shrink_caches(node.id, 0, 0);
        futex::wait_for(&self.shortage.freed, seen_freed, GIVE_WAY_NS);
        self.shortage.freed.load(Ordering::Acquire) != seen_freed
    }

    /// The thread: asks every node's caches for what reclaim has noted, until the engine stops.
    fn ask_shrinkers(&self) {
        while !self.is_stopping() {
            let seen = self.shrinkers.requested.load(Ordering::Acquire);
            let mut asked = false;
            for (node, request) in self.nodes.iter().zip(&self.shrinkers.requests) {
                let Some(share) = request.take() else { continue };
                asked = true;
                self.ask_all(node.id, share);
            }
            // `stop` wakes after it has told.
            if !asked && !self.is_stopping() {
                futex::wait(&self.shrinkers.requested, seen);
            }
        }
    }

    /// Asks every cache for a share of a node's objects; one that panics is not asked again.
    fn ask_all(&self, node: NodeId, share: Share) {
        let mut last = None;
        while let Some((entry, turn)) = self.inside_gate(|| self.shrinkers.next(last)) {
            last = Some(entry.id);
            let asked = catch_unwind(AssertUnwindSafe(|| entry.ask(self, node, share)));
            if asked.is_err() {
                log::shrinker_panicked(&entry.name);
                let _inside = self.gate.enter();
                self.shrinkers.remove(entry.id);
            }
            // The cache first: if this is the last that has it, it ends before the turn does.
            drop(entry);
            drop(turn);
        }
    }
}

impl Request {
    /// What was asked for since the last time, if anything was.
    fn take(&self) -> Option<Share> {
        if !self.is_made.swap(false, Ordering::Acquire) {
            return None;
        }
        let scanned = self.scanned.swap(0, Ordering::Relaxed);
        Some(Share::new(scanned, self.eligible.load(Ordering::Relaxed)))
    }
}

impl Registered {
    /// Asks one cache, batch by batch, until it has done its share, stops by itself or is being removed.
    fn ask(&self, core: &Core, node: NodeId, share: Share) {
        let mut request = ShrinkRequest::new(node, 0);
        let freeable = self.shrinker.count(&request);
        let deferred = &self.deferred[node.0 as usize];
        let put_off = deferred.load(Ordering::Relaxed);
        let Some(mut plan) = Work::new(freeable, put_off, share, self.shrinker.seeks()) else {
            return;
        };
        while let Some(batch) = plan.batch() {
            if self.scan.is_over.load(Ordering::Relaxed) || core.is_stopping() {
                break;
            }
            request.nr_to_scan = batch;
            let ShrinkResult::Freed(freed) = self.shrinker.scan(&mut request) else { break };
            plan.on_scanned(batch);
            for (all, own, objects) in [
                (&core.counters.slabs_scanned, &self.scanned, batch),
                (&core.counters.slabs_freed, &self.freed, freed),
            ] {
                count(all, objects);
                count(own, objects);
            }
        }
        deferred.store(plan.deferred(), Ordering::Relaxed);
    }
}

/// Starts the thread that asks.
///
/// # Errors
/// No thread is to be had.
pub(crate) fn start(core: Arc<Core>) -> Result<Thread, Error> {
    let asking = core.clone();
    let thread = Thread::spawn("userswap-shrink", move || asking.ask_shrinkers());
    let thread = thread.map_err(Error::Thread)?;
    core.shrinkers.has_thread.store(true, Ordering::Relaxed);
    Ok(thread)
}
