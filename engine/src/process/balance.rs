//! An engine's part of its job's budget: a thread looks what its process should have, and the engine follows.
//!
//! A larger share is taken from the ledger before the budget grows; a smaller one is reclaimed for first, and given up as
//! it goes back to the kernel. So what a member has in the ledger is never less than what it uses. The thread sleeps until
//! the process is asked for pages, and looks by itself as long as its engine reclaims or refaults.
//!
//! A child of a fork shares its parent's pages until either writes, and its parent answers for them. What has become
//! its own is measured by the kernel's own count (Pss_Anon), and taken from the ledger then.
use crate::base::error::Error;
use crate::job::member::{Member, Turn};
use crate::process::share::Holding;
use crate::state::core::Core;
use crate::sys::thread::Thread;
use crate::sys::{clock, process};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use userswap_policy::job::{Move, Standing, smoothed};
use userswap_policy::token::SPEED_FULL;

/// Between two looks of a process that reclaims or refaults.
const LOOK_NS: u64 = 100_000_000;
/// Between two looks while pages are on their way out that the process gives up.
const REPAY_NS: u64 = 10_000_000;
/// The longest time between two looks: a process that has been idle is noticed to be busy within it.
const LOOK_NS_MAX: u64 = 1_600_000_000;
/// As [`LOOK_NS_MAX`], of a child that may make its parent's pages its own.
const INHERITED_NS_MAX: u64 = 400_000_000;
/// For how long an engine counts as short of pages after a refault.
const REFAULTED_NS: u64 = 1_000_000_000;
/// For so long an engine with less than it needs waits for what others give up.
const LACKING_NS: u64 = 1_000_000_000;
/// The rate of a shorter time says nothing.
const RATE_MS_MIN: u64 = 50;

/// Starts the thread of an engine that is a member's.
///
/// # Errors
/// The system starts no thread.
pub fn start(core: Arc<Core>, member: Arc<Member>) -> Result<Thread, Error> {
    let begun_ns = clock::now_ns();
    let mut balance = Balance {
        counts: Counts::of(&core),
        progress: Progress::of(&core),
        core,
        member,
        rate: 0,
        refaulted_ns: begun_ns,
        begun_ns,
        pause_ns: LOOK_NS,
        turn: Turn::default(),
        lacking_ns: None,
    };
    Thread::spawn("userswap-share", move || balance.run()).map_err(Error::Thread)
}

struct Balance {
    core: Arc<Core>,
    member: Arc<Member>,
    /// As they were when the rate was last looked at.
    counts: Counts,
    rate: u32,
    /// When there was a refault last.
    refaulted_ns: u64,
    begun_ns: u64,
    pause_ns: u64,
    turn: Turn,
    /// Since when it has had less than it needs.
    lacking_ns: Option<u64>,
    progress: Progress,
}

/// What tells whether the engine is short of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Counts {
    refaults: u64,
    reclaimed: u64,
}

impl Counts {
    fn of(core: &Core) -> Self {
        let counters = &core.counters;
        // Relaxed: numbers that only grow.
        Self {
            refaults: counters.workingset_refault.load(Ordering::Relaxed),
            reclaimed: counters.pgsteal_kswapd.load(Ordering::Relaxed)
                + counters.pgsteal_direct.load(Ordering::Relaxed),
        }
    }
}

/// How the program gets on, the last seconds counting most.
struct Progress {
    seen: [u64; 2],
    /// Nanoseconds in which it ran, and in which its threads waited for pages.
    lately: [u64; 2],
}

/// What is known of its progress counts half after about so long.
const PROGRESS_MS: u64 = 1000;

impl Progress {
    fn of(core: &Core) -> Self {
        Self { seen: Self::counts(core), lately: [0; 2] }
    }

    /// The engine's own threads are among those that ran: they run for the kernel nearly all of the time.
    fn counts(core: &Core) -> [u64; 2] {
        [process::cpu_time().user_ms * 1_000_000, core.counters.latency.sum_ns()]
    }

    fn look(&mut self, core: &Core, elapsed_ms: u64) {
        let now = Self::counts(core);
        let kept_ms = PROGRESS_MS.saturating_sub(elapsed_ms / 2);
        for ((lately, seen), now) in self.lately.iter_mut().zip(&mut self.seen).zip(now) {
            *lately = *lately * kept_ms / PROGRESS_MS + now.saturating_sub(*seen);
            *seen = now;
        }
    }

