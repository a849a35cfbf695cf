//! A program's own memory on the engine's books: what its caches hold counts toward the RAM budget, so that
//! pages and caches together stay within it.
//!
//! A charged page is one that a node's pages cannot have. It is charged as a page is granted to a fault that
//! could wait: down to the low mark, where background reclaim works for more. The engine takes nothing back
//! by itself: it asks the program's shrinkers, and they say what they have freed.
use crate::api::engine::Engine;
use crate::base::index::NodeId;
use crate::state::core::Core;
use crate::state::node::{Asker, Grant, Node};
use crate::sys::futex;
use crate::sys::signal::Blocked;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

/// Times that a charge waits for background reclaim in vain, and for how long: 40 ms in all.
const WAITS: u32 = 4;

const WAIT_NS: u64 = 10_000_000;

/// Memory that a program holds, by node; what is left is given back when it is dropped.
pub struct Account {
    core: Arc<Core>,
    charged: Box<[AtomicU32]>,
}

impl Engine {
    /// A new account with nothing on it.
    pub fn account(&self) -> Account {
        let core = self.core().clone();
        let charged = core.nodes.iter().map(|_| AtomicU32::new(0)).collect();
        Account { core, charged }
    }
}

impl Account {
    /// Takes `pages` of a node's budget before the program takes the memory, waiting for reclaim if it must;
    /// false when they are not to be had soon: then nothing is charged.
    ///
    /// # Panics
    /// There is no such node, as in every function here.
    #[must_use = "what is not charged is not to be used"]
    pub fn charge(&self, node: NodeId, pages: u32) -> bool {
        self.take(node, pages, WAITS)
    }

    /// As [`Account::charge`], without waiting.
    #[must_use = "what is not charged is not to be used"]
    pub fn try_charge(&self, node: NodeId, pages: u32) -> bool {
        self.take(node, pages, 0)
    }

    /// Gives pages back, after the program has freed the memory.
    ///
    /// # Panics
    /// They are more than are charged.
    pub fn uncharge(&self, node: NodeId, pages: u32) {
        let charged = &self.charged[node.0 as usize];
        let lower = |before: u32| before.checked_sub(pages);
        let _blocked = Blocked::new();
        // Both books inside the gate: a forked child finds them agree.
        let inside = self.core.gate.enter();
        let lowered = charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, lower);
        if lowered.is_ok() {
            self.core.uncharge(self.core.node(node), pages);
        }
        drop(inside);
        lowered.expect("no more is given back than was charged");
    }

    /// Pages of a node that are charged.
    pub fn charged(&self, node: NodeId) -> u32 {
        self.charged[node.0 as usize].load(Ordering::Relaxed)
    }

    fn take(&self, node: NodeId, pages: u32, waits: u32) -> bool {
        let core = &*self.core;
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
        for node in 0..self.charged.len() as u8 {
            self.uncharge(NodeId(node), self.charged(NodeId(node)));
        }
    }
}

impl Core {
    /// Charges as many of `pages` as a node can give at once; when those are not all, its reclaimer is awake.
    fn charge(&self, node: &Node, pages: u32) -> u32 {
        let mut charged = 0;
        while charged < pages {
            let Some(grant) = self.ask(node, pages - charged, Asker::Background) else { break };
            charged += self.charge_grant(node, grant);
        }
        charged
    }

    fn charge_grant(&self, node: &Node, grant: Grant) -> u32 {
        if let Grant::Frames(run) = grant {
            // The program's memory is elsewhere: this goes back to the kernel for it.
            self.release_memory(run);
            node.lock().put_hole(run);
        }
        node.lock().charged += grant.pages();
        grant.pages()
    }

    fn uncharge(&self, node: &Node, pages: u32) {
        if pages == 0 {
            return;
        }
        let mut state = node.lock();
        state.charged = state.charged.checked_sub(pages).expect("so many pages are charged");
        state.on_released(pages);
        drop(state);
        self.announce_freed();
    }
}
