//! Accounting for a program's own memory: what its caches hold counts toward the RAM budget, so that pages and caches
//! together stay within it. The engine takes nothing back by itself: it asks the program's shrinkers, which uncharge
//! what they have freed.
use crate::api::engine::Engine;
use crate::base::index::NodeId;
use crate::state::core::Core;
use crate::sys::futex;
use crate::sys::signal::Blocked;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// How many waits for background reclaim in a row may yield nothing before a charge fails: 40 ms in all.
const WAITS: u32 = 4;
/// Length of one of these waits.
const WAIT_NS: u64 = 10_000_000;

/// Memory of the program's own, by node, that counts toward the engine's budget.
///
/// The unit is a page of 4 KiB: a cache charges what it is about to allocate, and uncharges what it has freed. What is
/// still charged when the account is dropped is uncharged then.
pub struct Account {
    core: Arc<Core>,
    charged: Box<[AtomicU32]>,
}

impl Engine {
    /// An account on which nothing is charged yet.
    pub fn account(&self) -> Account {
        let core = self.core().clone();
        let charged = core.nodes.iter().map(|_| AtomicU32::new(0)).collect();
        Account { core, charged }
    }
}

impl Account {
    /// Takes `pages` of a node's budget, before the program takes the memory. Waits for reclaim as long as it makes
    /// progress; false, with nothing charged, after 40 ms without any.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use = "what is not charged is not to be used"]
    pub fn charge(&self, node: NodeId, pages: u32) -> bool {
        self.take(node, pages, WAITS)
    }

    /// As [`Account::charge`], but false at once where that would wait.
    ///
    /// # Panics
    /// There is no such node.
    #[must_use = "what is not charged is not to be used"]
    pub fn try_charge(&self, node: NodeId, pages: u32) -> bool {
        self.take(node, pages, 0)
    }

    /// Gives pages back to a node's budget, after the program has freed the memory.
    ///
    /// # Panics
    /// More pages than are charged; there is no such node.
    pub fn uncharge(&self, node: NodeId, pages: u32) {
        if !self.core.own_process.is_here() {
            return;
        }
        let charged = &self.charged[node.0 as usize];
        let lower = |before: u32| before.checked_sub(pages);
        let _blocked = Blocked::new();
        // Both counts inside the gate: a forked child finds them agree.
        let inside = self.core.gate.enter();
        let lowered = charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_ok() {
            self.core.uncharge(self.core.node(node), pages);
        }
        drop(inside);
        lowered.expect("no more is given back than was charged");
    }

    /// Pages that are charged to a node.
    ///
    /// # Panics
    /// There is no such node.
    pub fn charged(&self, node: NodeId) -> u32 {
        self.charged[node.0 as usize].load(Ordering::Relaxed)
    }

    fn take(&self, node: NodeId, pages: u32, waits: u32) -> bool {
        let core = &*self.core;
        if !core.own_process.is_here() {
            return false;
        }
        let _blocked = Blocked::new();
        let (mut charged, mut waits_left) = (0, waits);
        loop {
            let inside = core.gate.enter();
            let seen = core.shortage.freed.load(Ordering::Acquire);
            let more = core.charge(core.node(node), pages - charged);
            self.charged[node.0 as usize].fetch_add(more, Ordering::Relaxed);
            drop(inside);
            charged += more;
            if charged == pages {
                return true;
            }
            waits_left = if more > 0 { waits } else { waits_left };
            if waits_left == 0 {
                self.uncharge(node, charged);
                return false;
            }
            waits_left -= 1;
            // Outside the gate: a fork need not wait for us.
            futex::wait_for(&core.shortage.freed, seen, WAIT_NS);
        }
    }
}

impl Drop for Account {
    fn drop(&mut self) {
        for node in 0..self.charged.len() as u16 {
            self.uncharge(NodeId(node), self.charged(NodeId(node)));
        }
    }
}
