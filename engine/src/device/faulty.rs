//! A device that fails by a plan, for tests: `faulty:` before what names it, and what is to fail among its options.
//!
//! Whatever is to happen is decided here, when a request is made; `sys::request` carries it out in the place of, or
//! after, what the kernel would do, the same for every way in which requests are driven.
use super::spec::SpecError;
use super::spec_parts::digits;
use crate::sys::request::{Direction, Injected};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::faulty::{Asked, Failure, Late, Mishap, Outage, Plan, Share};

/// What stands before the name of a device that fails by a plan.
pub const PREFIX: &str = "faulty:";

/// The names of what can fail, for a refusal.
pub const ALLOWED: &str = "read=P, write=P, bad=P, torn=P, flip=P, short=P, late=P:MS, error=NAME, outage=FIRST:COUNT, \
     full=REQUEST, gone=REQUEST and seed=N";

/// A plan with the number of the next request.
#[derive(Debug)]
pub struct Faulty {
    /// What fails.
    pub plan: Plan,
    /// Requests so far: the number of the next one.
    pub requests: AtomicU64,
    /// Requests that something was done to.
    pub mishaps: AtomicU64,
}

/// What is done to a request.
#[derive(Clone, Copy, Debug, Default)]
pub struct Doom {
    pub injected: Option<Injected>,
    pub late_ns: u64,
}

impl Faulty {
    /// No request was made yet.
    pub fn new(plan: Plan) -> Self {
        Self { plan, requests: AtomicU64::new(0), mishaps: AtomicU64::new(0) }
    }

    /// What is to be done to the next request, which is of `slots` slots from `first` on.
    pub fn next(&self, direction: Direction, first: u32, slots: u32) -> Doom {
        let asked = match direction {
            Direction::Read => Asked::Read { first, slots },
            Direction::Write => Asked::Write,
        };
        let number = self.requests.fetch_add(1, Ordering::Relaxed);
        let fate = self.plan.fate(number, asked);
        let injected = fate.mishap.map(|mishap| self.injected(mishap));
        if injected.is_some() || fate.late_ms > 0 {
            self.mishaps.fetch_add(1, Ordering::Relaxed);
        }
        Doom { injected, late_ns: u64::from(fate.late_ms) * 1_000_000 }
    }

    fn injected(&self, mishap: Mishap) -> Injected {
        match mishap {
            Mishap::Fails => Injected::Fails(number_of(self.plan.error)),
            Mishap::Bad => Injected::Fails(libc::EIO),
            Mishap::Full => Injected::Fails(libc::ENOSPC),
            Mishap::Gone => Injected::Fails(libc::ENODEV),
            Mishap::Torn => Injected::Torn,
            Mishap::Flipped => Injected::Flipped,
            Mishap::Short => Injected::Short,
        }
    }
}

fn number_of(failure: Failure) -> i32 {
    match failure {
        Failure::Io => libc::EIO,
        Failure::NoAddress => libc::ENXIO,
        Failure::NoDevice => libc::ENODEV,
        Failure::NoSpace => libc::ENOSPC,
        Failure::NoMemory => libc::ENOMEM,
        Failure::Again => libc::EAGAIN,
        Failure::TimedOut => libc::ETIMEDOUT,
        Failure::Interrupted => libc::EINTR,
    }
}

