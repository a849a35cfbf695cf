//! Working set: which pages deserve to stay, decided from how soon they come back.
//!
//! Mapped pages tell nothing: there is no accessed bit to read. What can be seen is a page that comes back
//! from its second chance (it was used within the last moments) and a page that comes back from its
//! device. For the latter the kernel's rule is used (mm/workingset.c, Linux 3.15; anonymous pages since
//! 5.9): a clock counts pages that left; the time a page was away is its refault distance. It is the
//! number of pages by which memory was too short to keep it, so a distance below the number of active
//! pages says that it would have been better kept than one of those.
//!
//! Three additions, each measured in docs/hit-rate.md. Memory that has room takes newcomers for active: of
//! a loop that is larger than memory most pages then stay, where a queue loses every one of them just
//! before its use. When active pages that had to give way come back themselves, neither set fits: then only
//! one refault in [`REGRETFUL`] is activated (bimodal insertion: Qureshi and others, ISCA 2007), until that
//! has stopped, and each that was away far shorter than others are: a table that is probed all the time, beside data that are gone
//! through once, leaves and comes back more often than they do. And the share kept for newcomers grows with activations and shrinks with each regret (as the
//! target of ARC: Megiddo and Modha, FAST 2003), the faster the longer there was no regret: a program's new
//! phase regrets nothing and finds room, while a loop, which regrets all the time, never gets that far. A page
//! that is touched for the first time counts like an activation: what a program has just allocated it uses soon.
//!
//! Active pages that give way are looked at by turns with the oldest newcomers, which have not had a look either: how many of
//! each is decided by what comes back less ([`Looks`]).

use crate::block::{Returns, SOON_PAGES};
use crate::looks::{Looked, Looks};
use crate::median::Median;
use alloc::boxed::Box;

/// What a page is taken for when it is mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Activity {
    /// Goes first.
    Inactive,
    /// Has proved that it is used again, or there is room.
    Active,
}

/// What remains of a page that has left: when that was, on its node's clock.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shadow(u32);

/// Bits of a shadow: what a page word has room for.
pub const SHADOW_BITS: u32 = 21;
const SHADOW_MASK: u32 = (1 << SHADOW_BITS) - 1;
/// Pages per tick of the shadow's clock, as a power of two: with 21 bits it goes round after 512 GiB have
/// left. A page that was away so long looks recent, and takes room for a while.
const GRAIN_BITS: u32 = 6;

/// Share of the budget in which newcomers stay mapped: one in so many.
const MAPPED_SHARE: u32 = 16;
/// Newcomers that stay mapped at least: two of the engine's batches, or one of them would leave none.
const MAPPED_MIN: u32 = 512;
/// Pages that are looked at together at least, where newcomers are few: a call for each would cost more than a soft fault.
const LOOKS_LEAST: u32 = 64;
/// While active pages are regretted, one refault in so many is activated.
pub const REGRETFUL: u32 = 8;
/// And each that was away for less than one in so many parts of the median of these times.
const NEAREST_SHARE: u64 = 3;
/// Refaults for which one regretted page is remembered.
const REGRET_PER_PAGE: u32 = 8;
/// Activations and first touches without a regret, as a share of the budget, for which each of them grows the newcomers' share by one
/// page more: one in so many.
const STREAK_SHARE: u32 = 16;
/// Pages by which one regretted page shrinks the newcomers' share.
const SHRINK_PER_PAGE: u32 = 4;
/// Entries of the table that remembers demoted pages, and one page in so many that goes there: enough for 131,072 that are away
/// (512 MiB); of more the newest are known. With 256 entries a loop over 125 % of 256 MiB read twice as much.
const WITNESSES: usize = 8192;
const WITNESS_SHARE: u32 = 16;

/// How many pages a node has where.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Mapped, first to go.
    pub inactive: u32,
    /// Mapped, to stay.
    pub active: u32,
    /// Not mapped: on their second chance, under way in or out, or free.
    pub unmapped: u32,
    /// The most that may be on the node.
    pub budget: u32,
    /// Of these, not mapped when reclaim rests: the high watermark.
    pub reserved: u32,
}

