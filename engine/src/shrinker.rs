//! Shrinkers: a program's own caches give way to its pages, as the kernel's do (mm/shrinker.c).
//!
//! Whoever reclaims pages of a node notes how many it looked at; one thread, which exists from the first
//! registration on, then asks every cache in proportion (`policy::shrink`). It is neither the reclaimer's
//! thread nor a faulting one: a cache may touch managed memory, wait for the program's locks, or take its
//! time, and nobody who is needed to bring in pages waits for it. It is outside the gate, and holds no lock
//! of the engine's, while a cache is asked. A fork may come meanwhile; the child finds the cache's locks as
//! the scan had them, as those of every other thread.
//!
//! What the memory of a cache takes from the budget is told with an [`Account`](crate::account::Account).
pub use crate::list_lru::ShrinkRequest;

use crate::core::Core;
use crate::counters::count;
use crate::engine::Engine;
use crate::error::Error;
use crate::page::NodeId;
use crate::status::ShrinkerStatus;
use crate::sys::clock::thread_id;
use crate::sys::futex;
use crate::sys::lock::Lock;
use crate::sys::signal::Blocked;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::thread::JoinHandle;
use userswap_policy::shrink::{Plan, SEEKS_DEFAULT, Share};

/// How long a fault that has no page left to hope for waits for the caches.
const GIVE_WAY_NS: u64 = 100_000_000;

/// A cache that can be asked to become smaller.
pub trait Shrinker: Send + Sync {
    /// Objects of the request's node that could go; approximate, and quick.
    fn count(&self, request: &ShrinkRequest) -> u64;

    /// Looks at up to `nr_to_scan` objects of the node and frees those that are not needed.
    ///
    /// It must not wait for a lock whose holder may be touching managed memory: that thread may itself be
    /// waiting for what is freed here. A panic ends the registration.
    fn scan(&self, request: &mut ShrinkRequest) -> ShrinkResult;

    /// What an object costs to make again, in reads from a disk, as the kernel's `seeks`: the more, the
    /// less is asked for. 0 is for what costs nothing.
    fn seeks(&self) -> u32 {
        SEEKS_DEFAULT
    }
}

/// What a scan came to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ShrinkResult {
    /// So many objects were freed.
    Freed(u64),
    /// Nothing can be done now: what was asked for is put off.
    Stop,
}

/// A registered shrinker: dropped, it is asked no more, and no scan of it is under way. Not to be dropped
/// while holding a lock that a scan waits for.
#[must_use = "a cache is asked only as long as its registration is kept"]
pub struct Registration {
    core: Arc<Core>,
    entry: Arc<Entry>,
}

/// The shrinkers of an engine, and what they are going to be asked.
pub struct Shrinkers {
    /// Taken only inside the gate, so that a fork finds it free.
    entries: Lock<Vec<Arc<Entry>>>,
    /// How many there are: who reclaims looks here first.
    registered: AtomicU32,
    requests: Box<[Request]>,
    /// Counts requests; the thread sleeps on it.
    requested: AtomicU32,
    has_thread: AtomicBool,
    next_id: AtomicU64,
}

/// What reclaim of one node did since the caches were asked last.
#[derive(Debug, Default)]
struct Request {
    scanned: AtomicU64,
    eligible: AtomicU64,
    is_made: AtomicBool,
}

struct Entry {
    id: u64,
    name: String,
    shrinker: Arc<dyn Shrinker>,
    /// Objects put off, by node.
    deferred: Box<[AtomicU64]>,
    scanned: AtomicU64,
    freed: AtomicU64,
    scan: Arc<Scan>,
}

/// Whether a shrinker is being asked.
#[derive(Default)]
struct Scan {
    /// The thread that asks it; 0 when nobody does.
    thread: AtomicU32,
    /// It shall not be asked any more.
    is_over: AtomicBool,
}

impl Shrinkers {
    /// None, of an engine with so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        let requests = (0..nodes).map(|_| Request::default()).collect();
        Self {
            entries: Lock::new(Vec::new()),
            registered: AtomicU32::new(0),
            requests,
            requested: AtomicU32::new(0),
            has_thread: AtomicBool::new(false),
            next_id: AtomicU64::new(0),
        }
    }

    /// Ends the thread's sleep.
    pub(crate) fn wake(&self) {
        // Release pairs with the thread's load: it sees what was written before it goes to sleep.
        self.requested.fetch_add(1, Ordering::Release);
        futex::wake_all(&self.requested);
    }

    /// In a forked child: whoever was asking is in the parent.
    pub(crate) fn forget_scans(&self) {
        for entry in self.entries.lock().iter() {
            entry.scan.thread.store(0, Ordering::Relaxed);
        }
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> Vec<ShrinkerStatus> {
        let status = |entry: &Arc<Entry>| ShrinkerStatus {
            name: entry.name.clone(),
            objects_scanned: entry.scanned.load(Ordering::Relaxed),
            objects_freed: entry.freed.load(Ordering::Relaxed),
        };
        self.entries.lock().iter().map(status).collect()
    }

    fn is_empty(&self) -> bool {
        // Relaxed: a shrinker that is just being registered is asked the next time.
        self.registered.load(Ordering::Relaxed) == 0
    }

    fn insert(&self, entry: Arc<Entry>) {
        let mut entries = self.entries.lock();
        entries.push(entry);
        self.registered.store(entries.len() as u32, Ordering::Relaxed);
    }

    fn remove(&self, id: u64) {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.id != id);
        self.registered.store(entries.len() as u32, Ordering::Relaxed);
    }
}

