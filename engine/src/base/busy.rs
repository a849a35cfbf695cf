//! For how long at least one of many was at something, as the kernel counts pressure: threads that wait, requests of a
//! device that are under way. Two at once count once.
//!
//! One word, so that it can be changed at any moment, by a signal handler or after a fork: how many there are, and, with
//! none, the time so far, else that time taken off the moment. It begins and ends with one exchange each.
use crate::sys::clock;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bits that count how many there are: more threads than a machine has.
const COUNT_BITS: u32 = 20;

/// How many there are.
const COUNT: u64 = (1 << COUNT_BITS) - 1;

/// Nanoseconds of a tick: well below the shortest read, and the other bits last for 208 days of waiting.
const TICK_NS: u64 = 1 << 10;

/// The time in which at least one was at it.
#[derive(Debug, Default)]
pub struct Busy {
    word: AtomicU64,
    /// The most that was told: an end is of the moment at which it looked at the clock, which can be a while before
    /// others see it.
    told: AtomicU64,
}

impl Busy {
    /// One more is at it, until [`Self::end`].
    pub fn begin(&self) {
        self.change(|word| if word & COUNT == 0 { turned(word) + 1 } else { word + 1 });
    }

    /// One has ended.
    pub fn end(&self) {
        self.change(|word| {
            assert!(word & COUNT > 0, "only what has begun ends");
            if word & COUNT == 1 { turned(word - 1) } else { word - 1 }
        });
    }

    /// Nanoseconds so far, in whole ticks: those of what is under way included. Never less than was told before.
    pub fn ns(&self) -> u64 {
        // As in `change`.
        let word = self.word.load(Ordering::Acquire);
        let time = if word & COUNT == 0 { word } else { turned(word) };
        let ns = (time >> COUNT_BITS) * TICK_NS;
        self.told.fetch_max(ns, Ordering::Relaxed).max(ns)
    }

    /// Nobody is at it any more: in a forked child, whose other threads are the parent's.
    pub fn forget(&self) {
        self.change(|word| if word & COUNT == 0 { word } else { turned(word & !COUNT) });
    }

    /// Nobody was ever at it.
    pub fn reset(&self) {
        self.word.store(0, Ordering::Relaxed);
        self.told.store(0, Ordering::Relaxed);
    }

    fn change(&self, next: impl Fn(u64) -> u64) {
        // Acquire and release pair with each other: who sees a word reads a clock that is not behind the one it was
        // made with, and no time is counted twice.
        let change = |word| Some(next(word));
        let _ = self.word.fetch_update(Ordering::AcqRel, Ordering::Acquire, change);
    }
}

/// The moment less the time: makes one of the two forms of a word the other. The count stays as it is.
fn turned(word: u64) -> u64 {
    let moment = clock::now_ns() / TICK_NS;
    let time = moment.wrapping_sub(word >> COUNT_BITS);
    time << COUNT_BITS | word & COUNT
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wait_ticks(ticks: u64) {
        let until = clock::now_ns() + ticks * TICK_NS;
        while clock::now_ns() < until {
            std::hint::spin_loop();
        }
    }

    #[test]
    fn two_at_once_count_once_and_nothing_counts_between() {
        let busy = Busy::default();
        let before = clock::now_ns();
        busy.begin();
        busy.begin();
        wait_ticks(50);
        busy.end();
        let first = busy.ns();
        wait_ticks(50);
        busy.end();
        let took = clock::now_ns() - before;
        let seen = busy.ns();
        assert!(first >= 49 * TICK_NS && seen >= 99 * TICK_NS, "{first} {seen}");
        assert!(seen <= took + TICK_NS, "{seen} of {took}");
        wait_ticks(50);
        assert_eq!(busy.ns(), seen, "nobody was at it");
        busy.begin();
        busy.end();
        assert!(busy.ns() >= seen);
    }

    #[test]
    fn a_child_keeps_the_time_and_forgets_the_others() {
        let busy = Busy::default();
        busy.begin();
        wait_ticks(20);
        busy.forget();
        let seen = busy.ns();
        assert!(seen >= 19 * TICK_NS, "{seen}");
        wait_ticks(20);
        assert_eq!(busy.ns(), seen);
        busy.begin();
        busy.end();
    }

    #[test]
    fn with_many_threads_the_time_only_grows_and_is_never_more_than_has_passed() {
        let busy = Busy::default();
        let before = clock::now_ns();
        std::thread::scope(|scope| {
            for _ in 0..3 {
                scope.spawn(|| {
                    for _ in 0..20_000 {
                        busy.begin();
                        busy.end();
                    }
                });
            }
            let mut last = 0;
            for _ in 0..20_000 {
                let now = busy.ns();
                assert!(now >= last, "{now} after {last}");
                last = now;
            }
        });
        assert!(busy.ns() <= clock::now_ns() - before + TICK_NS);
        assert_eq!(busy.word.load(Ordering::Relaxed) & COUNT, 0);
    }
}
