//! Polling: for how long the server looks for work before it sleeps, and which faults are dense enough to keep idle CPUs from halting.
//!
//! Waking a thread on a CPU that has halted takes longer than most of the waits that it ends. So the server looks on for a
//! while, where that has paid: as KVM polls for a halted guest, whose rule for the time is not usable here, since it goes
//! by how long a sleep took, and a sleep takes long because of the very wake-up that looking saves. What counts is which looks were
//! answered. Looking takes a CPU, which costs nothing only while no other work wants it.

use crate::choice::Unknown;
use core::str::FromStr;
use core::{fmt, mem};

/// Longest that a setting may ask for, in microseconds: beyond that the kernel's tick ends most spins anyway.
pub const POLL_MAX_US: u16 = 1000;

/// Values of `poll`.
const ALLOWED: [&str; 4] = ["auto", "off", "idle", "a number of microseconds from 1 to 1000"];

/// Whether waiting begins with looking.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Poll {
    /// For as long as that pays, and while no other work wants the CPU.
    Auto,
    /// Sleep at once.
    Off,
    /// As `Auto`, and idle CPUs are kept from halting while faults are dense.
    Idle,
    /// For so many microseconds, whatever comes of it.
    Micros(u16),
}

impl fmt::Display for Poll {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.pad(ALLOWED[0]),
            Self::Off => f.pad(ALLOWED[1]),
            Self::Idle => f.pad(ALLOWED[2]),
            Self::Micros(number) => number.fmt(f),
        }
    }
}

impl FromStr for Poll {
    type Err = Unknown;

    fn from_str(text: &str) -> Result<Self, Unknown> {
        let unknown = || Unknown::new(text, "way of polling", &ALLOWED);
        match text {
            "auto" => Ok(Self::Auto),
            "off" => Ok(Self::Off),
            "idle" => Ok(Self::Idle),
            digits if digits.bytes().all(|byte| byte.is_ascii_digit()) => {
                let number =
                    digits.parse().ok().filter(|number| (1..=POLL_MAX_US).contains(number));
                number.map(Self::Micros).ok_or_else(unknown)
            }
            _ => Err(unknown()),
        }
    }
}

/// What a wait is for: each has a length of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WaitFor {
    /// The next fault.
    Fault,
    /// A device that reads.
    Read,
}

/// How a wait has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ended {
    /// Something came while the server looked.
    Answered,
    /// It looked in vain, and slept.
    InVain,
    /// It slept at once.
    Slept,
}

/// For how long to look for a fault, in nanoseconds. Longer gained nothing.
const LOOK_NS: u64 = 50_000;

/// For how long to look for the end of a read, in nanoseconds: a disk of today that also writes has read a page by then.
const READ_LOOK_NS: u64 = 100_000;

/// What looks in vain double is at most two to this: waits to sleep through before the next look.
const DOUBLINGS_MAX: u32 = 6;

/// Without looking after other work had wanted the CPU, in nanoseconds: a few turns of the scheduler's.
const REST_NS: u64 = 10_000_000;

/// Looks between two preemptions that make the second one an accident: the kernel's own threads take the CPU at times. Beside a
/// load of 10 on four CPUs there was one for every sixth sleep.
const UNDISTURBED: u32 = 64;

/// For how long to look.
#[derive(Debug, Default)]
pub struct Polling {
    faults: Pay,
    reads: Pay,
    rest_until_ns: u64,
    /// How often the last rest was doubled.
    rests: u32,
    /// Times that the kernel had taken the CPU away, by the last look, and looks since they last became more.
    preemptions: u64,
    undisturbed: u32,
}

/// Whether looking pays for waits of one kind: each look in vain doubles the waits before the next one, each that was
/// answered halves them. Where more are answered than not, there is one at each wait.
#[derive(Debug, Default)]
struct Pay {
    doublings: u32,
    /// Waits to sleep through.
    skipped: u32,
}

impl Pay {
    fn on_wait(&mut self, ended: Ended) {
        match ended {
            Ended::Answered => self.doublings = self.doublings.saturating_sub(1),
            Ended::InVain => self.doublings = (self.doublings + 1).min(DOUBLINGS_MAX),
            Ended::Slept => {
                self.skipped = self.skipped.saturating_sub(1);
                return;
            }
        }
        self.skipped = (1 << self.doublings) - 1;
    }
}

