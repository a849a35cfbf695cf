//! A walk over one list of a node: which item is decided about next, and what the decision does.
//!
//! The rules are the kernel's (mm/list_lru.c; restart after a dropped lock since Linux 3.12, the budget
//! tested before it is charged since 3.12, REMOVED_RETRY since 3.15, STOP since 6.8). The budget bounds
//! calls, not items: every call costs 1 and repeated ones do too. A rotated item lies ahead again and is
//! visited a second time while budget lasts, unless it was the last one: its successor, remembered before
//! the call, is the end.
//!
//! The caller drives it step by step, so that it may drop its lock between an item and its decision:
//!
//! ```
//! use userswap_policy::lru::sublists::{Link, ListNumber, Sublists};
//! use userswap_policy::lru::{Code, Walk};
//!
//! let mut lists = Sublists::new(vec![Link::default(); 3], 1);
//! (0..3).for_each(|item| assert!(lists.add(ListNumber::UNGROUPED, item).is_some()));
//! let (mut walk, mut budget) = (Walk::new(ListNumber::UNGROUPED), 2);
//! while let Some(item) = walk.next(&lists, &mut budget) {
//!     assert!(item < 2, "the budget is two calls");
//!     walk.isolate(&mut lists);
//!     walk.done(&mut lists, Code::Removed);
//! }
//! assert_eq!((walk.isolated(), lists.count()), (2, 1));
//! ```
use super::sublists::{Chain, Link, ListNumber, Position, Sublists};

/// What a callback decided about an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Code {
    /// It took the item off by isolating it.
    Removed,
    /// The same, and dropped the lock meanwhile: the walk starts again from the oldest.
    RemovedRetry,
    /// The item was used recently: it becomes the newest.
    Rotate,
    /// The item cannot be had now, and stays where it is.
    Skip,
    /// It dropped the lock, the item stays: the walk starts again from the oldest.
    Retry,
    /// The walk of this list ends.
    Stop,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// Before the oldest item, whichever that will be.
    Oldest,
    /// Before an item, or the end; only as long as the lock is held.
    Before(Position),
    /// At an item, with what came after it before the decision.
    At {
        item: u32,
        next: Position,
    },
    /// At an item that has been taken off.
    Isolated {
        next: Position,
    },
    End,
}

/// A walk over one list.
#[derive(Debug)]
pub struct Walk {
    list: ListNumber,
    state: State,
    isolated: u64,
}

impl Walk {
    /// A walk from the oldest item of a list on.
    pub fn new(list: ListNumber) -> Self {
        Self { list, state: State::Oldest, isolated: 0 }
    }

