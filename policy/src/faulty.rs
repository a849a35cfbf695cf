//! A plan of failures, for tests: which requests of a device fail, tear, lie or are late.
//!
//! Everything follows from the plan's seed and the request's number or place, so that a run can be repeated as far as
//! its requests come in the same order. What a failure looks like to the engine is for its I/O.

/// A share of all requests, or of all slots, in millionths.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Share(u32);

impl Share {
    const WHOLE: u32 = 1_000_000;

    /// So many millionths; None above one.
    pub fn of_millionths(millionths: u32) -> Option<Self> {
        (millionths <= Self::WHOLE).then_some(Self(millionths))
    }

    /// In millionths.
    pub fn millionths(self) -> u32 {
        self.0
    }

    fn takes(self, random: u64) -> bool {
        random % u64::from(Self::WHOLE) < u64::from(self.0)
    }
}

/// Consecutive requests, by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Outage {
    /// The first that fails.
    pub first: u64,
    /// How many fail.
    pub count: u64,
}

/// Requests that are late.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Late {
    /// Which.
    pub share: Share,
    /// By how much, in milliseconds.
    pub ms: u32,
}

crate::named_choice! {
    /// What a failing request says, by the names of errno(3).
    #[derive(Default)]
    pub enum Failure, "device error" {
        /// A bad spot, or a lost device.
        #[default]
        Io = "EIO",
        /// No such device or address.
        NoAddress = "ENXIO",
        /// No such device.
        NoDevice = "ENODEV",
        /// No room.
        NoSpace = "ENOSPC",
        /// No memory at the moment.
        NoMemory = "ENOMEM",
        /// Not at the moment.
        Again = "EAGAIN",
        /// No answer in time.
        TimedOut = "ETIMEDOUT",
        /// A signal came.
        Interrupted = "EINTR",
    }
}

/// What fails; nothing does by default.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Plan {
    /// Makes another run of failures.
    pub seed: u64,
    /// Reads that fail.
    pub read: Share,
    /// Writes that fail.
    pub write: Share,
    /// What failing requests say.
    pub error: Failure,
    /// Slots that can never be read.
    pub bad: Share,
    /// Writes of which only a part arrives, though they say that all did.
    pub torn: Share,
    /// Reads that bring a wrong bit, though they say that all is well.
    pub flip: Share,
    /// Requests that end half-way, and say so.
    pub short: Share,
    /// Requests that take their time.
    pub late: Option<Late>,
    /// All requests fail for a while.
    pub outage: Option<Outage>,
    /// Writes fail for want of room from this request on.
    pub full: Option<u64>,
    /// The device is gone from this request on.
    pub gone: Option<u64>,
}

/// What befalls a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mishap {
    /// It fails as the plan says.
    Fails,
    /// A slot of it cannot be read.
    Bad,
    /// There is no room.
    Full,
    /// There is no device any more.
    Gone,
    /// Only a part arrives, and it says that all did.
    Torn,
    /// A bit is wrong.
    Flipped,
    /// It ends half-way, and says so.
    Short,
}

/// A request, as the plan sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Asked {
    /// So many slots are read, from `first` on.
    Read {
        /// The slot with the lowest number.
        first: u32,
        /// Number of slots.
        slots: u32,
    },
    /// Some are written.
    Write,
}

/// What becomes of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fate {
    /// What befalls it, if anything.
    pub mishap: Option<Mishap>,
    /// How late it is, in milliseconds.
    pub late_ms: u32,
}

impl Plan {
    /// What becomes of the request with this number, counted from 0.
    pub fn fate(&self, number: u64, asked: Asked) -> Fate {
        let late = self.late.filter(|late| late.share.takes(self.random(number, 1)));
        Fate { mishap: self.mishap(number, asked), late_ms: late.map_or(0, |late| late.ms) }
    }

    fn mishap(&self, number: u64, asked: Asked) -> Option<Mishap> {
        let takes = |share: Share, what: u64| share.takes(self.random(number, what));
        if self.gone.is_some_and(|first| number >= first) {
            return Some(Mishap::Gone);
        }
        if self.outage.is_some_and(|out| number >= out.first && number - out.first < out.count) {
            return Some(Mishap::Fails);
        }
        match asked {
            Asked::Read { first, slots } if self.has_bad(first, slots) => Some(Mishap::Bad),
            Asked::Read { .. } if takes(self.read, 2) => Some(Mishap::Fails),
            Asked::Read { .. } if takes(self.flip, 3) => Some(Mishap::Flipped),
            Asked::Write if self.full.is_some_and(|first| number >= first) => Some(Mishap::Full),
            Asked::Write if takes(self.write, 4) => Some(Mishap::Fails),
            Asked::Write if takes(self.torn, 5) => Some(Mishap::Torn),
            _ if takes(self.short, 6) => Some(Mishap::Short),
            _ => None,
        }
    }