impl Counts {
    /// Pages that newcomers have at least: what is kept unmapped, and a share of the rest to stay mapped for
    /// a while before that.
    fn newcomers_min(&self) -> u32 {
        (self.reserved + (self.budget / MAPPED_SHARE).max(MAPPED_MIN)).min(self.budget / 2)
    }

    /// Pages that newcomers can have beyond that: a quarter of the budget always stays for active ones.
    fn growth_max(&self) -> u32 {
        (self.budget - self.budget / 4).saturating_sub(self.newcomers_min())
    }
}

/// Why a page comes back from its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Need {
    /// A fault asks for it.
    Asked,
    /// It is read with another, or ahead: whether it is used is to be seen.
    Beside,
}

/// What became of a page that came back from its device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refault {
    /// It had been away for long.
    Distant,
    /// It would have been worth keeping, but so would the pages that would have to go.
    Regretted,
    /// It would have been worth keeping if it is used at all.
    Unproven,
    /// It is active from now on.
    Activated,
}

impl Refault {
    /// What the page is taken for.
    pub fn activity(self) -> Activity {
        match self {
            Refault::Distant | Refault::Regretted | Refault::Unproven => Activity::Inactive,
            Refault::Activated => Activity::Active,
        }
    }
}

/// One node's memory of what left.
#[derive(Debug)]
pub struct Workingset {
    /// Pages that have left, and pages that were activated.
    age: u64,
    /// Refaults for which activation stays rare.
    regret: u32,
    /// Refaults that were near enough.
    near: u32,
    /// Of these.
    distances: Median,
    /// Refaults that were activated, and first touches without room, since a page was regretted.
    streak: u32,
    /// What newcomers have beyond their minimum.
    growth: u32,
    /// Demoted pages, by their hash.
    witnesses: Box<[u32]>,
    /// What looks at pages have found.
    looks: Looks,
    /// What came back soon, by the way that it had left.
    pub returns: Returns,
}

impl Default for Workingset {
    fn default() -> Self {
        Self {
            age: 0,
            regret: 0,
            near: 0,
            distances: Median::default(),
            streak: 0,
            growth: 0,
            witnesses: alloc::vec![u32::MAX; WITNESSES].into_boxed_slice(),
            looks: Looks::default(),
            returns: Returns::default(),
        }
    }
}

impl Workingset {
    /// What a page that is touched for the first time is taken for.
    pub fn on_first_touch(&mut self, counts: Counts) -> Activity {
        if self.has_room(counts) {
            return Activity::Active;
        }
        self.grow(counts);
        Activity::Inactive
    }

    /// A page leaves memory: what remains of it.
    pub fn on_eviction(&mut self) -> Shadow {
        let shadow = self.now();
        self.age += 1;
        shadow
    }

    /// A page came back from its second chance: it is active from now on.
    pub fn on_activation(&mut self, page: u32) {
        self.age += 1;
        if let Some(looked) = self.looked(page) {
            self.looks.on_return(looked);
        }
    }

    /// A page has its second chance from now on.
    pub fn on_look(&mut self, page: u32) {
        if let Some(looked) = self.looked(page) {
            self.looks.on_look(looked);
        }
    }

    /// How many of so many newcomers and active pages are expected to come back from a second chance.
    pub fn expected_back(&self, newcomers: u32, active: u32) -> u32 {
        self.looks.expected_back(newcomers, active)
    }

    /// An active page has become inactive; where pages have a second chance, it is the next to go.
    pub fn on_demotion(&mut self, page: u32) {
        if let Some(index) = witness(page) {
            self.witnesses[index] = page;
        }
    }

    /// A block of pages leaves, from one to another.
    pub fn on_block(&mut self, first: u32, last: u32) {
        // Shadows are rounded down.
        self.returns.on_block(first, last, self.age >> GRAIN_BITS << GRAIN_BITS);
    }