    /// The next item to decide about, charged to the budget; None at the end, without budget, and for a
    /// list that is not live any more.
    ///
    /// # Panics
    /// The last item has not been decided about.
    #[inline]
    pub fn next<S>(&mut self, lists: &Sublists<S>, budget: &mut u64) -> Option<u32>
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        let item = match self.state {
            State::Oldest if lists.is_live(self.list) => lists.oldest(self.list),
            State::Before(next) => next.item(),
            State::Oldest | State::End => None,
            State::At { .. } | State::Isolated { .. } => panic!("an item waits for its decision"),
        };
        let item = item.filter(|_| *budget > 0);
        let Some(item) = item else {
            self.state = State::End;
            return None;
        };
        *budget -= 1;
        self.state = State::At { item, next: lists.position_after(item) };
        Some(item)
    }

    /// Takes the current item off its list, and says which; the node's count follows with [`Walk::done`].
    ///
    /// # Panics
    /// There is no current item, or it has been taken off.
    #[inline]
    pub fn isolate<S>(&mut self, lists: &mut Sublists<S>) -> ListNumber
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        let item = self.leave_item();
        lists.begin_removal();
        lists.detach(item)
    }

    /// As [`Walk::isolate`], and puts the item at the front of a chain.
    ///
    /// # Panics
    /// As [`Walk::isolate`].
    pub fn isolate_move<S>(&mut self, lists: &mut Sublists<S>, chain: &mut Chain) -> ListNumber
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        let item = self.leave_item();
        lists.begin_removal();
        lists.detach_to(item, chain)
    }

    /// Carries out the decision about the current item.
    ///
    /// # Panics
    /// The code says removed and the item was not isolated, or the other way round.
    #[inline]
    pub fn done<S>(&mut self, lists: &mut Sublists<S>, code: Code)
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        self.state = match (code, self.state) {
            (Code::Removed, State::Isolated { next }) => {
                self.count_isolated(lists);
                State::Before(next)
            }
            (Code::RemovedRetry, State::Isolated { .. }) => {
                self.count_isolated(lists);
                State::Oldest
            }
            (Code::Rotate, State::At { item, next }) => {
                lists.rotate(self.list, item);
                State::Before(next)
            }
            (Code::Skip, State::At { next, .. }) => State::Before(next),
            (Code::Retry, State::At { .. }) => State::Oldest,
            (Code::Stop, State::At { .. }) => State::End,
            (code, state) => panic!("{code:?} is no decision for a walk at {state:?}"),
        };
    }

    /// Ends the walk where it is, also in the middle of a decision that will never be made.
    pub fn abandon<S>(&mut self, lists: &mut Sublists<S>)
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        if let State::Isolated { .. } = self.state {
            self.count_isolated(lists);
        }
        self.state = State::End;
    }

    /// Items taken off so far.
    pub fn isolated(&self) -> u64 {
        self.isolated
    }

    #[inline]
    fn leave_item(&mut self) -> u32 {
        let State::At { item, next } = self.state else {
            panic!("a walk at {:?} has no item to isolate", self.state)
        };
        self.state = State::Isolated { next };
        item
    }

    #[inline]
    fn count_isolated<S>(&mut self, lists: &mut Sublists<S>)
    where
        S: AsRef<[Link]> + AsMut<[Link]>,
    {
        lists.end_removal();
        self.isolated += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const UNGROUPED: ListNumber = ListNumber::UNGROUPED;

    fn lists(items: u32) -> Sublists<Vec<Link>> {
        let mut lists = Sublists::new(vec![Link::default(); items as usize], 1);
        (0..items).for_each(|item| assert!(lists.add(UNGROUPED, item).is_some()));
        lists
    }

    fn letters(items: impl IntoIterator<Item = u32>) -> String {
        items.into_iter().map(|item| char::from(b'A' + item as u8)).collect()
    }

    /// The codes of an item in the order of its visits: R removed, Y removed-retry, O rotate, K skip,
    /// T retry, S stop. The last one repeats.
    fn code(codes: &str, visit: usize) -> Code {
        match codes.as_bytes()[visit.min(codes.len() - 1)] {
            b'R' => Code::Removed,
            b'Y' => Code::RemovedRetry,
            b'O' => Code::Rotate,
            b'K' => Code::Skip,
            b'T' => Code::Retry,
            b'S' => Code::Stop,
            letter => panic!("no code {letter}"),
        }
    }

    /// Codes per item; budget; visited; isolated, budget left; list after.
    type Vector =
        (&'static str, &'static [&'static str], u64, &'static str, (u64, u64), &'static str);

    #[rustfmt::skip]
    const VECTORS: [Vector; 16] = [
        ("L1", &["R", "R", "R", "R", "R"], 3, "ABC", (3, 0), "DE"),
        ("L2", &["R", "R", "R"], 10, "ABC", (3, 7), ""),
        ("L3", &["K", "K", "K"], 10, "ABC", (0, 7), "ABC"),
        ("L4", &["O", "O"], 5, "ABABA", (0, 0), "BA"),
        ("L5", &["O"], 5, "A", (0, 4), "A"),
        ("L6", &["O", "O", "O"], 7, "ABCABCA", (0, 0), "BCA"),
        ("L7", &["R", "OR", "K", "R", "OR"], 10, "ABCDEBE", (4, 3), "C"),
        ("L8", &["R", "OR", "K", "R", "OR"], 5, "ABCDE", (2, 0), "CBE"),
        ("L9", &["K", "T", "R"], 6, "ABABAB", (0, 0), "ABC"),
        ("L10", &["K", "TR", "R"], 10, "ABABC", (2, 5), "A"),
        ("L11", &["K", "Y", "Y", "R"], 10, "ABACAD", (3, 4), "A"),
        ("L12", &["R", "O", "S", "R"], 10, "ABC", (1, 7), "CDB"),
        ("L13", &["R", "O", "T"], 0, "", (0, 0), "ABC"),
        ("L14", &["R", "R", "O"], 10, "ABC", (2, 7), "C"),
        ("L15", &["OR", "R", "R"], 10, "ABCA", (3, 6), ""),
        ("L16", &["T"], 4, "AAAA", (0, 0), "A"),
    ];

    #[test]
    fn walks_follow_the_vectors_of_the_specification() {
        for (name, codes, budget, visited, (isolated, left), after) in VECTORS {
            let mut lists = lists(codes.len() as u32);
            let mut walk = Walk::new(UNGROUPED);
            let (mut budget, mut visits) = (budget, Vec::new());
            while let Some(item) = walk.next(&lists, &mut budget) {
                let seen = visits.iter().filter(|other| **other == item).count();
                visits.push(item);
                let code = code(codes[item as usize], seen);
                if matches!(code, Code::Removed | Code::RemovedRetry) {
                    walk.isolate(&mut lists);
                }
                walk.done(&mut lists, code);
                assert!(lists.is_valid(), "{name}");
            }
            assert_eq!(letters(visits), visited, "{name}: visited");
            assert_eq!((walk.isolated(), budget), (isolated, left), "{name}: isolated, budget");
            assert_eq!(letters(lists.items(UNGROUPED)), after, "{name}: list after");
        }
    }

    #[test]
    fn l25_a_chain_gives_back_the_last_item_first() {
        let mut lists = lists(2);
        let (mut walk, mut chain, mut budget) = (Walk::new(UNGROUPED), Chain::default(), 2);
        while walk.next(&lists, &mut budget).is_some() {
            walk.isolate_move(&mut lists, &mut chain);
            walk.done(&mut lists, Code::Removed);
        }
        assert_eq!((chain.len(), walk.isolated(), lists.count()), (2, 2, 0));
        assert_eq!(lists.pop(&mut chain), Some(1));
        assert_eq!(lists.pop(&mut chain), Some(0));
        assert_eq!(lists.pop(&mut chain), None);
    }

    #[test]
    fn the_nodes_count_is_lowered_after_the_decision_and_the_lists_before() {
        let mut lists = lists(1);
        let (mut walk, mut budget) = (Walk::new(UNGROUPED), 1);
        walk.next(&lists, &mut budget);
        walk.isolate(&mut lists);
        assert_eq!((lists.count_of(UNGROUPED), lists.count()), (0, 1));
        walk.done(&mut lists, Code::Removed);
        assert_eq!(lists.count(), 0);
    }

    #[test]
    fn a_walk_abandoned_after_isolating_leaves_the_counts_right() {
        let mut lists = lists(2);
        let (mut walk, mut budget) = (Walk::new(UNGROUPED), 9);
        walk.next(&lists, &mut budget);
        walk.isolate(&mut lists);
        walk.abandon(&mut lists);
        assert_eq!((lists.count(), walk.isolated()), (1, 1));
        assert_eq!(walk.next(&lists, &mut budget), None);
    }

    #[test]
    fn items_of_a_list_that_dies_during_a_walk_are_the_parents() {
        let mut lists = Sublists::new(vec![Link::default(); 3], 2);
        let child = ListNumber::new(1);
        lists.open(child);
        (0..3).for_each(|item| assert!(lists.add(child, item).is_some()));
        let (mut walk, mut budget) = (Walk::new(child), 9);
        assert_eq!(walk.next(&lists, &mut budget), Some(0));
        lists.reparent(child, UNGROUPED);
        walk.done(&mut lists, Code::Retry);
        assert_eq!(walk.next(&lists, &mut budget), None);
        assert_eq!(letters(lists.items(UNGROUPED)), "ABC");
    }

    #[test]
    #[should_panic(expected = "Removed is no decision")]
    fn removing_without_isolating_is_an_error() {
        let mut lists = lists(1);
        let mut walk = Walk::new(UNGROUPED);
        walk.next(&lists, &mut 1);
        walk.done(&mut lists, Code::Removed);
    }

    #[test]
    #[should_panic(expected = "Skip is no decision")]
    fn skipping_an_isolated_item_is_an_error() {
        let mut lists = lists(1);
        let mut walk = Walk::new(UNGROUPED);
        walk.next(&lists, &mut 1);
        walk.isolate(&mut lists);
        walk.done(&mut lists, Code::Skip);
    }
}