    /// Of a thousand; a program that does nothing waits for nothing.
    fn speed(&self) -> u32 {
        let [ran, waited] = self.lately.map(|nanoseconds| nanoseconds / 1000);
        let full = u64::from(SPEED_FULL);
        (ran * full).checked_div(ran + waited).unwrap_or(full) as u32
    }
}

/// Whether the engine has taken pages out since the last look.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Pressure {
    None,
    Reclaims,
}

impl Balance {
    fn run(&mut self) {
        while !self.core.is_stopping() {
            let asked = self.member.asked();
            self.look();
            let begun_ns = clock::now_ns();
            self.member.rest(asked, self.pause_ns);
            // Members that are all a little short would ask each other without end.
            clock::sleep_until(begun_ns + REPAY_NS);
        }
    }

    fn look(&mut self) {
        let pressure = self.measure();
        self.core.charge_outside(&self.member);
        let before = self.core.holding();
        let standing = self.standing(before, pressure);
        self.member.publish(standing, before.used() + self.member.outside());
        let inherited = self.member.inherited();
        self.core.take_over_inherited(&self.member);
        let is_written = inherited != self.member.inherited();
        let inherited = self.member.inherited();
        self.member.turn(&mut self.turn, clock::now_ns() / 1_000_000);
        let next = self.member.decide();
        match next {
            Move::Keep => {}
            Move::Grow(to) => self.core.grow_share(&self.member, to),
            Move::Shrink(to) => self.core.give_way(to, inherited),
        }
        self.make_sure_of_floor();
        let after = self.core.give_back_share(&self.member);
        let is_idle = next == Move::Keep && pressure == Pressure::None && !is_written;
        self.pause_ns = match (after.debt, is_idle) {
            (1.., _) => REPAY_NS,
            (0, false) => LOOK_NS,
            (0, true) => {
                let most = if inherited > 0 { INHERITED_NS_MAX } else { LOOK_NS_MAX };
                (self.pause_ns * 2).clamp(LOOK_NS, most)
            }
        };
    }

    /// Others may all have just what they should, and give nothing up.
    fn make_sure_of_floor(&mut self) {
        if !self.core.lacks_floor() {
            self.lacking_ns = None;
            return;
        }
        let now = clock::now_ns();
        if now - *self.lacking_ns.get_or_insert(now) >= LACKING_NS {
            self.core.exceed_to_floor(&self.member);
        }
    }

    /// Whether there was no refault for a while. That the engine reclaims says nothing: it may be giving way.
    fn is_idle(&self) -> bool {
        self.rate == 0 && clock::now_ns() - self.refaulted_ns >= REFAULTED_NS
    }

    fn measure(&mut self) -> Pressure {
        let (now, now_ns) = (Counts::of(&self.core), clock::now_ns());
        if now.refaults != self.counts.refaults {
            self.refaulted_ns = now_ns;
        }
        let has_refaulted = now_ns - self.refaulted_ns < REFAULTED_NS;
        let reclaims = now.reclaimed != self.counts.reclaimed || has_refaulted;
        let elapsed_ms = (now_ns - self.begun_ns) / 1_000_000;
        if elapsed_ms >= RATE_MS_MIN {
            self.rate = smoothed(self.rate, now.refaults - self.counts.refaults, elapsed_ms);
            (self.counts, self.begun_ns) = (now, now_ns);
            self.progress.look(&self.core, elapsed_ms);
        }
        if reclaims { Pressure::Reclaims } else { Pressure::None }
    }

    /// What the others are told. A process that is not short uses what it has, one that is could use all its content.
    fn standing(&self, holding: Holding, pressure: Pressure) -> Standing {
        let used = holding.used();
        // What has both a place in RAM and a slot is counted twice: who has pages to spare needs no more.
        let spares = holding.unused > 2 * holding.reserved;
        let content = match pressure {
            Pressure::None => used,
            Pressure::Reclaims if spares => used,
            Pressure::Reclaims => holding.content.clamp(used.into(), u32::MAX.into()) as u32,
        };
        let content = content.saturating_add(self.member.outside());
        let is_idle = self.is_idle();
        // One that gives way, or fills memory, looks often enough by itself.
        self.member.needs.set_idle(is_idle, pressure == Pressure::None);
        Standing {
            share: self.member.share(),
            floor: self.core.floor_pages(),
            demand: content.saturating_add(content / 8).saturating_add(holding.reserved),
            rate: Some(self.rate),
            speed: self.progress.speed(),
            place: None,
        }
    }
}
