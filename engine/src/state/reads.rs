//! Memory for reads under way: a fixed number of records, so that a fault needs next to no stack.
//!
//! By signal a fault runs on the program's signal stack, often eight kilobytes of which the kernel's own
//! frame takes half. A reading thread holds a record from the first look at a window until its pages are
//! published; with all of them held the device has more than enough to do, and the next one waits.
use crate::base::index::{FrameIndex, NodeId, PageIndex, Slot};
use crate::base::limits::RUN_MAX;
use crate::base::log::Loss;
use crate::state::batch::Batch;
use crate::state::frame_set::FrameSet;
use crate::state::waits::{Entry, Wait};
use crate::sys::futex;
use crate::sys::lock::{Guard, Lock};
use crate::sys::request::Pieces;
use crate::sys::uffd::Access;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use userswap_policy::retry::Tries;

/// Reads under way at most: the server's, and one for each thread that reads itself.
const RECORDS_MAX: usize = 64;

/// What a read is made of.
pub struct ReadRecord {
    /// What it reads.
    pub batch: Batch,
    /// A frame for each entry, in the same order.
    pub frames: FrameSet,
    /// The node that the frames are of.
    pub node: NodeId,
    /// What becomes of the pages.
    pub landing: Landing,
    /// The page that a fault asks for, and what that was about to do; reading ahead has none.
    pub asked: Option<(PageIndex, Access)>,
    /// Where the bytes of the request under way go; stays in place while the device writes there.
    pub pieces: Pieces,
    /// Which request that is.
    pub stage: Stage,
    /// How often it has failed.
    pub tries: Tries,
    /// The entries whose pages have been read and are right, by index.
    pub good: u64,
    /// The entries whose request alone has succeeded, whatever it has brought.
    pub came: u64,
}

/// Which request of a read is under way.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Stage {
    /// The one for all of its pages.
    Whole,
    /// The one for a page that the first did not bring, by the index of its entry.
    Alone(u32),
}

const _: () = assert!(RUN_MAX <= u64::BITS, "a bit for each entry of a batch");

/// A record that is held; its pages are owned until the read is finished.
#[derive(Debug)]
#[must_use = "its pages are owned until it is finished"]
pub struct ReadJob(u32);

/// The records of all reads.
pub struct Reads {
    records: Box<[Lock<ReadRecord>]>,
    /// A bit for each record that is not held.
    free: AtomicU64,
    /// By record, which fault waits for it.
    waits: Box<[Entry]>,
    /// Counts records being given back; waited on by threads that find none.
    returned: AtomicU32,
}

impl Reads {
    /// No read is under way.
    pub fn new() -> Self {
        let record = || {
            Lock::new(ReadRecord {
                batch: Batch::new(),
                frames: FrameSet::new(),
                node: NodeId(0),
                landing: Landing::Mapped { marker: None },
                asked: None,
                pieces: Pieces::default(),
                stage: Stage::Whole,
                tries: Tries::default(),
                good: 0,
                came: 0,
            })
        };
        let records = (0..RECORDS_MAX).map(|_| record()).collect();
        let waits = (0..RECORDS_MAX).map(|_| Entry::default()).collect();
        Self { records, free: AtomicU64::new(u64::MAX), waits, returned: AtomicU32::new(0) }
    }

    /// A record of one's own; waits until there is one.
    pub fn take(&self) -> ReadJob {
        loop {
            let seen = self.returned.load(Ordering::Acquire);
            // Acquire pairs with the release in `give_back`: what the last holder did is visible.
            let free = self.free.load(Ordering::Acquire);
            let index = free.trailing_zeros();
            if index == u64::BITS {
                futex::wait(&self.returned, seen);
                continue;
            }
            if self.free.fetch_and(!(1 << index), Ordering::AcqRel) & 1 << index != 0 {
                return ReadJob(index);
            }
        }
    }

    /// How many are held.
    pub fn held(&self) -> u32 {
        self.free.load(Ordering::Relaxed).count_zeros()
    }