    /// Whether one of these slots can never be read.
    pub fn has_bad(&self, first: u32, slots: u32) -> bool {
        let is_bad = |slot: u32| self.bad.takes(self.random(u64::from(slot), 7));
        self.bad != Share::default() && (first..first + slots).any(is_bad)
    }

    /// A number that looks random, the same for the same seed, place and purpose.
    fn random(&self, place: u64, purpose: u64) -> u64 {
        let mut mixed = self.seed ^ place.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ purpose << 56;
        for multiplier in [0xBF58_476D_1CE4_E5B9, 0x94D0_49BB_1331_11EB] {
            mixed = (mixed ^ mixed >> 30).wrapping_mul(multiplier);
        }
        (mixed ^ mixed >> 31) >> 16
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READ: Asked = Asked::Read { first: 1, slots: 1 };

    fn plan() -> Plan {
        Plan { seed: 7, ..Plan::default() }
    }

    fn met(plan: &Plan, asked: Asked, requests: u64) -> usize {
        (0..requests).filter(|number| plan.fate(*number, asked).mishap.is_some()).count()
    }

    #[test]
    fn a_plan_without_failures_lets_everything_pass() {
        assert_eq!(met(&plan(), READ, 10_000) + met(&plan(), Asked::Write, 10_000), 0);
    }

    #[test]
    fn as_many_requests_fail_as_the_share_says_and_others_with_another_seed() {
        let share = Share::of_millionths(10_000).unwrap();
        let writes = Plan { write: share, ..plan() };
        assert!((900..1100).contains(&met(&writes, Asked::Write, 100_000)));
        assert_eq!(met(&writes, READ, 10_000), 0);
        let failing = |seed: u64| {
            let plan = Plan { seed, write: share, ..plan() };
            let fails = |n: &u64| plan.fate(*n, Asked::Write).mishap.is_some();
            (0..10_000).filter(fails).collect::<Vec<_>>()
        };
        assert_eq!(failing(7), failing(7));
        assert_ne!(failing(7), failing(8));
    }

    #[test]
    fn a_bad_slot_is_bad_for_every_request_that_reads_it() {
        let plan = Plan { bad: Share::of_millionths(50_000).unwrap(), ..plan() };
        let bad: Vec<u32> = (1..1000).filter(|slot| plan.has_bad(*slot, 1)).collect();
        assert!((20..90).contains(&bad.len()), "{}", bad.len());
        for (number, slot) in (0..).zip(&bad) {
            let around = Asked::Read { first: slot - 1, slots: 3 };
            assert_eq!(plan.fate(number, around).mishap, Some(Mishap::Bad));
        }
        assert_eq!(met(&plan, Asked::Write, 1000), 0);
    }

    #[test]
    fn outages_end_and_a_device_that_is_gone_stays_so() {
        let plan = Plan { outage: Some(Outage { first: 5, count: 3 }), gone: Some(20), ..plan() };
        let fates: Vec<_> = (0..22).map(|number| plan.fate(number, READ).mishap).collect();
        let expected = |number| match number {
            5..8 => Some(Mishap::Fails),
            20.. => Some(Mishap::Gone),
            _ => None,
        };
        assert_eq!(fates, (0..22).map(expected).collect::<Vec<_>>());
        let full = Plan { full: Some(3), ..plan };
        assert_eq!(full.fate(4, Asked::Write).mishap, Some(Mishap::Full));
        assert_eq!(full.fate(4, READ).mishap, None);
    }

    #[test]
    fn late_requests_are_late_by_what_the_plan_says() {
        let late = Late { share: Share::of_millionths(1_000_000).unwrap(), ms: 9 };
        assert_eq!(Plan { late: Some(late), ..plan() }.fate(0, READ).late_ms, 9);
        assert_eq!(plan().fate(0, READ).late_ms, 0);
    }
}
