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
fn while_activation_is_rare_what_comes_back_far_sooner_than_others_is_activated() {
    let mut workingset = Workingset { regret: FULL.budget, ..Workingset::default() };
    let mut activated = [0, 0];
    for turn in 0..6000u64 {
        let is_near = turn % 4 == 0;
        let distance = if is_near { 1280 } else { 6400 };
        workingset.age = 1 << 20;
        let shadow = Shadow::new(((workingset.age - distance) >> GRAIN_BITS) as u32);
        let refault = workingset.on_refault(1, shadow, Need::Asked, FULL);
        if turn >= 2000 && refault == Refault::Activated {
            activated[usize::from(is_near)] += 1;
        }
    }
    assert_eq!(activated[1], 1000, "all of these");
    assert!((200..600).contains(&activated[0]), "{activated:?}: one in eight of 3000");
}

#[test]
fn newcomers_get_more_room_the_longer_no_page_is_regretted() {
    let mut workingset = Workingset::default();
    let witness = (0..).find(|page| witness(*page).is_some()).unwrap();
    let near = workingset.on_eviction();
    let grow_by = |workingset: &mut Workingset, refaults: u32| {
        let before = workingset.demote(FULL);
        (0..refaults).for_each(|_| _ = workingset.on_refault(witness + 1, near, Need::Asked, FULL));
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