impl Engine {
    /// Asks a cache to become smaller from now on, whenever pages of a node are reclaimed; `name` is what
    /// `status` calls it.
    ///
    /// # Errors
    /// No thread is to be had.
    pub fn register_shrinker(
        &self,
        name: &str,
        shrinker: Arc<dyn Shrinker>,
    ) -> Result<Registration, Error> {
        let _blocked = Blocked::new();
        let core = self.core().clone();
        let entry = Arc::new(Entry {
            id: core.shrinkers.next_id.fetch_add(1, Ordering::Relaxed),
            name: name.to_owned(),
            shrinker,
            deferred: core.nodes.iter().map(|_| AtomicU64::new(0)).collect(),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            scan: Arc::default(),
        });
        core.gate.enter();
        let started = self.start_shrinking();
        if started.is_ok() {
            core.shrinkers.insert(entry.clone());
        }
        core.gate.leave();
        started.map(|()| Registration { core, entry })
    }
}

impl Registration {
    /// Objects that this cache was asked to look at, and those that it freed.
    pub fn scanned_and_freed(&self) -> (u64, u64) {
        let Entry { scanned, freed, .. } = &*self.entry;
        (scanned.load(Ordering::Relaxed), freed.load(Ordering::Relaxed))
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        let _blocked = Blocked::new();
        self.core.gate.enter();
        self.core.shrinkers.remove(self.entry.id);
        self.core.gate.leave();
        // A scan that began before the removal goes on: it ends after its batch.
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

/// One shrinker is being asked; dropped last of all that belongs to it.
struct Turn(Arc<Scan>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Release);
        futex::wake_all(&self.0.thread);
    }
}

/// Starts the thread that asks.
///
/// # Errors
/// No thread is to be had.
pub(crate) fn start(core: Arc<Core>) -> Result<JoinHandle<()>, Error> {
    let thread = std::thread::Builder::new().name("userswap-shrink".to_owned());
    let asking = core.clone();
    let thread = thread.spawn(move || asking.ask_shrinkers()).map_err(Error::Thread)?;
    core.shrinkers.has_thread.store(true, Ordering::Relaxed);
    Ok(thread)
}

impl Core {
    /// Reclaim has looked at `scanned` of a node's `eligible` pages: the program's caches are going to be
    /// asked for as large a share. Only notes it: safe in a signal handler.
    pub fn shrink_caches(&self, node: NodeId, scanned: u32, eligible: u32) {
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
    pub(crate) fn caches_give_way(&self, node: &crate::node::Node, seen_freed: u32) -> bool {
        if self.shrinkers.is_empty() || node.lock().charged == 0 {
            return false;
        }
        self.shrink_caches(node.id, 0, 0);
        futex::wait_for(&self.freed, seen_freed, GIVE_WAY_NS);
        self.freed.load(Ordering::Acquire) != seen_freed
    }

    fn ask_shrinkers(&self) {
        while !self.is_stopping() {
            let seen = self.shrinkers.requested.load(Ordering::Acquire);
            let mut asked = false;
            for (node, request) in self.nodes.iter().zip(&self.shrinkers.requests) {
                let Some(share) = request.take() else { continue };
                asked = true;
                self.ask_all(node.id, share);
            }
            if !asked {
                futex::wait(&self.shrinkers.requested, seen);
            }
        }
    }

    fn ask_all(&self, node: NodeId, share: Share) {
        let mut last = None;
        while let Some((entry, turn)) = self.next_shrinker(last) {
            last = Some(entry.id);
            let asked = catch_unwind(AssertUnwindSafe(|| entry.ask(self, node, share)));
            if asked.is_err() {
                crate::log::shrinker_panicked(&entry.name);
                self.gate.enter();
                self.shrinkers.remove(entry.id);
                self.gate.leave();
            }
            // The cache first: if this is the last that has it, it ends before the turn does.
            drop(entry);
            drop(turn);
        }
    }

    /// The shrinker that was registered next after `last`, and the turn to ask it.
    fn next_shrinker(&self, last: Option<u64>) -> Option<(Arc<Entry>, Turn)> {
        self.gate.enter();
        let entries = self.shrinkers.entries.lock();
        let next = entries.iter().find(|entry| last.is_none_or(|last| entry.id > last)).cloned();
        let next = next.map(|entry| {
            // Under the lock: who removes an entry either finds it without a turn for good, or sees this.
            entry.scan.thread.store(thread_id() as u32, Ordering::Relaxed);
            let turn = Turn(entry.scan.clone());
            (entry, turn)
        });
        drop(entries);
        self.gate.leave();
        next
    }
}

impl Request {
    fn take(&self) -> Option<Share> {
        if !self.is_made.swap(false, Ordering::Acquire) {
            return None;
        }
        let scanned = self.scanned.swap(0, Ordering::Relaxed);
        Some(Share::new(scanned, self.eligible.load(Ordering::Relaxed)))
    }
}

impl Entry {
    fn ask(&self, core: &Core, node: NodeId, share: Share) {
        let mut request = ShrinkRequest::new(node, 0);
        let freeable = self.shrinker.count(&request);
        let deferred = &self.deferred[node.0 as usize];
        let put_off = deferred.load(Ordering::Relaxed);
        let Some(mut plan) = Plan::new(freeable, put_off, share, self.shrinker.seeks()) else {
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
