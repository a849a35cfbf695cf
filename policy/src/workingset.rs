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
//! has stopped. And the share kept for newcomers grows with activations and shrinks with each regret (as the
//! target of ARC: Megiddo and Modha, FAST 2003), the faster the longer there was no regret: a program's new
//! phase regrets nothing and finds room, while a loop, which regrets all the time, never gets that far. A page
//! that is touched for the first time counts like an activation: what a program has just allocated it uses soon.
//!
//! Active pages that give way are looked at by turns with the oldest newcomers, which have not had a look either: how many of
//! each is decided by what comes back less ([`Looks`]).

use crate::block::{Returns, SOON_PAGES};
use crate::looks::{Looked, Looks};
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
        if self.distance(shadow) > u64::from(counts.active) {
            return Refault::Distant;
        }
        self.near = self.near.wrapping_add(1);
        if self.regret > 0 && !self.near.is_multiple_of(REGRETFUL) {
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
mod tests {
    use super::*;
    use proptest::prelude::*;

    const FULL: Counts =
        Counts { inactive: 616, active: 7380, unmapped: 196, budget: 8192, reserved: 300 };

    fn away(workingset: &mut Workingset, pages: u32) -> Shadow {
        let shadow = workingset.on_eviction();
        (0..pages).for_each(|_| _ = workingset.on_eviction());
        shadow
    }

    #[test]
    fn a_page_away_for_less_than_the_active_pages_is_activated() {
        let mut workingset = Workingset::default();
        let shadow = away(&mut workingset, FULL.active - 64);
        assert_eq!(workingset.on_refault(1, shadow, Need::Asked, FULL), Refault::Activated);
        let shadow = away(&mut workingset, FULL.active + 64);
        assert_eq!(workingset.on_refault(1, shadow, Need::Asked, FULL), Refault::Distant);
    }

    #[test]
    fn what_nobody_has_asked_for_yet_is_not_activated_but_counts_as_a_sign() {
        let grown_by = |need, expected| {
            let mut workingset = Workingset::default();
            let shadow = away(&mut workingset, FULL.active - 64);
            for _ in 0..2 * FULL.budget {
                assert_eq!(workingset.on_refault(1, shadow, need, FULL), expected);
                // Activations count as pages that have left.
                workingset.age = 7000;
            }
            workingset.demote(FULL)
        };
        let beside = grown_by(Need::Beside, Refault::Unproven);
        assert_eq!(beside, grown_by(Need::Asked, Refault::Activated));
        assert!(beside > FULL.budget / 8, "{beside}");
        let room = Counts { active: 7379, ..FULL };
        let refault = Workingset::default().on_refault(1, Shadow(0), Need::Beside, room);
        assert_eq!(refault, Refault::Activated);
    }

    #[test]
    fn pages_that_are_asked_for_soon_count_as_returns() {
        let mut workingset = Workingset::default();
        workingset.on_block(512, 1023);
        for (pages, page, need, expected) in [
            (64, 513, Need::Asked, [0, 1]),
            (64, 2, Need::Asked, [1, 0]),
            (64, 2, Need::Beside, [0, 0]),
            (FULL.budget + 64, 2, Need::Asked, [0, 0]),
        ] {
            let shadow = away(&mut workingset, pages);
            workingset.on_refault(page, shadow, need, FULL);
            assert_eq!(workingset.returns.take(), expected, "{pages} {page} {need:?}");
        }
    }

    #[test]
    fn newcomers_are_active_as_long_as_there_is_room() {
        let mut workingset = Workingset::default();
        let some = Counts { active: 7379, ..FULL };
        assert_eq!(workingset.on_first_touch(some), Activity::Active);
        let many = Counts { active: 7380, ..FULL };
        assert_eq!(workingset.on_first_touch(many), Activity::Inactive);
    }

    #[test]
    fn pages_demoted_and_wanted_again_make_activation_rare() {
        let mut workingset = Workingset::default();
        let witness = (0..).find(|page| witness(*page).is_some()).unwrap();
        workingset.on_demotion(witness);
        let far = away(&mut workingset, 2 * FULL.budget);
        assert_eq!(workingset.on_refault(witness, far, Need::Asked, FULL), Refault::Distant);
        let near = workingset.on_eviction();
        let outcomes = (0..64).map(|_| workingset.on_refault(witness + 1, near, Need::Asked, FULL));
        assert_eq!(outcomes.filter(|outcome| *outcome == Refault::Activated).count(), 8);
        // Remembered for a while, not for ever.
        let later =
            (0..400).map(|_| workingset.on_refault(witness + 1, near, Need::Asked, FULL)).last();
        assert_eq!(later, Some(Refault::Activated));
    }

    #[test]
    fn newcomers_get_more_room_the_longer_no_page_is_regretted() {
        let mut workingset = Workingset::default();
        let witness = (0..).find(|page| witness(*page).is_some()).unwrap();
        let near = workingset.on_eviction();
        let grow_by = |workingset: &mut Workingset, refaults: u32| {
            let before = workingset.demote(FULL);
            (0..refaults)
                .for_each(|_| _ = workingset.on_refault(witness + 1, near, Need::Asked, FULL));
            workingset.demote(FULL) - before
        };
        let streak = FULL.budget / STREAK_SHARE;
        assert_eq!(grow_by(&mut workingset, streak - 1), 0);
        assert_eq!(grow_by(&mut workingset, streak), streak);
        assert_eq!(grow_by(&mut workingset, streak), 2 * streak);
        // A single regret, and it takes as long again; what it stands for shrinks the room.
        workingset.on_demotion(witness);
        let before = workingset.demote(FULL);
        workingset.on_refault(witness, near, Need::Asked, FULL);
        assert_eq!(before - workingset.demote(FULL), SHRINK_PER_PAGE * WITNESS_SHARE);
        assert_eq!(grow_by(&mut workingset, streak - 1), 0);
    }

    #[test]
    fn looks_go_to_newcomers_while_demoted_pages_come_back() {
        let mut workingset = Workingset::default();
        let crowded = Counts { active: 8000, inactive: 100, unmapped: 92, ..FULL };
        let first = workingset.demote_of(64, crowded);
        assert!((48..64).contains(&first), "{first}");
        assert_eq!(workingset.demote_of(1 << 20, crowded), workingset.demote(crowded));
        for page in (0..).filter(|page| witness(*page).is_some()).take(100) {
            workingset.on_demotion(page);
            workingset.on_look(page);
            workingset.on_activation(page);
        }
        assert!(workingset.demote_of(64, crowded) < 40, "newcomers are not known yet");
        let mut newcomers = (0..).filter(|page| witness(*page).is_some()).skip(100);
        (&mut newcomers).take(100).for_each(|page| workingset.on_look(page));
        assert_eq!(workingset.demote_of(64, crowded), 4);
        let room = Counts { active: 7000, inactive: 900, ..FULL };
        assert_eq!(workingset.demote_of(64, room), 0, "newcomers have their share");
    }

    #[test]
    fn newcomers_get_more_room_while_a_program_allocates() {
        let mut workingset = Workingset::default();
        let streak = FULL.budget / STREAK_SHARE;
        let before = workingset.demote(FULL);
        (0..2 * streak).for_each(|_| _ = workingset.on_first_touch(FULL));
        assert_eq!(workingset.demote(FULL) - before, streak + 2);
    }

    #[test]
    fn the_clock_goes_round_without_harm() {
        let age = (u64::from(SHADOW_MASK) << GRAIN_BITS) + 63;
        let mut workingset = Workingset { age, ..Workingset::default() };
        let shadow = workingset.on_eviction();
        assert_eq!(shadow.bits(), SHADOW_MASK);
        (0..128).for_each(|_| _ = workingset.on_eviction());
        assert_eq!(workingset.distance(Shadow::new(shadow.bits())), 192);
    }

    proptest! {
        #[test]
        fn demotion_never_asks_for_more_than_there_is(
            inactive in 0..5000u32, active in 0..5000u32, unmapped in 0..500u32, budget in 0..10_000u32,
            reserved in 0..2000u32,
            activations in 0..10_000u32,
        ) {
            let counts = Counts { inactive, active, unmapped, budget, reserved };
            let mut workingset = Workingset::default();
            let shadow = workingset.on_eviction();
            for page in 0..activations.min(3000) {
                workingset.on_refault(page, shadow, Need::Asked, counts);
            }
            prop_assert!(workingset.demote(counts) <= active);
                prop_assert!(workingset.newcomers(counts) <= budget - budget / 4);
        }
    }
}
