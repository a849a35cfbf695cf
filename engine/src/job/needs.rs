//! How much a member's engine needs, by what its process is doing.
//!
//! Relaxed throughout: to be a look late is no matter.
use crate::sys::clock;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// For so long a member has what it took for pages that are to stay in memory; from then on they are seen to be pinned.
const INSISTS_NS: u64 = 5_000_000_000;

/// What an engine should not have less than.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// It is in use.
    Full,
    /// It is in use, and another has its turn: it gets by with little until then.
    Waiting,
    /// Nothing is asked of it: others may have what it has above the least that it needs.
    Idle,
}

/// What the need of a member follows from.
#[derive(Default)]
pub struct Needs {
    /// No refault for a while.
    is_idle: AtomicBool,
    /// It is short, and another has its turn.
    waits: AtomicBool,
    /// It is to be woken when it is short of pages.
    sleeps: AtomicBool,
    /// Until when it has what it would need in use, by the clock.
    insists_ns: AtomicU64,
}

impl Needs {
    /// What it needs at this moment.
    pub fn now(&self) -> Need {
        if clock::now_ns() < self.insists_ns.load(Ordering::Relaxed) {
            return Need::Full;
        }
        match (self.is_idle.load(Ordering::Relaxed), self.waits.load(Ordering::Relaxed)) {
            (true, _) => Need::Idle,
            (false, true) => Need::Waiting,
            (false, false) => Need::Full,
        }
    }

    /// Says whether this process is idle, and whether it is to be woken when it is short of pages.
    pub fn set_idle(&self, is_idle: bool, sleeps: bool) {
        self.is_idle.store(is_idle, Ordering::Relaxed);
        self.sleeps.store(is_idle && sleeps, Ordering::Relaxed);
    }

    /// As of a process that has just begun.
    pub fn reset(&self) {
        self.set_idle(false, false);
        self.set_waiting(false);
        self.insists_ns.store(0, Ordering::Relaxed);
    }

    /// Says whether it is short, and another has its turn.
    pub fn set_waiting(&self, waits: bool) {
        self.waits.store(waits, Ordering::Relaxed);
    }

    /// For the next seconds it needs as much as in use, whoever's turn it is.
    pub fn insist(&self) {
        self.insists_ns.store(clock::now_ns() + INSISTS_NS, Ordering::Relaxed);
    }

    /// Whether it was to be woken when it is short of pages; it is not from here on.
    pub fn end_sleep(&self) -> bool {
        self.sleeps.load(Ordering::Relaxed) && self.sleeps.swap(false, Ordering::Relaxed)
    }
}
