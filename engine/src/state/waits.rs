//! Who waits for a page, and since when: what the watchdog looks at (`fault/watchdog.rs`).
//!
//! Only a thread that is about to sleep, or whose read is about to start, writes here: a fault that is served at once
//! touches none of it. An entry is a hint, and may outlive its wait: what it says counts as long as the page's word
//! says that the page is owned.
use crate::base::busy::Busy;
use crate::base::index::PageIndex;
use crate::sys::clock;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, Ordering};

/// Waits that are seen at once; a thread that finds no room is not watched, but those it waits with are.
const WAITS_MAX: usize = 64;

/// How long a fault may wait at the start before that is reported: half of what the kernel allows a task that hangs.
pub const LIMIT_NS: u64 = 60_000_000_000;

/// What a thread waits for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Waited {
    /// A page that another thread owns, or that is being read.
    Page(PageIndex),
    /// A free frame, for any page.
    Frame,
}

/// A wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Wait {
    pub waited: Waited,
    /// The thread's kernel id.
    pub thread: i32,
    pub since_ns: u64,
}

/// Room for one wait; free while `since_ns` is 0.
#[derive(Debug, Default)]
pub struct Entry {
    since_ns: AtomicU64,
    thread: AtomicI32,
    /// One more than the page; 0 for a frame.
    page: AtomicU32,
}

/// All waits, and how long they may take.
#[derive(Debug)]
pub struct Waits {
    entries: [Entry; WAITS_MAX],
    /// How long a wait may take; 0 for as long as it likes.
    pub limit_ns: AtomicU64,
    /// Counts changes of the limit; the watchdog sleeps on it.
    pub changes: AtomicU32,
    /// The time in which a thread waited, for reads ([`super::reads`]) too.
    pub stalled: Busy,
}

/// A wait under way; dropping it ends it.
#[derive(Debug)]
#[must_use = "dropping it ends the wait"]
pub struct Waiting<'a> {
    entry: Option<(&'a Entry, u64)>,
    stalled: &'a Busy,
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.stalled.end();
        if let Some((entry, since_ns)) = self.entry {
            // The entry may be another's by now: then the page was free meanwhile.
            let (done, kept) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = entry.since_ns.compare_exchange(since_ns, 0, done, kept);
        }
    }
}

impl Entry {
    /// Says what is waited for; the caller owns the entry, or nobody reads it yet.
    pub fn set(&self, wait: Wait) {
        self.describe(wait);
        self.since_ns.store(wait.since_ns, Ordering::Relaxed);
    }

    fn describe(&self, wait: Wait) {
        // Relaxed: a watchdog that reads half of two waits writes one odd line.
        self.thread.store(wait.thread, Ordering::Relaxed);
        let page = match wait.waited {
            Waited::Page(page) => page + 1,
            Waited::Frame => 0,
        };
        self.page.store(page, Ordering::Relaxed);
    }

    /// The wait is over.
    pub fn clear(&self) {
        self.since_ns.store(0, Ordering::Relaxed);
    }

    /// What is waited for, if anything is.
    pub fn read(&self) -> Option<Wait> {
        let since_ns = self.since_ns.load(Ordering::Relaxed);
        let waited = match self.page.load(Ordering::Relaxed) {
            0 => Waited::Frame,
            page => Waited::Page(page - 1),
        };
        let thread = self.thread.load(Ordering::Relaxed);
        (since_ns > 0).then_some(Wait { waited, thread, since_ns })
    }
}

impl Waits {
    /// Nobody waits.
    pub fn new() -> Self {
        Self {
            entries: std::array::from_fn(|_| Entry::default()),
            limit_ns: AtomicU64::new(LIMIT_NS),
            changes: AtomicU32::new(0),
            stalled: Busy::default(),
        }
    }

