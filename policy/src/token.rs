//! The swap token of a job: members that are all short of pages take turns to have what they could use.
//!
//! Shared out evenly, memory can be too little for each: all wait for their pages, and none gets on. With the token a member has
//! what it could use, what is left of that the ones after it, and the rest is poured as ever; then the next has it. So it was in
//! the kernel (mm/thrash.c, Linux 2.6.9 to 3.4; Jiang and Zhang, "Token-ordered LRU", 2005), for one process of the machine.
//! Here it is tried where all together get on less than one would that waits for nothing, and kept as long as that helps: a
//! member can also be well served by its share, with the rest of its pages cold.
use crate::job::{Standing, level};

/// Each of so many members that are favoured has eight times the weight of the next, and the last of them eight times its own.
pub const FAVOURED_MAX: usize = 4;
const FAVOUR_BITS: u32 = 3;

/// A member that waits for nothing gets on so fast.
pub const SPEED_FULL: u32 = 1000;
/// The token is tried where all that are short get on no faster than this together.
const SPEED_LOW: u32 = SPEED_FULL * 2 / 3;

/// For so long a member has the token: what it lacks is read within a second or two.
const HELD_MS: u64 = 8000;
/// For so long nobody has it before it is tried, so that it is known how all get on without.
const UNTRIED_MS: u64 = 2000;
/// After so many members the same again, as all may get on without by now; then after twice as many, and four times.
const PASSES: u32 = 4 * WHOLE;
/// What a whole turn counts where one whose holder ends counts one: its end has left memory to the others.
const WHOLE: u32 = 4;
const KEPT_MAX: u32 = 2;

/// A member that refaults fewer pages in a second is not slow for want of them: it may be filling its memory.
const RATE_LOW: u32 = 64;
/// Once it has not helped it is tried after four times the time, then each time after twice that, up to some four minutes.
const REFUSED_MAX: u32 = 6;

/// What is known of the token.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Token {
    /// The row that has it.
    pub holder: Option<usize>,
    /// How fast all that were short got on together before it was tried.
    pub before: u32,
    /// How many have had it since, in quarters.
    pub passes: u32,
    /// How often in turn it has helped for as long as it was tried.
    pub kept: u32,
    /// How often in turn it has not.
    pub refused: u32,
}

impl Token {
    /// Within what it can be, whatever was read.
    pub fn clamped(self) -> Self {
        Self { kept: self.kept.min(KEPT_MAX), refused: self.refused.min(REFUSED_MAX), ..self }
    }
}

/// How much more a member weighs in whose turn so many others come before it.
pub(crate) fn favour_of(place: Option<u8>) -> u64 {
    let steps = place.map_or(0, |place| FAVOURED_MAX.saturating_sub(usize::from(place)));
    1 << (FAVOUR_BITS * steps as u32)
}

/// The members that would be short of what they could use if all had their even shares, and the one at `holder`.
fn short(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    holder: Option<usize>,
    budget: u32,
) -> impl Iterator<Item = (usize, Standing)> + Clone {
    let level =
        level(members.clone().map(|(_, member)| Standing { place: None, ..member }), budget);
    members.filter(move |(row, member)| {
        let even = Standing { place: None, ..*member }.at(level);
        let is_short = member.rate.is_some() && member.demand > even.saturating_add(even / 8);
        Some(*row) == holder || is_short
    })
}

/// Those in the order of the rows from one on, and round.
fn from(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    first: usize,
) -> impl Iterator<Item = usize> {
    let after = members.clone().filter(move |(row, _)| *row >= first);
    after.chain(members.filter(move |(row, _)| *row < first)).map(|(row, _)| row)
}

/// Who is favoured: the one with the token and those after it that are short.
pub fn favoured(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    token: Token,
    budget: u32,
) -> [Option<usize>; FAVOURED_MAX] {
    let Some(holder) = token.holder else { return [None; FAVOURED_MAX] };
    let mut rows = from(short(members, token.holder, budget), holder);
    core::array::from_fn(|_| rows.next())
}

/// Whether a member is slow for want of pages.
pub fn refaults(member: &Standing) -> bool {
    member.rate >= Some(RATE_LOW)
}

fn untried_ms(refused: u32) -> u64 {
    UNTRIED_MS << (refused + u32::from(refused > 0))
}

