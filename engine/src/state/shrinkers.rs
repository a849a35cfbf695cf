//! Shrinkers: a program's own caches give way to its pages, as the kernel's do (mm/shrinker.c).
//!
//! A thread that reclaims pages of a node notes how many it looked at; one thread, which exists from the first
//! registration on, then asks every cache in proportion (`policy::shrink`). It is neither the reclaimer's
//! thread nor a faulting one: a cache may touch managed memory, wait for the program's locks, or take its
//! time, and no thread that is needed to swap pages in waits for it. It is outside the gate, and holds no lock
//! of the engine's, while a cache is asked. A fork may come meanwhile; the child finds the cache's locks as
//! the scan had them, as those of every other thread.
//!
//! What the memory of a cache takes from the budget is told with an [`Account`](crate::account::Account).
use crate::base::status::ShrinkerStatus;
use crate::list_lru::ShrinkRequest;
use crate::sys::clock::thread_id;
use crate::sys::futex;
use crate::sys::lock::Lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use userswap_policy::shrink::SEEKS_DEFAULT;

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

/// The shrinkers of an engine, and what they are going to be asked.
pub struct Shrinkers {
    /// Taken only inside the gate, so that a fork finds it free.
    entries: Lock<Vec<Arc<Registered>>>,
    /// The scan that the thread began last, also after its shrinker was removed; taken as the entries are.
    last: Lock<Option<Arc<Scan>>>,
    /// How many there are: reclaim looks here first.
    registered: AtomicU32,
    pub(crate) requests: Box<[Request]>,
    /// Counts requests; the thread sleeps on it.
    pub(crate) requested: AtomicU32,
    pub(crate) has_thread: AtomicBool,
    pub(crate) next_id: AtomicU64,
}

/// What reclaim of one node did since the caches were asked last.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) scanned: AtomicU64,
    pub(crate) eligible: AtomicU64,
    pub(crate) is_made: AtomicBool,
}

pub(crate) struct Registered {
    pub(crate) id: u64,
    pub(crate) name: String,
    pub(crate) shrinker: Arc<dyn Shrinker>,
    /// Objects put off, by node.
    pub(crate) deferred: Box<[AtomicU64]>,
    pub(crate) scanned: AtomicU64,
    pub(crate) freed: AtomicU64,
    pub(crate) scan: Arc<Scan>,
}

/// Whether a shrinker is being asked.
#[derive(Default)]
pub(crate) struct Scan {
    /// The thread that asks it; 0 when none does.
    pub(crate) thread: AtomicU32,
    /// It shall not be asked any more.
    pub(crate) is_over: AtomicBool,
}

impl Shrinkers {
    /// Without shrinkers, for an engine with so many nodes.
    pub(crate) fn new(nodes: usize) -> Self {
        let requests = (0..nodes).map(|_| Request::default()).collect();
        Self {
            entries: Lock::new(Vec::new()),
            last: Lock::new(None),
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

    /// In a forked child: the thread that was asking is in the parent.
    pub(crate) fn forget_scan(&self) {
        if let Some(scan) = self.last.lock().take() {
            scan.thread.store(0, Ordering::Relaxed);
        }
    }

    /// Inside the gate: the shrinker that was registered next after `last`, and the turn to ask it.
    pub(crate) fn next(&self, last: Option<u64>) -> Option<(Arc<Registered>, Turn)> {
        let entries = self.entries.lock();
        let next = entries.iter().find(|entry| last.is_none_or(|last| entry.id > last)).cloned();
        let next = next.map(|entry| {
            // Under the lock: a removal either finds the entry without a turn for good, or sees this.
            entry.scan.thread.store(thread_id() as u32, Ordering::Relaxed);
            *self.last.lock() = Some(entry.scan.clone());
            let turn = Turn(entry.scan.clone());
            (entry, turn)
        });
        drop(entries);
        next
    }

    pub(crate) fn has_thread(&self) -> bool {
        self.has_thread.load(Ordering::Relaxed)
    }

    pub(crate) fn status(&self) -> Vec<ShrinkerStatus> {
        let status = |entry: &Arc<Registered>| ShrinkerStatus {
            name: entry.name.clone(),
            objects_scanned: entry.scanned.load(Ordering::Relaxed),
            objects_freed: entry.freed.load(Ordering::Relaxed),
        };
        self.entries.lock().iter().map(status).collect()
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Relaxed: a shrinker that is just being registered is asked the next time.
        self.registered.load(Ordering::Relaxed) == 0
    }

    pub(crate) fn insert(&self, entry: Arc<Registered>) {
        let mut entries = self.entries.lock();
        entries.push(entry);
        self.registered.store(entries.len() as u32, Ordering::Relaxed);
    }

    pub(crate) fn remove(&self, id: u64) {
        let mut entries = self.entries.lock();
        entries.retain(|entry| entry.id != id);
        self.registered.store(entries.len() as u32, Ordering::Relaxed);
    }
}

/// One shrinker is being asked; dropped last of all that belongs to it.
pub(crate) struct Turn(pub(crate) Arc<Scan>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.thread.store(0, Ordering::Release);
        futex::wake_all(&self.0.thread);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Empty;

    impl Shrinker for Empty {
        fn count(&self, _: &ShrinkRequest) -> u64 {
            0
        }

        fn scan(&self, _: &mut ShrinkRequest) -> ShrinkResult {
            ShrinkResult::Stop
        }
    }

    fn registered(id: u64) -> Arc<Registered> {
        Arc::new(Registered {
            id,
            name: "empty".into(),
            shrinker: Arc::new(Empty),
            deferred: Box::default(),
            scanned: AtomicU64::new(0),
            freed: AtomicU64::new(0),
            scan: Arc::default(),
        })
    }

    #[test]
    fn a_childs_registration_waits_for_no_scan_of_its_parents_removed_or_not() {
        for is_removed in [false, true] {
            let shrinkers = Shrinkers::new(1);
            [4, 7].into_iter().for_each(|id| shrinkers.insert(registered(id)));
            assert_eq!(shrinkers.next(Some(7)).map(|(entry, _)| entry.id), None);
            let (entry, turn) = shrinkers.next(Some(4)).expect("the second one is left");
            assert_eq!(
                (entry.id, entry.scan.thread.load(Ordering::Relaxed)),
                (7, thread_id() as u32)
            );
            // As after a panic: before the turn ends.
            if is_removed {
                shrinkers.remove(7);
            }
            shrinkers.forget_scan();
            assert_eq!(entry.scan.thread.load(Ordering::Relaxed), 0, "removed: {is_removed}");
            drop(turn);
        }
    }
}
