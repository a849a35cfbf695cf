//! One budget for a job of several processes: how many pages each of its members should have.
//!
//! Pages are poured like water: each member has its floor, and the rest rises in all of them at once, in proportion to
//! their weights, until a member has what it can use or the budget is used up. The weight follows the rate of refaults,
//! which says what more memory would save: an idle member weighs least and gives way, one that fitted and has lost too
//! much refaults, weighs more, and gets it back. Each member decides for itself alone, from what all have published;
//! that what they hold together stays within the budget is not decided here, but by how pages are taken
//! (the engine's `job/rows.rs`).

use crate::token::favour_of;

/// What a member has published.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Standing {
    /// Pages it holds of the job's budget.
    pub share: u32,
    /// Pages below which it does not work.
    pub floor: u32,
    /// Pages that it could use.
    pub demand: u32,
    /// Pages that it refaults in a second, the last ones counting most; none if nothing counts them.
    pub rate: Option<u32>,
    /// How fast it gets on, of a thousand when it waits for no page.
    pub speed: u32,
    /// Where it is its turn to have what it could use: how many come before it ([`crate::token`]).
    pub place: Option<u8>,
}

/// What a member is to do about its share.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Move {
    /// Nothing.
    Keep,
    /// To this many pages, as far as there are free ones; those that have too much are to be asked for the others.
    Grow(u32),
    /// To this many pages.
    Shrink(u32),
}

/// A share is not moved by less than one in so many pages: moving costs writes.
const MOVE_SHARE: u32 = 16;
/// A step down takes at most one in so many pages: the rates that follow say whether to go on.
const STEP_SHARE: u32 = 4;
/// Refaults in a second that double a weight: so many are the first doubling, and each further one is twice as many.
const RATE_UNIT: u64 = 8;
/// What a doubling weighs; an idle member weighs 1, and one of which nothing is known as much as a doubling.
const DOUBLING: u64 = 16;

/// The level at which a weight of one stands for a page, so that one is a small part of a page for all weights.
const UNIT: u64 = DOUBLING << 12;

/// In which a rate falls by half when refaults cease, in milliseconds.
const HALF_MS: u64 = 1000;

/// A rate after so many refaults in so long. It rises at once, halfway to the new one, and falls slowly: a member that fits does
/// not refault, and what it did with less is the only sign that it would again.
pub fn smoothed(before: u32, refaults: u64, elapsed_ms: u64) -> u32 {
    let now = refaults.saturating_mul(1000) / elapsed_ms.max(1);
    let now = u32::try_from(now).unwrap_or(u32::MAX);
    if now >= before { before.midpoint(now) } else { now.max(faded(before, elapsed_ms)) }
}

/// What is left of a rate after so long. Between halvings 1 - 2x/3 + x²/6 stands for 2 to the power of -x, so that many short
/// times together are as one.
fn faded(rate: u32, elapsed_ms: u64) -> u32 {
    let halvings = u32::try_from(elapsed_ms / HALF_MS).unwrap_or(u32::MAX);
    let halved = u64::from(rate.checked_shr(halvings).unwrap_or(0));
    let (part, whole) = (elapsed_ms % HALF_MS, 6 * HALF_MS * HALF_MS);
    (halved * (whole - 4 * HALF_MS * part + part * part) / whole) as u32
}

impl Standing {
    fn weight(self) -> u64 {
        favour_of(self.place) * self.plain_weight()
    }

    /// Grows with the logarithm of the rate: rates differ by more than memory could make up for.
    fn plain_weight(self) -> u64 {
        let Some(rate) = self.rate else { return 1 + DOUBLING };
        // The logarithm of this, in straight lines from one power of two to the next.
        let units = u64::from(rate) + RATE_UNIT;
        let (whole, unit) = (units.ilog2(), RATE_UNIT.ilog2());
        1 + DOUBLING * u64::from(whole - unit) + ((units * DOUBLING) >> whole) - DOUBLING
    }

    /// What it should have when the water stands at `level`.
    pub(crate) fn at(self, level: u64) -> u32 {
        let poured = u64::from(self.floor) + self.weight().saturating_mul(level) / UNIT;
        poured.min(u64::from(self.demand.max(self.floor))) as u32
    }
}

/// The highest level that the budget reaches; none where the floors alone are more than it.
pub(crate) fn level(members: impl Iterator<Item = Standing> + Clone, budget: u32) -> u64 {
    let poured = |level: u64| members.clone().map(|other| u64::from(other.at(level))).sum::<u64>();
    let (mut low, mut high) = (0u64, u64::from(budget) * UNIT);
    while low < high {
        let level = (low + high).div_ceil(2);
        if poured(level) <= u64::from(budget) { low = level } else { high = level - 1 }
    }
    low
}

