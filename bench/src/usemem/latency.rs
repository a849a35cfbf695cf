//! How long single reads took, of those that did not find their page at hand.

use super::report;
use hdrhistogram::Histogram;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A read that takes longer than this was a fault: a hit is a cache miss and a walk of page tables at most.
const HIT_NS_MAX: u64 = 1000;
/// Three digits of each time are kept.
const DIGITS: u8 = 3;

/// The times of one thread, or of all together.
pub(super) struct Latencies {
    times: Histogram<u64>,
    reads: u64,
}

impl Latencies {
    pub(super) fn new() -> Self {
        let times = Histogram::new(DIGITS).expect("three digits are in its range");
        Self { times, reads: 0 }
    }

    pub(super) fn note(&mut self, taken: Duration) {
        self.reads += 1;
        let nanos = u64::try_from(taken.as_nanos()).unwrap_or(u64::MAX);
        if nanos > HIT_NS_MAX {
            self.times.record(nanos).expect("a histogram that grows has room for any time");
        }
    }

    pub(super) fn add_to(&self, all: &Mutex<Self>) {
        let mut all = all.lock().unwrap_or_else(PoisonError::into_inner);
        all.reads += self.reads;
        all.times.add(&self.times).expect("a histogram that grows has room for another");
    }

    /// What is said of them, if there are any.
    pub(super) fn line(&self) -> Option<String> {
        let at = |share| self.times.value_at_quantile(share);
        let said = || report::latencies((self.times.len(), self.reads), at(0.5), at(0.99));
        (!self.times.is_empty()).then(said)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_but_have_no_part_in_the_times() {
        let all = Mutex::new(Latencies::new());
        for part in 0..2u64 {
            let mut latencies = Latencies::new();
            (0..50).for_each(|read| latencies.note(Duration::from_micros(10 + 50 * part + read)));
            (0..900).for_each(|_| latencies.note(Duration::from_nanos(80)));
            latencies.add_to(&all);
        }
        let line = all.into_inner().unwrap().line();
        let expected = "100 of 1900 reads were faults: 59.0 usecs half of them, 108.0 usecs 99 %\n";
        assert_eq!(line.as_deref(), Some(expected));
        assert_eq!(Latencies::new().line(), None);
    }
}
