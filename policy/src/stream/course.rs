//! How far a stream has come, and how a fault lies to that.
use super::Ahead;
use crate::readahead::Limits;

/// How far out of order pages may come: within a cache line of 8-byte entries.
pub(super) const DISORDER: i64 = 8;

/// Where a stream is and what it expects.
#[derive(Clone, Copy, Debug)]
pub(super) enum Course {
    Unused,
    /// One window was served: expects `end`, the page before `first`, or the one `stride` from it.
    Started {
        first: u32,
        end: u32,
        stride: Option<i32>,
    },
    /// Expects `next`, the page after everything read; from `ahead_first` to there is being read ahead.
    Running {
        step: i32,
        ahead_first: i64,
        next: i64,
        /// The page that is expected if the stream turns round.
        turn: Option<i64>,
        window: u32,
        ahead: Option<Ahead>,
    },
}

/// How a page lies to a stream's course.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// It is expected: the stream goes on by its step.
    Next(i32),
    /// It is expected a little later: the stream goes on from the page that it expects.
    Near { step: i32, from: i64 },
    /// It lies the other way: the stream goes on by this step from the page that it expects there.
    Turn { step: i32, from: i64 },
    /// It would give a new stream this step.
    Begin(i32),
    /// It was served already by a stream that has no step yet.
    Served,
    /// In what is being read already.
    Inside,
    /// A little after what is expected.
    Jump(i32),
}

impl Relation {
    /// Which relation wins if several streams claim a page: the smallest.
    pub(super) fn rank(self) -> u32 {
        match self {
            Self::Next(_) => 0,
            Self::Begin(1 | -1) => 1,
            Self::Near { .. } => 2,
            Self::Turn { .. } => 3,
            Self::Begin(_) => 4,
            Self::Served => 5,
            Self::Inside => 6,
            Self::Jump(_) => 7,
        }
    }
}

impl Course {
    pub(super) fn relation(&self, page: u32) -> Option<Relation> {
        match *self {
            Self::Unused => None,
            Self::Started { first, end, .. } if (first..end).contains(&page) => {
                Some(Relation::Served)
            }
            Self::Started { end, .. } if page == end => Some(Relation::Begin(1)),
            Self::Started { first, .. } if page.checked_add(1) == Some(first) => {
                Some(Relation::Begin(-1))
            }
            Self::Started { first, stride, .. } => stride
                .filter(|stride| i64::from(page) == i64::from(first) + i64::from(*stride))
                .map(Relation::Begin),
            Self::Running { step, turn: Some(turn), .. }
                if (0..DISORDER).contains(&((i64::from(page) - turn) * -i64::from(step))) =>
            {
                Some(Relation::Turn { step: -step, from: turn })
            }
            Self::Running { step, ahead_first, next, window, .. } => {
                let steps = |from: i64| (i64::from(page) - from).checked_div(step.into());
                if (i64::from(page) - next) % i64::from(step) != 0 {
                    return None;
                }
                match steps(next)? {
                    0 => Some(Relation::Next(step)),
                    beyond @ 1.. if beyond < DISORDER.min(window.into()) => {
                        Some(Relation::Near { step, from: next })
                    }
                    beyond @ 1.. => (beyond < window.into()).then_some(Relation::Jump(step)),
                    _ => (steps(ahead_first)? >= 0).then_some(Relation::Inside),
                }
            }
        }
    }

    /// Pages of the next window.
    pub(super) fn grown(&self, limits: &Limits) -> u32 {
        let window = match *self {
            Self::Unused | Self::Started { .. } => limits.run_first,
            // A hit proves the scan goes on; doubling reaches the best request size in few faults.
            Self::Running { window, .. } => window.saturating_mul(2),
        };
        window.min(limits.run_max).max(1)
    }

    /// Pages of the last window.
    pub(super) fn window(&self) -> u32 {
        match *self {
            Self::Unused | Self::Started { .. } => 1,
            Self::Running { window, .. } => window,
        }
    }

    pub(super) fn ahead(&self) -> Option<Ahead> {
        match self {
            Self::Running { ahead, .. } => *ahead,
            Self::Unused | Self::Started { .. } => None,
        }
    }
}