    /// The record of a job; only its holder asks, so no thread ever waits for this lock.
    pub fn record(&self, job: &ReadJob) -> Guard<'_, ReadRecord> {
        self.records[job.0 as usize].lock()
    }

    /// A fault waits for the read; whether it is the first.
    #[must_use]
    pub fn note_wait(&self, job: &ReadJob, wait: Wait) -> bool {
        let entry = &self.waits[job.0 as usize];
        let is_first = entry.read().is_none();
        if is_first {
            entry.set(wait);
        }
        is_first
    }

    /// The faults that wait for reads.
    pub fn waits(&self) -> impl Iterator<Item = Wait> {
        self.waits.iter().filter_map(Entry::read)
    }

    /// Lets others have the record; returns whether a fault waited for the read.
    pub fn give_back(&self, job: ReadJob) -> bool {
        let entry = &self.waits[job.0 as usize];
        let was_waited_for = entry.read().is_some();
        entry.clear();
        let before = self.free.fetch_or(1 << job.0, Ordering::Release);
        if before == 0 {
            self.returned.fetch_add(1, Ordering::Release);
            futex::wake_all(&self.returned);
        }
        was_waited_for
    }
}

/// What becomes of pages that were read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Landing {
    /// They are mapped, but for the marker.
    Mapped {
        /// The page whose use is told to its stream.
        marker: Option<PageIndex>,
    },
    /// They stay in their frames with a mark, but for the page that faulted.
    Marked,
}

impl ReadRecord {
    /// The first slot of the batch.
    pub fn slot(&self) -> Slot {
        self.batch.entries()[0].slot
    }

    /// The first slot of the request under way.
    pub fn requested(&self) -> Slot {
        match self.stage {
            Stage::Whole => self.batch.entries()[0].at,
            Stage::Alone(index) => self.batch.entries()[index as usize].at,
        }
    }

    /// The pieces are those of a request that has not been made yet, for all pages.
    pub fn begin(&mut self) {
        self.stage = Stage::Whole;
        self.tries = Tries::default();
        self.good = 0;
        self.came = 0;
    }

    /// Whether the page of the entry with this index has been read and is right.
    pub(crate) fn is_good(&self, index: u32) -> bool {
        self.good & 1 << index != 0
    }

    /// Why the page of the entry with this index, which is not good, is lost.
    pub(crate) fn loss(&self, index: u32) -> Loss {
        if self.came & 1 << index != 0 { Loss::Other } else { Loss::Unreadable }
    }

    /// The frame for the entry with this index.
    pub(crate) fn frame_at(&self, index: u32) -> FrameIndex {
        self.frames.run_at(index, 1).first
    }

    pub(crate) fn is_mapped(&self, page: PageIndex) -> bool {
        match self.landing {
            Landing::Mapped { marker } => marker != Some(page),
            Landing::Marked => self.asked.is_some_and(|(asked, _)| asked == page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_one_holder_at_a_time_however_many_want_one() {
        let jobs = Reads::new();
        let holders: Vec<AtomicU32> = (0..RECORDS_MAX).map(|_| AtomicU32::new(0)).collect();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..500 {
                        let held: Vec<_> = (0..RECORDS_MAX / 3).map(|_| jobs.take()).collect();
                        for job in held {
                            assert_eq!(holders[job.0 as usize].fetch_add(1, Ordering::SeqCst), 0);
                            holders[job.0 as usize].fetch_sub(1, Ordering::SeqCst);
                            jobs.give_back(job);
                        }
                    }
                });
            }
        });
        assert_eq!(jobs.free.into_inner(), u64::MAX);
    }

    #[test]
    fn a_thread_that_finds_no_record_waits_for_one() {
        let jobs = Reads::new();
        let mut held: Vec<_> = (0..RECORDS_MAX).map(|_| jobs.take()).collect();
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| jobs.take());
            jobs.give_back(held.pop().unwrap());
            jobs.give_back(waiter.join().unwrap());
        });
    }
}