/// What `member` should do, itself one of `members`. Memory that none is short of stays where it is.
pub fn decide(
    member: Standing,
    members: impl Iterator<Item = Standing> + Clone,
    budget: u32,
) -> Move {
    let level = level(members.clone(), budget);
    let target = member.at(level);
    let least = target.max(member.share) / MOVE_SHARE;
    if target > member.share {
        // Below its floor a member does not wait for a larger step.
        let is_worth = target - member.share > least || member.share < member.floor;
        return if is_worth { Move::Grow(target) } else { Move::Keep };
    }
    let excess = member.share - target;
    let missing: u64 =
        members.clone().map(|other| u64::from(other.at(level).saturating_sub(other.share))).sum();
    let held: u64 = members.map(|other| u64::from(other.share)).sum();
    let free = u64::from(budget).saturating_sub(held);
    let over = held.saturating_sub(u64::from(budget));
    let needed = missing.saturating_sub(free).max(over);
    if excess <= least && over == 0 || needed == 0 || excess == 0 {
        return Move::Keep;
    }
    let step = u64::from(excess.min((member.share / STEP_SHARE).max(1))).min(needed);
    Move::Shrink(member.share - step as u32)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn standing(share: u32, demand: u32, rate: u32) -> Standing {
        Standing { share, floor: 100, demand, rate: Some(rate), ..Standing::default() }
    }

    fn targets(members: &[Standing], budget: u32) -> Vec<u32> {
        let level = level(members.iter().copied(), budget);
        members.iter().map(|member| member.at(level)).collect()
    }

    #[test]
    fn all_have_what_they_can_use_where_there_is_enough() {
        let members = [standing(0, 300, 0), standing(0, 50, 0), standing(0, 500, 9999)];
        assert_eq!(targets(&members, 1000), [300, 100, 500]);
    }

    #[test]
    fn equals_have_equal_shares_and_what_one_leaves_goes_to_the_others() {
        let members = [standing(0, 9000, 80), standing(0, 9000, 80), standing(0, 400, 80)];
        assert_eq!(targets(&members, 2400), [1000, 1000, 400]);
    }

    #[test]
    fn an_idle_member_gives_way_to_a_busy_one_but_keeps_its_floor() {
        let members = [standing(1000, 1000, 0), standing(100, 2000, 8 * 1023)];
        let [idle, busy] = targets(&members, 1100)[..] else { panic!("two members") };
        assert!(idle >= 100 && busy > 100 * (idle - 100), "{idle} {busy}");
    }

    #[test]
    fn a_member_of_which_nothing_is_known_weighs_a_little_more_than_an_idle_one() {
        let unknown = Standing { rate: None, ..standing(0, 9000, 0) };
        let members = [unknown, standing(0, 9000, 0), standing(0, 9000, 8)];
        assert_eq!(members.map(Standing::weight), [17, 1, 17]);
        let of = |rate| standing(0, 0, rate).weight();
        assert_eq!([of(4), of(23), of(24), of(8 * 1023)], [9, 32, 33, 161], "the more the more");
        assert_eq!(of(u32::MAX), 1 + 29 * 16);
    }

    #[test]
    fn floors_are_kept_where_they_are_more_than_the_budget() {
        let members = [standing(0, 9000, 5), standing(0, 9000, 50)];
        assert_eq!(targets(&members, 150), [100, 100]);
    }

    #[test]
    fn memory_that_none_is_short_of_stays_where_it_is() {
        let rich = standing(900, 200, 0);
        let others = [rich, standing(100, 100, 700)];
        assert_eq!(decide(rich, others.into_iter(), 1000), Move::Keep);
        let others = [rich, standing(100, 300, 700)];
        // 200 pages are missing: no more is given.
        assert_eq!(decide(rich, others.into_iter(), 1000), Move::Shrink(700));
    }

    #[test]
    fn a_job_over_its_budget_shrinks_although_all_have_their_floor() {
        let members = [standing(800, 1000, 0), standing(400, 400, 0)];
        let first = decide(members[0], members.into_iter(), 1000);
        assert_eq!(first, Move::Shrink(600));
    }

    /// Members that use all of their pages in turn refault in proportion to what is missing.
    #[test]
    fn shares_of_busy_and_idle_members_settle() {
        const BUDGET: u32 = 10_000;
        let (demands, busy) = ([6000u32, 6000, 6000], [true, true, false]);
        let mut members = [standing(200, 0, 0), standing(200, 0, 0), standing(6000, 0, 0)];
        for _ in 0..200 {
            for index in 0..members.len() {
                let missing = demands[index].saturating_sub(members[index].share);
                let refaults = if busy[index] { u64::from(missing) } else { 0 };
                members[index].demand = demands[index];
                look(&mut members, index, refaults, BUDGET);
            }
        }
        let [first, second, idle] = members.map(|member| member.share);
        assert!(first.abs_diff(second) < 800, "{members:?}");
        assert!(idle < 1500, "{members:?}");
        assert!(first + second + idle > BUDGET - 1500, "{members:?}");
    }

    #[test]
    fn rates_rise_at_once_and_fall_by_half_in_a_second() {
        assert_eq!(smoothed(0, 100, 100), 500);
        assert_eq!(smoothed(1000, 0, 1000), 500);
        assert_eq!(smoothed(1000, 0, 500), 708);
        assert_eq!(smoothed(1000, 0, 1500), 354);
        assert_eq!(smoothed(1000, 90, 100), 935, "slowly, but not below what there is");
        assert_eq!(smoothed(1000, 96, 100), 960);
        let after_looks = (0..10).fold(1_000_000, |rate, _| smoothed(rate, 0, 100));
        assert!(
            (480_000..=520_000).contains(&after_looks),
            "{after_looks}: as after one of a second"
        );
        assert_eq!([smoothed(u32::MAX, 0, u64::MAX), smoothed(1, 0, 100)], [0, 0]);
        assert_eq!(smoothed(7, u64::MAX, 0), 7u32.midpoint(u32::MAX));
    }

    /// Beside a large member that refaults all the time a smaller one, whose pages are used a hundred times as often, is not made to lose
    /// them again and again only because it does not refault as long as it has them.
    #[test]
    fn a_member_that_fits_does_not_lose_what_it_uses_time_and_again() {
        const BUDGET: u32 = 10_000;
        let demands = [4000u32, 12_000];
        let mut members = [standing(2000, demands[0], 0), standing(8000, demands[1], 0)];
        let mut missed = 0;
        for turn in 0..600 {
            for index in 0..members.len() {
                let missing = u64::from(demands[index].saturating_sub(members[index].share));
                let refaults = if index == 0 { missing * 5 } else { missing / 20 };
                missed += if index == 0 && turn >= 100 { refaults } else { 0 };
                look(&mut members, index, refaults, BUDGET);
            }
        }
        assert!(missed < 500 * 4000 * 5 / 40, "{missed} refaults, {members:?}");
    }

    /// One member does what it should, after so many refaults in a tenth of a second.
    fn look(members: &mut [Standing], index: usize, refaults: u64, budget: u32) {
        members[index].rate = members[index].rate.map(|rate| smoothed(rate, refaults, 100));
        let held: u32 = members.iter().map(|member| member.share).sum();
        match decide(members[index], members.iter().copied(), budget) {
            Move::Keep => {}
            Move::Grow(to) => {
                let free = budget - held;
                members[index].share += (to - members[index].share).min(free);
            }
            Move::Shrink(to) => members[index].share = to,
        }
    }

    fn any_standing() -> impl Strategy<Value = Standing> {
        (0..5000u32, 0..300u32, 0..9000u32, 0..100_000u32).prop_map(
            |(share, floor, demand, rate)| Standing {
                share,
                floor,
                demand,
                // Of some nothing is known.
                rate: (rate % 8 != 1).then_some(rate),
                place: (rate % 8 == 2).then_some((rate % 5) as u8),
                speed: 0,
            },
        )
    }

    proptest! {
        #[test]
        fn targets_are_the_water_level_of_a_naive_model(
            members in proptest::collection::vec(any_standing(), 1..12), budget in 1..20_000u32,
        ) {
            let floors: u64 = members.iter().map(|member| u64::from(member.floor)).sum();
            let found = targets(&members, budget);
            let sum: u64 = found.iter().map(|target| u64::from(*target)).sum();
            prop_assert!(sum <= floors.max(u64::from(budget)));
            let level = level(members.iter().copied(), budget);
            let poured = |level| members.iter().map(|it| u64::from(it.at(level))).sum::<u64>();
            // A little higher it would be too much, or all have what they could use.
            let is_full = members.iter().all(|it| it.at(u64::MAX) == it.at(level));
            prop_assert!(is_full || poured(level + 1) > u64::from(budget));
            for (member, target) in members.iter().zip(&found) {
                prop_assert_eq!(*target, member.at(level));
                prop_assert!(*target >= member.floor);
            }
        }

        #[test]
        fn no_member_shrinks_below_its_target_or_grows_beyond_it(
            members in proptest::collection::vec(any_standing(), 1..12), budget in 1..20_000u32,
        ) {
            for (member, target) in members.iter().zip(targets(&members, budget)) {
                match decide(*member, members.iter().copied(), budget) {
                    Move::Keep => {}
                    Move::Grow(to) => prop_assert!(to == target && to > member.share),
                    Move::Shrink(to) => prop_assert!(to >= target && to < member.share),
                }
            }
        }
    }
}
