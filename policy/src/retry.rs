//! When a device's failed request is repeated, and for how long.
//!
//! What passes by itself (a path that fails over, memory that is short) is waited for with growing pauses, because a
//! page that is given up is lost for good. The same request is repeated at once first: most hiccups are over by then.

/// What an error says about the next try.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Trouble {
    /// The request was cut short by something that has nothing to do with the device.
    Interrupted,
    /// It usually passes: no memory, no answer in time, no path at the moment.
    Passing,
    /// It may: a device says the same of a bad spot, of a lost path and of its own end.
    Doubtful,
    /// Another try will find the same.
    Lasting,
}

/// Repeats at once, whatever the trouble.
const AT_ONCE: u32 = 1;

/// Repeats of an interrupted request, which make progress or meet another trouble soon.
const INTERRUPTED_MAX: u32 = 100;

/// The first pause: what a queue in the device needs to drain.
const PAUSE_MIN_NS: u64 = 1_000_000;

/// The longest pause: a device that is back is found within a second.
const PAUSE_MAX_NS: u64 = 1_000_000_000;

/// What is doubtful is waited for this part of the time for what passes: a bad spot stays bad.
const DOUBTFUL_DIVISOR: u64 = 6;

/// The tries of one request.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Tries {
    /// Failed so far.
    failed: u32,
    /// When the first one failed.
    since_ns: u64,
}

impl Tries {
    /// A try failed at `now_ns`; the moment of the next one, or None when `patience_ns` is over.
    pub fn again(&mut self, trouble: Trouble, now_ns: u64, patience_ns: u64) -> Option<u64> {
        if self.failed == 0 {
            self.since_ns = now_ns;
        }
        self.failed += 1;
        let patience = match trouble {
            Trouble::Interrupted if self.failed <= INTERRUPTED_MAX => return Some(now_ns),
            _ if self.failed <= AT_ONCE => return Some(now_ns),
            Trouble::Interrupted | Trouble::Lasting => 0,
            Trouble::Passing => patience_ns,
            Trouble::Doubtful => patience_ns / DOUBTFUL_DIVISOR,
        };
        let doublings = (self.failed - AT_ONCE - 1).min(PAUSE_MAX_NS.ilog2());
        let pause = (PAUSE_MIN_NS << doublings.min(20)).min(PAUSE_MAX_NS);
        let end = self.since_ns + patience;
        // The last try is at the very end, so that a trouble of that length is outlasted.
        (now_ns < end).then(|| (now_ns + pause).min(end))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// The moments at which a request is tried again that always fails, at once.
    fn moments(trouble: Trouble, patience_ns: u64) -> Vec<u64> {
        let (mut tries, mut now) = (Tries::default(), 5 * SECOND_NS);
        let next = || {
            now = tries.again(trouble, now, patience_ns)?;
            Some(now - 5 * SECOND_NS)
        };
        std::iter::from_fn(next).collect()
    }

    #[test]
    fn what_passes_is_tried_to_the_end_of_the_patience_with_pauses_that_grow() {
        let moments = moments(Trouble::Passing, 30 * SECOND_NS);
        assert_eq!((moments[0], moments[1]), (0, 1_000_000));
        assert_eq!(moments.last(), Some(&(30 * SECOND_NS)));
        let pauses: Vec<u64> = moments.windows(2).map(|pair| pair[1] - pair[0]).collect();
        let growing = &pauses[..pauses.len() - 1];
        assert!(growing.is_sorted() && growing.last() == Some(&SECOND_NS), "{pauses:?}");
        assert!(moments.len() < 50, "{}", moments.len());
    }

    #[test]
    fn a_doubtful_error_gets_a_sixth_of_that_and_a_lasting_one_a_second_try() {
        assert_eq!(moments(Trouble::Doubtful, 30 * SECOND_NS).last(), Some(&(5 * SECOND_NS)));
        assert_eq!(moments(Trouble::Lasting, 30 * SECOND_NS), [0]);
    }

    #[test]
    fn without_patience_there_is_one_repeat_at_once() {
        for trouble in [Trouble::Passing, Trouble::Doubtful, Trouble::Lasting] {
            assert_eq!(moments(trouble, 0), [0]);
        }
    }

    #[test]
    fn interruptions_end_some_time() {
        assert_eq!(moments(Trouble::Interrupted, 0).len(), INTERRUPTED_MAX as usize);
    }
}