/// What becomes of the token, as the member at `own` sees it, which has had it for so long, or nobody has while it refaulted; None
/// where it stays as it is.
pub fn next(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    token: Token,
    (own, for_ms): (usize, u64),
    budget: u32,
) -> Option<Token> {
    // Mostly too early, and the rest takes a look at all members.
    match token.holder {
        None if for_ms < untried_ms(token.refused) => return None,
        Some(holder) if holder != own || for_ms < HELD_MS => return None,
        _ => {}
    }
    let short = short(members, token.holder, budget);
    let speed = short.clone().map(|(_, member)| member.speed).sum::<u32>();
    match token.holder {
        None => {
            let is_short = short.clone().any(|(row, _)| row == own);
            let is_worth = is_short && short.count() > 1 && speed < SPEED_LOW;
            is_worth.then_some(Token { holder: Some(own), before: speed, passes: 0, ..token })
        }
        Some(_) if speed < token.before.saturating_add(token.before / 4) => {
            let refused = (token.refused + 1).min(REFUSED_MAX);
            Some(Token { holder: None, kept: 0, refused, ..token })
        }
        Some(_) => Some(Token { refused: 0, ..passed(short, token, own, WHOLE) }),
    }
}

/// What becomes of the token when the member that has it ends, or has got lost: the next one is not to wait until it is tried anew.
pub fn after_end(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    token: Token,
    budget: u32,
) -> Token {
    let Some(ended) = token.holder else { return token };
    let others = members.filter(|(row, _)| *row != ended);
    passed(short(others, None, budget), token, ended, 1)
}

/// The next that is short has it, unless so many had that it is to be seen how all do without.
fn passed(
    short: impl Iterator<Item = (usize, Standing)> + Clone,
    token: Token,
    own: usize,
    count: u32,
) -> Token {
    let passes = token.passes.saturating_add(count);
    let next = from(short, own + 1).find(|row| *row != own);
    let holder = next.filter(|_| passes < PASSES << token.kept);
    let kept = (token.kept + u32::from(holder.is_none())).min(KEPT_MAX);
    Token { holder, passes, kept, ..token }
}

