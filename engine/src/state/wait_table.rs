//! Room for the waits that the watchdog is to see. Threads take entries without a lock, also in a signal handler.
//!
//! An entry is a hint, and may outlive its wait: what it says counts as long as the page's word says that the page is owned.
use crate::base::index::PageIndex;
use crate::sys::sync::{AtomicI32, AtomicU32, AtomicU64, Ordering};

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

/// In the place of a moment: nobody has the entry.
const FREE: u64 = 0;

/// The same: its new owner is still writing.
const TAKEN: u64 = 1;

/// Room for one wait. What is beside the moment may be read as long as that stays the same.
#[derive(Debug, Default)]
pub struct Entry {
    since_ns: AtomicU64,
    thread: AtomicI32,
    /// One more than the page; 0 for a frame.
    page: AtomicU32,
}

impl Entry {
    /// Says what is waited for; the caller owns the entry, or nobody reads it yet.
    pub fn set(&self, wait: Wait) {
        let page = match wait.waited {
            Waited::Page(page) => page + 1,
            Waited::Frame => 0,
        };
        self.thread.store(wait.thread, Ordering::Relaxed);
        self.page.store(page, Ordering::Relaxed);
        self.since_ns.store(wait.since_ns, Ordering::Release);
    }

    /// Takes the entry for a wait, if it is free, or its page is one for which nobody can be waiting.
    fn takes(&self, wait: Wait, is_over: impl Fn(PageIndex) -> bool) -> bool {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let is_free = since_ns == FREE || self.is_over(since_ns, is_over);
        let takes = is_free && self.passes(since_ns, TAKEN);
        if takes {
            self.set(wait);
        }
        takes
    }

    /// Nobody has the entry any more, if its page is one for which nobody can be waiting.
    fn sweep(&self, is_over: impl Fn(PageIndex) -> bool) {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        if self.is_over(since_ns, is_over) {
            self.end(since_ns);
        }
    }

    fn is_over(&self, since_ns: u64, is_over: impl Fn(PageIndex) -> bool) -> bool {
        match self.waited() {
            Waited::Page(page) => since_ns > TAKEN && is_over(page),
            Waited::Frame => false,
        }
    }

    /// A wait is over. The entry may be another's by now: then the page was free meanwhile.
    pub fn end(&self, since_ns: u64) {
        self.passes(since_ns, FREE);
    }

    fn passes(&self, from_ns: u64, to_ns: u64) -> bool {
        let (done, kept) = (Ordering::AcqRel, Ordering::Relaxed);
        self.since_ns.compare_exchange(from_ns, to_ns, done, kept).is_ok()
    }

    fn waited(&self) -> Waited {
        match self.page.load(Ordering::Relaxed) {
            0 => Waited::Frame,
            page => Waited::Page(page - 1),
        }
    }

    /// Nobody waits here.
    pub fn clear(&self) {
        self.since_ns.store(FREE, Ordering::Relaxed);
    }

    /// What is waited for, if anything is. A watchdog that reads half of two waits writes one odd line.
    pub fn read(&self) -> Option<Wait> {
        let since_ns = self.since_ns.load(Ordering::Acquire);
        let (waited, thread) = (self.waited(), self.thread.load(Ordering::Relaxed));
        (since_ns > TAKEN).then_some(Wait { waited, thread, since_ns })
    }
}

/// Entries for so many waits; a thread that finds no room is not watched, but those it waits with are.
#[derive(Debug)]
pub struct WaitTable<const ROOM: usize> {
    entries: [Entry; ROOM],
}

impl<const ROOM: usize> WaitTable<ROOM> {
    /// Nobody waits.
    pub fn new() -> Self {
        Self { entries: std::array::from_fn(|_| Entry::default()) }
    }

    /// An entry for a wait; `is_over` says of a page whether nobody can be waiting for it, so that the entries of waits
    /// whose end nobody told can be used again.
    pub fn begin(&self, wait: Wait, is_over: impl Fn(PageIndex) -> bool) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.takes(wait, &is_over))
    }

    /// All of them.
    pub fn list(&self) -> impl Iterator<Item = Wait> {
        self.entries.iter().filter_map(Entry::read)
    }

    /// Gives back the entries of waits that are over, as [`WaitTable::begin`] has it.
    pub fn sweep(&self, is_over: impl Fn(PageIndex) -> bool) {
        self.entries.iter().for_each(|entry| entry.sweep(&is_over));
    }

    /// There are none any more.
    pub fn clear(&self) {
        self.entries.iter().for_each(Entry::clear);
    }
}
