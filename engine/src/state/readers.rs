//! By what threads that read for themselves look for the end of a read, and whether they do: a few at a time, as the others want
//! CPUs.
use crate::sys::aio::{Reader, Seen};
use crate::sys::filters;
use crate::sys::lock::{Guard, Lock};
use crate::sys::process;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use userswap_policy::polling::{Ended, Poll, Polling, WaitFor};

/// Threads that look at once at most, however many CPUs there are.
const READERS_MAX: u32 = 16;

/// Reads after which looking pays: a process that has a context takes 32 ms longer to end, as long as its looks spare by then (15 µs each).
const READS_MIN: u32 = 2000;

/// The readers of an engine.
pub struct Readers {
    readers: Box<[Lock<Option<Reader>>]>,
    /// A bit for each reader that nobody has.
    free: AtomicU32,
    /// Reads that might have been looked for, without an order to look.
    reads: AtomicU32,
    /// The kernel has none to give, or a filter of system calls might kill for asking.
    is_without: AtomicBool,
    learned: Lock<Learned>,
}

/// What looks have taught.
#[derive(Default)]
struct Learned {
    polling: Polling,
    /// Times that a thread lost its CPU while it looked.
    preemptions: u64,
}

/// A reader that is held, and for how long to look.
pub struct Look<'r> {
    all: &'r Readers,
    index: u32,
    reader: Guard<'r, Option<Reader>>,
    look_ns: u64,
    preemptions: u64,
}

impl Readers {
    /// For threads on so many CPUs; none behind filters that may do harm.
    pub fn new(filters_are_harmless: bool) -> Self {
        let cpus = process::usable_cpus();
        // Whoever looks leaves as many to those who work.
        let count = (cpus / 2).min(READERS_MAX);
        Self {
            readers: (0..count).map(|_| Lock::new(None)).collect(),
            free: AtomicU32::new((1 << count) - 1),
            reads: AtomicU32::new(0),
            is_without: AtomicBool::new(!filters_are_harmless),
            learned: Lock::new(Learned::default()),
        }
    }

    /// What this thread looks by, when `reads` are under way, its own included; None if it had better sleep at once.
    pub fn look(&self, poll: Poll, reads: u32, now_ns: u64) -> Option<Look<'_>> {
        if poll == Poll::Off
            || reads as usize > self.readers.len()
            || self.is_without.load(Ordering::Relaxed)
            || filters::are_expected()
        {
            return None;
        }
        let is_ordered = matches!(poll, Poll::Micros(_));
        if !is_ordered && self.reads.fetch_add(1, Ordering::Relaxed) < READS_MIN {
            return None;
        }
        let look_ns = {
            let mut learned = self.learned.lock();
            let look_ns = learned.polling.look_ns(poll, WaitFor::Read, now_ns);
            if look_ns == 0 {
                learned.polling.on_wait(WaitFor::Read, Ended::Slept);
            }
            look_ns
        };
        if look_ns == 0 {
            return None;
        }
        let (index, mut reader) = self.take()?;
        if filters::are_expected() {
            self.free.fetch_or(1 << index, Ordering::Release);
            return None;
        }
        if reader.is_none() {
            *reader = Reader::new().ok();
        }
        if reader.is_none() {
            self.is_without.store(true, Ordering::Relaxed);
            self.free.fetch_or(1 << index, Ordering::Release);
            return None;
        }
        Some(Look { all: self, index, reader, look_ns, preemptions: process::preemptions() })
    }

    fn take(&self) -> Option<(u32, Guard<'_, Option<Reader>>)> {
        let free = self.free.load(Ordering::Relaxed);
        let index = free.trailing_zeros();
        // Acquire pairs with the release of whoever had it.
        let is_mine = index < u32::BITS
            && self.free.fetch_and(!(1 << index), Ordering::Acquire) & 1 << index != 0;
        is_mine.then(|| (index, self.readers[index as usize].lock()))
    }

    /// After fork, in the child: contexts of the parent are none of its own.
    pub fn renew(&self) {
        for reader in &self.readers {
            reader.lock().take().into_iter().for_each(Reader::leave_to_parent);
        }
        self.reads.store(0, Ordering::Relaxed);
        self.free.store((1 << self.readers.len()) - 1, Ordering::Relaxed);
    }
}

impl Look<'_> {
    /// By what.
    pub fn reader(&self) -> &Reader {
        self.reader.as_ref().expect("a look has one")
    }

    /// For how long, in nanoseconds.
    pub fn look_ns(&self) -> u64 {
        self.look_ns
    }

    /// The read has ended at `now_ns`.
    pub fn ended(self, seen: Seen, now_ns: u64) {
        let Self { all, index, reader, preemptions, .. } = self;
        drop(reader);
        all.free.fetch_or(1 << index, Ordering::Release);
        let ended = if seen == Seen::Looking { Ended::Answered } else { Ended::InVain };
        // A filter may refuse to say by now.
        let lost = process::preemptions().saturating_sub(preemptions);
        let mut learned = all.learned.lock();
        learned.preemptions += lost;
        let preemptions = learned.preemptions;
        learned.polling.on_preemptions(preemptions, now_ns);
        learned.polling.on_wait(WaitFor::Read, ended);
    }
}