    /// A thread begins to wait. `is_over` says of a page whether nobody can be waiting for it, so that the entries of
    /// waits whose end nobody told can be used again.
    pub fn begin(&self, wait: Wait, is_over: impl Fn(PageIndex) -> bool) -> Waiting<'_> {
        let takes = |entry: &&Entry| {
            let seen = entry.read();
            let is_free = match seen.map(|seen| seen.waited) {
                None => true,
                Some(Waited::Page(page)) => is_over(page),
                Some(Waited::Frame) => false,
            };
            let before = seen.map_or(0, |seen| seen.since_ns);
            let (done, kept) = (Ordering::Relaxed, Ordering::Relaxed);
            is_free && entry.since_ns.compare_exchange(before, wait.since_ns, done, kept).is_ok()
        };
        let entry = self.entries.iter().find(takes);
        self.stalled.begin();
        let entry = entry.inspect(|entry| entry.describe(wait));
        Waiting { entry: entry.map(|entry| (entry, wait.since_ns)), stalled: &self.stalled }
    }

    /// A wait of this thread, from now on.
    pub fn of_this_thread(waited: Waited) -> Wait {
        Wait { waited, thread: clock::thread_id(), since_ns: clock::now_ns() }
    }

    /// All of them.
    pub fn list(&self) -> impl Iterator<Item = Wait> {
        self.entries.iter().filter_map(Entry::read)
    }

    /// In a forked child, whose other threads are the parent's.
    pub fn forget(&self) {
        self.entries.iter().for_each(Entry::clear);
        self.stalled.forget();
    }
}

impl Waiting<'_> {
    /// The wait goes on, and its end is seen by what it waits for; for how long it stalls is not known.
    pub fn leave(self) {
        self.stalled.end();
        std::mem::forget(self);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait(page: PageIndex, thread: i32) -> Wait {
        Wait { waited: Waited::Page(page), thread, since_ns: 5 + u64::from(page) }
    }

    #[test]
    fn a_wait_is_seen_until_it_ends() {
        let waits = Waits::new();
        let first = waits.begin(wait(1, 10), |_| false);
        waits.begin(wait(2, 20), |_| false).leave();
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(1, 10), wait(2, 20)]);
        drop(first);
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(2, 20)]);
        waits.forget();
        assert_eq!(waits.list().count(), 0);
    }

    #[test]
    fn a_wait_stalls_as_long_as_its_end_is_known() {
        let waits = Waits::new();
        let is_stalled = || {
            let (before, moment) = (waits.stalled.ns(), clock::now_ns());
            while clock::now_ns() < moment + 10_000 {
                std::hint::spin_loop();
            }
            waits.stalled.ns() > before
        };
        let first = waits.begin(wait(1, 10), |_| false);
        assert!(is_stalled());
        waits.begin(wait(2, 20), |_| false).leave();
        drop(first);
        assert!(!is_stalled());
        std::mem::forget(waits.begin(wait(3, 30), |_| false));
        assert!(is_stalled(), "the parent's thread");
        waits.forget();
        assert!(!is_stalled(), "is not the child's");
    }

    #[test]
    fn an_entry_is_used_again_once_its_page_is_not_waited_for_and_its_guard_leaves_that_alone() {
        let waits = Waits::new();
        let first = waits.begin(wait(1, 10), |_| false);
        let second = waits.begin(wait(2, 20), |page| page == 1);
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(2, 20)]);
        drop(first);
        assert_eq!(waits.list().count(), 1);
        drop(second);
        assert_eq!(waits.list().count(), 0);
    }

    #[test]
    fn with_all_entries_taken_a_wait_goes_unseen() {
        let waits = Waits::new();
        let taken: Vec<_> =
            (0..WAITS_MAX).map(|page| waits.begin(wait(page as u32, 1), |_| false)).collect();
        drop(waits.begin(wait(99, 1), |_| false));
        assert_eq!(waits.list().count(), WAITS_MAX);
        drop(taken);
        assert_eq!(waits.list().count(), 0);
    }
}
