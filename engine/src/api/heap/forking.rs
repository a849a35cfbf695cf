//! The heaps of an engine across fork: their locks are held, so that the child finds none held by a thread it does not have.
use super::Shared;
use crate::sys::lock::Lock;
use std::sync::{Arc, Weak};

/// The heaps of an engine.
pub(crate) struct Heaps {
    /// Held across fork.
    all: Lock<Vec<Weak<Shared>>>,
    /// Those whose locks are held.
    held: Lock<Vec<Arc<Shared>>>,
}

impl Heaps {
    pub(crate) const fn new() -> Self {
        Self { all: Lock::new(Vec::new()), held: Lock::new(Vec::new()) }
    }

    pub(super) fn insert(&self, heap: &Arc<Shared>) {
        self.all.lock().push(Arc::downgrade(heap));
    }

    /// The last clone of a heap is being dropped.
    pub(super) fn forget_dropped(&self) {
        self.all.lock().retain(|heap| heap.strong_count() > 0);
    }

    /// Before fork, and before the gate is closed: a thread in a heap may be waiting for it.
    pub(crate) fn hold(&self) {
        let all = self.all.lock();
        let heaps: Vec<_> = all.iter().filter_map(Weak::upgrade).collect();
        heaps.iter().for_each(|heap| heap.hold());
        *self.held.lock() = heaps;
        std::mem::forget(all);
    }

    /// After fork, on both sides, when the gate is open: what other threads have dropped meanwhile goes now.
    pub(crate) fn release(&self) {
        let heaps = std::mem::take(&mut *self.held.lock());
        heaps.iter().for_each(|heap| heap.release());
        self.all.release();
    }
}