impl Polling {
    /// Nanoseconds to look for before sleeping, at `now_ns`.
    pub fn look_ns(&mut self, poll: Poll, wait: WaitFor, now_ns: u64) -> u64 {
        match poll {
            Poll::Off => 0,
            Poll::Micros(number) => u64::from(number) * 1000,
            Poll::Auto | Poll::Idle if now_ns < self.rest_until_ns => 0,
            Poll::Auto | Poll::Idle => match (self.pay(wait).skipped, wait) {
                (0, WaitFor::Fault) => LOOK_NS,
                (0, WaitFor::Read) => READ_LOOK_NS,
                _ => 0,
            },
        }
    }

    /// A wait has ended.
    pub fn on_wait(&mut self, wait: WaitFor, ended: Ended) {
        self.pay(wait).on_wait(ended);
    }

    /// So often has the kernel taken the CPU away from the server, which is about to look at `now_ns`. Where that happens again
    /// and again there is no look for a while, which is longer the sooner this comes after the last one.
    pub fn on_preemptions(&mut self, preemptions: u64, now_ns: u64) {
        if mem::replace(&mut self.preemptions, preemptions) == preemptions {
            self.undisturbed = self.undisturbed.saturating_add(1);
        } else if mem::replace(&mut self.undisturbed, 0) < UNDISTURBED {
            self.rest(now_ns);
        }
    }

    fn rest(&mut self, now_ns: u64) {
        // Others have the CPU while it does not look: what the next look finds says nothing.
        self.undisturbed = UNDISTURBED;
        let pause_ns = REST_NS << self.rests;
        self.rests = match now_ns < self.rest_until_ns + pause_ns {
            true => (self.rests + 1).min(DOUBLINGS_MAX),
            false => 0,
        };
        self.rest_until_ns = now_ns + (REST_NS << self.rests);
    }

    fn pay(&mut self, wait: WaitFor) -> &mut Pay {
        match wait {
            WaitFor::Fault => &mut self.faults,
            WaitFor::Read => &mut self.reads,
        }
    }
}

/// So many faults within [`DENSE_NS`] are dense.
const DENSE_FAULTS: u32 = 8;

/// In nanoseconds: a millisecond, so that what begins to swap at random is noticed at once.
const DENSE_NS: u64 = 1_000_000;

/// For how long after the last fault idle CPUs are kept from halting, in nanoseconds.
pub const AWAKE_NS: u64 = 20_000_000;

/// Tells whether faults are dense.
#[derive(Debug, Default)]
pub struct Density {
    since_ns: u64,
    faults: u32,
}

