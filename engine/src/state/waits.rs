//! Who waits for a page, and since when: what the watchdog looks at (`fault/watchdog.rs`).
//!
//! Only a thread that is about to sleep, or whose read is about to start, writes here: a fault that is served at once
//! touches none of it. The entries are in `wait_table.rs`.
use crate::base::busy::Busy;
use crate::base::index::PageIndex;
use crate::state::wait_table::WaitTable;
pub use crate::state::wait_table::{Entry, Wait, Waited};
use crate::sys::clock;
use std::sync::atomic::{AtomicU32, AtomicU64};

/// Waits that are seen at once.
const WAITS_MAX: usize = 64;

/// How long a fault may wait at the start before that is reported: half of what the kernel allows a task that hangs.
pub const LIMIT_NS: u64 = 60_000_000_000;

/// All waits, and how long they may take.
#[derive(Debug)]
pub struct Waits {
    table: WaitTable<WAITS_MAX>,
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
            entry.end(since_ns);
        }
    }
}

impl Waits {
    /// Nobody waits.
    pub fn new() -> Self {
        Self {
            table: WaitTable::new(),
            limit_ns: AtomicU64::new(LIMIT_NS),
            changes: AtomicU32::new(0),
            stalled: Busy::default(),
        }
    }

    /// A thread begins to wait; `is_over` as [`WaitTable::begin`] has it.
    pub fn begin(&self, wait: Wait, is_over: impl Fn(PageIndex) -> bool) -> Waiting<'_> {
        self.stalled.begin();
        let entry = self.table.begin(wait, is_over);
        Waiting { entry: entry.map(|entry| (entry, wait.since_ns)), stalled: &self.stalled }
    }

    /// A wait of this thread, from now on.
    pub fn of_this_thread(waited: Waited) -> Wait {
        Wait { waited, thread: clock::thread_id(), since_ns: clock::now_ns() }
    }

    /// All of them.
    pub fn list(&self) -> impl Iterator<Item = Wait> {
        self.table.list()
    }

    /// Forgets waits that are over without their end having been told, by [`Waiting::leave`]: a page that is owned again
    /// later must not look as if they went on.
    pub fn sweep(&self, is_over: impl Fn(PageIndex) -> bool) {
        self.table.sweep(is_over);
    }

    /// In a forked child, whose other threads are the parent's.
    pub fn forget(&self) {
        self.table.clear();
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
    fn a_wait_that_was_left_is_swept_once_its_page_is_free_and_does_not_come_back() {
        let waits = Waits::new();
        let told = waits.begin(wait(1, 10), |_| false);
        waits.begin(wait(2, 20), |_| false).leave();
        let frame = Wait { waited: Waited::Frame, ..wait(3, 30) };
        let for_frame = waits.begin(frame, |_| false);
        waits.sweep(|_| false);
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(1, 10), wait(2, 20), frame]);
        waits.sweep(|page| page == 2);
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(1, 10), frame]);
        // What was swept may be another's before its own guard ends it.
        waits.sweep(|_| true);
        let later = waits.begin(wait(4, 40), |_| false);
        drop(told);
        assert_eq!(waits.list().collect::<Vec<_>>(), [wait(4, 40), frame]);
        drop((later, for_frame));
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