    /// A page came back from its device.
    pub fn on_refault(&mut self, page: u32, shadow: Shadow, need: Need, counts: Counts) -> Refault {
        self.regret = self.regret.saturating_sub(1);
        self.note_restore(page, counts);
        let distance = self.distance(shadow);
        if need == Need::Asked && distance <= SOON_PAGES.min(counts.budget.into()) {
            self.returns.on_return(page, self.age.saturating_sub(distance));
        }
        if self.has_room(counts) {
            return Refault::Activated;
        }
        if distance > u64::from(counts.active) {
            return Refault::Distant;
        }
        self.near = self.near.wrapping_add(1);
        self.distances.add(distance);
        // Distances are told to the next 64.
        let is_nearest = distance + (1 << GRAIN_BITS) <= self.distances.get() / NEAREST_SHARE;
        if self.regret > 0 && !is_nearest && !self.near.is_multiple_of(REGRETFUL) {
            return Refault::Regretted;
        }
        self.grow(counts);
        if need == Need::Beside {
            return Refault::Unproven;
        }
        self.age += 1;
        Refault::Activated
    }

    /// A sign that newcomers are worth more room.
    fn grow(&mut self, counts: Counts) {
        self.streak = self.streak.saturating_add(1);
        let grown = self.growth.saturating_add(self.streak / (counts.budget / STREAK_SHARE).max(1));
        self.growth = grown.min(counts.growth_max());
    }

    /// How many of the oldest active pages should become inactive before so many pages are looked at: these are among them.
    pub fn demote_of(&mut self, looks: u32, counts: Counts) -> u32 {
        match self.demote(counts) {
            0 => 0,
            surplus => {
                let missing = LOOKS_LEAST.min(looks).saturating_sub(counts.inactive);
                surplus.min(self.looks.of(looks).max(missing))
            }
        }
    }

    /// How many of the oldest active pages should become inactive now.
    pub fn demote(&self, counts: Counts) -> u32 {
        let newcomers = counts.inactive + counts.unmapped;
        self.newcomers(counts).saturating_sub(newcomers).min(counts.active)
    }

    /// Pages that left since the one that left this shadow, to the next 64.
    pub fn distance(&self, shadow: Shadow) -> u64 {
        self.now().since(shadow)
    }

    fn newcomers(&self, counts: Counts) -> u32 {
        counts.newcomers_min() + self.growth.min(counts.growth_max())
    }

    fn has_room(&self, counts: Counts) -> bool {
        counts.active + self.newcomers(counts) < counts.budget
    }

    /// A page that was demoted is wanted again: so are, with it, the others for which it stands.
    fn note_restore(&mut self, page: u32, counts: Counts) {
        let Some(index) = witness(page) else { return };
        if self.witnesses[index] == page {
            self.witnesses[index] = u32::MAX;
            self.streak = 0;
            self.growth = self.growth.saturating_sub(SHRINK_PER_PAGE * WITNESS_SHARE);
            let more = REGRET_PER_PAGE * WITNESS_SHARE;
            self.regret = (self.regret + more).min(counts.budget);
        }
    }

    /// What a page is that is looked at, if it is one that stands for others.
    fn looked(&self, page: u32) -> Option<Looked> {
        let index = witness(page)?;
        let was_active = self.witnesses[index] == page;
        Some(if was_active { Looked::Demoted } else { Looked::Newcomer })
    }

    /// What a page would leave that left now.
    pub fn now(&self) -> Shadow {
        Shadow((self.age >> GRAIN_BITS) as u32 & SHADOW_MASK)
    }
}

/// The index at which a page is remembered, if it is one of those that stand for all.
fn witness(page: u32) -> Option<usize> {
    // Fibonacci hashing: neighbours go to different entries.
    let mixed = page.wrapping_mul(0x9E37_79B1);
    let index = (mixed >> 8) as usize % WITNESSES;
    (mixed >> 24).is_multiple_of(WITNESS_SHARE).then_some(index)
}

impl Shadow {
    /// A shadow from the bits it was stored as.
    pub fn new(bits: u32) -> Self {
        Self(bits & SHADOW_MASK)
    }

    /// Pages that left between an earlier shadow and this one, to the next 64.
    pub fn since(self, earlier: Shadow) -> u64 {
        u64::from(self.0.wrapping_sub(earlier.0) & SHADOW_MASK) << GRAIN_BITS
    }

    /// The bits to store: [`SHADOW_BITS`] of them.
    pub fn bits(self) -> u32 {
        self.0
    }
}

#[cfg(test)]
mod tests;