impl Density {
    /// A fault at `now_ns`; whether it is one of many.
    pub fn on_fault(&mut self, now_ns: u64) -> bool {
        if now_ns.saturating_sub(self.since_ns) > DENSE_NS {
            *self = Self { since_ns: now_ns, faults: 0 };
        }
        self.faults += 1;
        self.faults >= DENSE_FAULTS
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The looks among so many waits, if each is answered or not as `is_answered` says.
    fn looks(polling: &mut Polling, waits: u32, is_answered: impl Fn(u32) -> bool) -> u32 {
        let mut looks = 0;
        for wait in 0..waits {
            let ended = match polling.look_ns(Poll::Auto, WaitFor::Fault, 0) {
                0 => Ended::Slept,
                _ if is_answered(wait) => Ended::Answered,
                _ => Ended::InVain,
            };
            looks += u32::from(ended != Ended::Slept);
            polling.on_wait(WaitFor::Fault, ended);
        }
        looks
    }

    #[test]
    fn looks_that_are_answered_go_on_and_looks_in_vain_become_rare() {
        let mut polling = Polling::default();
        assert_eq!(looks(&mut polling, 1000, |_| true), 1000);
        assert_eq!(looks(&mut polling, 2 + 4 + 8 + 16 + 32 + 64 + 1, |_| false), 7);
        assert_eq!(looks(&mut polling, 6400, |_| false), 100);
        assert_eq!(looks(&mut polling, 64 + 32 + 16 + 8 + 4 + 2, |_| true), 6);
        assert_eq!(looks(&mut polling, 1000, |_| true), 1000);
    }

    #[test]
    fn most_waits_are_looked_for_where_three_in_four_looks_are_answered_and_few_where_one_in_four_is()
     {
        let often = looks(&mut Polling::default(), 10_000, |wait| wait % 4 != 0);
        let seldom = looks(&mut Polling::default(), 10_000, |wait| wait % 4 == 0);
        assert!(often > 6000 && seldom < 3000, "{often} and {seldom} of 10,000");
    }

    #[test]
    fn waits_for_reads_and_for_faults_are_told_apart() {
        let mut polling = Polling::default();
        (0..10).for_each(|_| polling.on_wait(WaitFor::Read, Ended::InVain));
        assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Read, 0), 0);
        assert_eq!(polling.look_ns(Poll::Idle, WaitFor::Fault, 0), LOOK_NS);
    }

    #[test]
    fn a_number_and_off_hold_whatever_comes_of_them() {
        let mut polling = Polling::default();
        for wait in [WaitFor::Fault, WaitFor::Read] {
            assert_eq!(polling.look_ns(Poll::Off, wait, 0), 0);
            (0..10).for_each(|_| polling.on_wait(wait, Ended::InVain));
            polling.on_preemptions(1, 5);
            assert_eq!(polling.look_ns(Poll::Micros(30), wait, 6), 30_000);
        }
    }

    #[test]
    fn other_work_that_wants_the_cpu_again_and_again_is_left_it_for_longer() {
        let (mut polling, mut now) = (Polling::default(), 1_000 * REST_NS);
        let (mut rests, mut preemptions) = (Vec::new(), 0);
        for _ in 0..9 {
            preemptions += 1;
            polling.on_preemptions(preemptions, now);
            let began = now;
            while polling.look_ns(Poll::Auto, WaitFor::Fault, now) == 0 {
                now += REST_NS;
            }
            rests.push((now - began) / REST_NS);
            // Others had the CPU while it did not look.
            preemptions += 5;
            polling.on_preemptions(preemptions, now);
            assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, now), LOOK_NS);
        }
        assert_eq!(rests, [1, 2, 4, 8, 16, 32, 64, 64, 64]);
        // Much later, the first rest is the shortest again.
        now += 65 * REST_NS;
        polling.on_preemptions(preemptions + 1, now);
        assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, now), 0);
        assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, now + REST_NS), LOOK_NS);
    }

    #[test]
    fn a_preemption_once_in_many_looks_is_an_accident() {
        let mut polling = Polling::default();
        for preemptions in 0..20 {
            for _ in 0..=UNDISTURBED {
                polling.on_preemptions(preemptions, 0);
            }
            assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, 0), LOOK_NS);
        }
        polling.on_preemptions(20, 0);
        assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, 0), LOOK_NS);
        polling.on_preemptions(21, 0);
        assert_eq!(polling.look_ns(Poll::Auto, WaitFor::Fault, 0), 0);
    }

    #[test]
    fn faults_are_dense_when_eight_come_within_a_millisecond() {
        let mut density = Density::default();
        let spread = (0..100u64).map(|fault| (fault + 10) * DENSE_NS / 5);
        assert!(spread.into_iter().all(|now| !density.on_fault(now)), "five in a millisecond");
        let close: Vec<bool> =
            (0..9).map(|fault| density.on_fault(1_000 * DENSE_NS + fault)).collect();
        assert_eq!(close.iter().position(|is_dense| *is_dense), Some(7));
        assert!(close[8]);
    }

    #[test]
    fn every_setting_reads_back_as_it_is_printed_and_what_is_none_is_named() {
        for poll in [Poll::Auto, Poll::Off, Poll::Idle, Poll::Micros(1), Poll::Micros(1000)] {
            assert_eq!(poll.to_string().parse(), Ok(poll));
        }
        for text in ["", "0", "1001", "99999999999", "-1", "+5", "Auto", "5us", "auto\n"] {
            let refusal = text.parse::<Poll>().unwrap_err().to_string();
            let rest = "is not a way of polling: use auto, off, idle or a number of microseconds from 1 to 1000";
            assert_eq!(refusal, format!("{text:?} {rest}"));
        }
    }
}
