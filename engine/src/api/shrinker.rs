//! Registering a program's caches, which the engine asks to become smaller when it reclaims.
use crate::api::engine::Engine;
use crate::base::error::Error;
use crate::state::core::Core;
use crate::state::shrinkers::{Registered, Shrinker};
use crate::sys::clock::thread_id;
use crate::sys::futex;
use crate::sys::signal::Blocked;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Keeps a [`Shrinker`] registered.
///
/// Dropping it waits for a scan that is under way; afterwards the shrinker is not asked any more. It must not be dropped
/// by a thread that holds a lock which a scan waits for.
#[must_use = "a cache is asked only as long as its registration is kept"]
pub struct Registration {
    core: Arc<Core>,
    entry: Arc<Registered>,
}

/// What all scans of a shrinker came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Scanned {
    /// Objects that it was asked to look at.
    pub scanned: u64,
    /// Objects that it freed.
    pub freed: u64,
}

impl Engine {
    /// Asks a cache to become smaller from now on, whenever pages of a node are reclaimed; `name` is what
    /// `userswap status` calls it.
    ///
    /// # Errors
    /// [`Error::Thread`]: the first registration starts a thread, and the system refuses.
    pub fn register_shrinker(
        &self,
        name: &str,
        shrinker: Arc<dyn Shrinker>,
    ) -> Result<Registration, Error> {
        self.core().check_here()?;
        let _blocked = Blocked::new();
        let core = self.core().clone();
        let entry = Arc::new(Registered {
            id: core.shrinkers.next_id.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            shrinker,
            deferred: core.nodes.iter().map(|_| AtomicU64::new(0)).collect(),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            scan: Arc::default(),
        });
        let inside = core.gate.enter();
        let started = self.start_shrinking();
        if started.is_ok() {
            core.shrinkers.insert(entry.clone());
        }
        drop(inside);
        started.map(|()| Registration { core, entry })
    }
}

impl Registration {
    /// Totals since the registration.
    pub fn scanned(&self) -> Scanned {
        let Registered { scanned, freed, .. } = &*self.entry;
        Scanned { scanned: scanned.load(Ordering::Relaxed), freed: freed.load(Ordering::Relaxed) }
    }

    /// As dropping it, where others may still have a reference to it.
    pub fn end(&self) {
        if !self.core.own_process.is_here() {
            return;
        }
        let _blocked = Blocked::new();
        let inside = self.core.gate.enter();
        self.core.shrinkers.remove(self.entry.id);
        drop(inside);
        // A scan that has begun goes on: it ends after its batch.
        let scan = &self.entry.scan;
        scan.is_over.store(true, Ordering::Relaxed);
        loop {
            // Acquire pairs with the release in `Turn::drop`: what the scan did is visible.
            let thread = scan.thread.load(Ordering::Acquire);
            if thread == 0 || thread == thread_id() as u32 {
                return;
            }
            futex::wait(&scan.thread, thread);
        }
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}