/// Whether a member that is short has its turn later: another has it.
pub fn waits(
    members: impl Iterator<Item = (usize, Standing)> + Clone,
    token: Token,
    own: usize,
    budget: u32,
) -> bool {
    let is_another = token.holder.is_some_and(|row| row != own);
    is_another && short(members, None, budget).any(|(row, _)| row == own)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const BUDGET: u32 = 3000;

    fn member(demand: u32, speed: u32) -> Standing {
        Standing { share: 900, floor: 100, demand, rate: Some(900), speed, ..Standing::default() }
    }

    fn rows(members: &[Standing]) -> impl Iterator<Item = (usize, Standing)> + Clone {
        members.iter().copied().enumerate()
    }

    fn held(holder: usize) -> Token {
        Token { holder: Some(holder), before: 100, ..Token::default() }
    }

    #[test]
    fn when_its_holder_ends_the_next_that_is_short_has_it_at_once() {
        let mut members = [member(2000, 20); 4];
        members[3].demand = 100;
        let token = Token { passes: 2, ..held(2) };
        let next = Token { holder: Some(0), passes: 3, ..token };
        assert_eq!(after_end(rows(&members), token, BUDGET), next);
        let seen = Token { holder: None, passes: PASSES, kept: 1, ..token };
        assert_eq!(after_end(rows(&members), Token { passes: PASSES - 1, ..token }, BUDGET), seen);
        // With the one that ends the other was short; alone it has all that there is.
        let last = after_end(rows(&members[..2]), held(0), BUDGET);
        assert_eq!(last, Token { holder: None, passes: 1, kept: 1, ..held(0) });
    }

    #[test]
    fn who_is_short_waits_while_another_has_its_turn() {
        let mut members = [member(2000, 20); 4];
        members[3].demand = 300;
        let waits = |own, token| waits(rows(&members), token, own, BUDGET);
        assert_eq!([0, 1, 2, 3].map(|own| waits(own, held(1))), [true, false, true, false]);
        assert!(!waits(0, Token::default()));
    }

    #[test]
    fn who_has_the_token_has_what_it_could_use_and_what_is_left_the_next() {
        let members = [member(2000, 20); 4];
        let turn = favoured(rows(&members), held(2), BUDGET);
        assert_eq!(turn, [2, 3, 0, 1].map(Some));
        let place = |row| turn.iter().position(|other| *other == Some(row)).map(|at| at as u8);
        let members: Vec<_> =
            rows(&members).map(|(row, it)| Standing { place: place(row), ..it }).collect();
        let level = level(members.iter().copied(), BUDGET);
        let [first, second, third, fourth] = members[..] else { panic!("four members") };
        assert_eq!((third.at(level), first.at(level)), (2000, 176));
        // Of the 700 that are left beside floors the next has most.
        assert!(fourth.at(level) > 700 && second.at(level) < 115, "{}", fourth.at(level));
        // Those that have what they could use are left out.
        let members = [member(2000, 20), member(300, 1000), member(2000, 20)];
        assert_eq!(favoured(rows(&members), held(2), 2000), [Some(2), Some(0), None, None]);
        assert_eq!(favoured(rows(&members), Token::default(), 2000), [None; 4]);
    }

    #[test]
    fn it_is_tried_where_all_together_get_on_less_than_one_would() {
        let slow = [member(2000, 20); 4];
        let tried = next(rows(&slow), Token::default(), (1, UNTRIED_MS), BUDGET).unwrap();
        assert_eq!(tried, Token { holder: Some(1), before: 80, ..Token::default() });
        assert_eq!(next(rows(&slow), Token::default(), (1, UNTRIED_MS - 1), BUDGET), None);
        let refused = Token { refused: 2, ..Token::default() };
        assert_eq!(next(rows(&slow), refused, (1, 8 * UNTRIED_MS - 1), BUDGET), None);
        assert!(next(rows(&slow), refused, (1, 8 * UNTRIED_MS), BUDGET).is_some());
        // Well enough served, with enough for all, or alone.
        for others in [&[member(2000, 200); 4][..], &[member(700, 20); 4], &[member(2000, 20)]] {
            assert_eq!(next(rows(others), Token::default(), (0, 99_999), BUDGET), None);
        }
    }

    #[test]
    fn it_goes_on_for_as_long_as_it_helps_and_is_dropped_now_and_then_to_see() {
        let members = [member(2000, 20), member(2000, 20), member(2000, 900)];
        let ask = |token, for_ms| next(rows(&members), token, (2, for_ms), BUDGET);
        assert_eq!((ask(held(2), HELD_MS - 1), ask(held(1), HELD_MS)), (None, None));
        let trusted = held(2);
        let on = ask(trusted, HELD_MS).unwrap();
        assert_eq!((on.holder, on.passes, on.kept), (Some(0), WHOLE, 0));
        // First after four, then after eight.
        let over = ask(Token { passes: 3 * WHOLE, ..trusted }, HELD_MS).unwrap();
        assert_eq!((over.holder, over.kept, over.refused), (None, 1, 0));
        let on = ask(Token { passes: 3 * WHOLE, kept: 1, ..trusted }, HELD_MS).unwrap();
        assert_eq!((on.holder, on.passes, on.kept), (Some(0), PASSES, 1));
        // No faster than before, nearly.
        let dropped = ask(Token { before: 800, kept: 2, ..trusted }, HELD_MS).unwrap();
        assert_eq!((dropped.holder, dropped.kept, dropped.refused), (None, 0, 1));
    }

    proptest! {
        #[test]
        fn favoured_members_are_short_different_and_begin_with_the_holder(
            demands in proptest::collection::vec(0u32..5000, 1..12), first in 0usize..12, budget in 1u32..20_000,
        ) {
            let members: Vec<_> = demands.into_iter().map(|demand| member(demand, 20)).collect();
            let first = first % members.len();
            let turn = favoured(rows(&members), held(first), budget);
            prop_assert_eq!(turn[0], Some(first));
            let rows: Vec<usize> = turn.iter().flatten().copied().collect();
            let unique: std::collections::BTreeSet<_> = rows.iter().collect();
            prop_assert_eq!(unique.len(), rows.len());
            prop_assert!(rows.iter().all(|row| *row < members.len()));
        }
    }
}