/// Takes one option into a plan; None when it is none of a plan's.
///
/// # Errors
/// Its value cannot be read.
pub fn read_option(plan: &mut Plan, spec: &str, option: &str) -> Option<Result<(), SpecError>> {
    let (name, value) = option.split_once('=')?;
    let refused = |allowed| {
        let (spec, option) = (spec.to_owned(), option.to_owned());
        SpecError::OptionValue { spec, option, allowed }
    };
    let outcome = match name {
        "read" => set_share(&mut plan.read, value),
        "write" => set_share(&mut plan.write, value),
        "bad" => set_share(&mut plan.bad, value),
        "torn" => set_share(&mut plan.torn, value),
        "flip" => set_share(&mut plan.flip, value),
        "short" => set_share(&mut plan.short, value),
        "late" => parse_late(value).map(|late| plan.late = Some(late)).ok_or(LATE),
        "error" => value.parse().map(|error| plan.error = error).map_err(|_| ERRORS),
        "outage" => parse_outage(value).map(|out| plan.outage = Some(out)).ok_or(OUTAGE),
        "full" => digits(value).map(|first| plan.full = Some(first)).ok_or(NUMBER),
        "gone" => digits(value).map(|first| plan.gone = Some(first)).ok_or(NUMBER),
        "seed" => digits(value).map(|seed| plan.seed = seed).ok_or(NUMBER),
        _ => return None,
    };
    Some(outcome.map_err(refused))
}

const SHARE: &str =
    "write a part of all requests (bad: of all slots) from 0.000001 to 1, such as 0.01";
const LATE: &str = "write P:MS, a part of all requests and by how many milliseconds they are late (at most 600000)";
const ERRORS: &str = "use EIO, ENXIO, ENODEV, ENOSPC, ENOMEM, EAGAIN, ETIMEDOUT or EINTR";
const OUTAGE: &str =
    "write FIRST:COUNT, the number of the first request that fails and how many do";
const NUMBER: &str = "write a whole number";

/// The longest a request can be made late, in milliseconds.
const LATE_MS_MAX: u32 = 600_000;

fn set_share(share: &mut Share, value: &str) -> Result<(), &'static str> {
    *share = parse_share(value).ok_or(SHARE)?;
    Ok(())
}

/// A decimal number above 0 and up to 1, with at most six digits after the point.
fn parse_share(value: &str) -> Option<Share> {
    let (whole, part) = value.split_once('.').unwrap_or((value, "0"));
    if part.is_empty() || part.len() > 6 {
        return None;
    }
    let part = digits::<u32>(part)? * 10u32.pow(6 - part.len() as u32);
    let millionths = digits::<u32>(whole)?.checked_mul(1_000_000)?.checked_add(part)?;
    Share::of_millionths(millionths).filter(|share| *share != Share::default())
}

fn parse_late(value: &str) -> Option<Late> {
    let (share, ms) = value.split_once(':')?;
    let ms = digits(ms).filter(|ms| (1..=LATE_MS_MAX).contains(ms))?;
    Some(Late { share: parse_share(share)?, ms })
}

fn parse_outage(value: &str) -> Option<Outage> {
    let (first, count) = value.split_once(':')?;
    Some(Outage { first: digits(first)?, count: digits(count)? })
}

/// A plan's options, as they are read.
pub fn write_options(plan: &Plan, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let shares = [
        ("read", plan.read),
        ("write", plan.write),
        ("bad", plan.bad),
        ("torn", plan.torn),
        ("flip", plan.flip),
        ("short", plan.short),
    ];
    for (name, share) in shares.into_iter().filter(|(_, share)| *share != Share::default()) {
        write!(f, ",{name}={}", Decimal(share))?;
    }
    if let Some(Late { share, ms }) = plan.late {
        write!(f, ",late={}:{ms}", Decimal(share))?;
    }
    if plan.error != Failure::default() {
        write!(f, ",error={}", plan.error)?;
    }
    if let Some(Outage { first, count }) = plan.outage {
        write!(f, ",outage={first}:{count}")?;
    }
    let numbers = [("full", plan.full), ("gone", plan.gone)];
    for (name, number) in numbers.into_iter().filter_map(|(name, at)| Some((name, at?))) {
        write!(f, ",{name}={number}")?;
    }
    write!(f, ",seed={}", plan.seed)
}

/// A share as a decimal number.
struct Decimal(Share);

impl fmt::Display for Decimal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let millionths = self.0.millionths();
        let text = format!("{}.{:06}", millionths / 1_000_000, millionths % 1_000_000);
        f.write_str(text.trim_end_matches('0').trim_end_matches('.'))
    }
}
