//! Page words: the state of every page of the arena, one atomic word each.
//!
//! A word is changed by compare-exchange, and that exchange is the page's lock: the thread that sets Filling or
//! Leaving owns the page until it publishes the next state. A state that changed while a thread acted is
//! examined again, never assumed. The legal transitions:
//!
//! ```text
//!  Untouched ──▶ Filling ──▶ Resident ──▶ Leaving ──▶ Writing ──▶ Cached ──▶ Swapped
//!      ▲            ▲            ▲           │  └──▶ Cached (clean)  │          │
//!      └────────────┼────────────┼───────────┘ (zero, dropped)       │          │
//!                   └────────────┴── fault ◀─────────────────────────┴──────────┘
//!  Filling ──▶ Lost: the slot could not be read
//!  Filling ──▶ Clean ──▶ Leaving ──▶ Cached (dropped), Resident (written to)
//!                └──▶ Resident (pinned, slot taken away)
//! ```
//! A Clean page is mapped write-protected. The reverse does not hold: a Resident one may be protected still, which
//! its first write finds out. How a state is encoded is `word.rs`'s.
use crate::base::index::{NodeId, PageIndex, Slot};
use crate::state::touched::Touched;
use crate::state::word::{PINS, SLOT_SHIFT, STATE, WAITED};
use crate::sys::futex;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::workingset::Shadow;

pub use crate::state::word::{GENERATIONS, Mapped, PageState, Standing, Word};

/// The words of all pages of an arena.
pub struct PageTable {
    words: ZeroedSlice<AtomicU64>,
    /// Where the words may be other than Untouched.
    pub touched: Touched,
}

/// Whether a publication has to wake threads that wait in the kernel.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub enum Waiters {
    /// No thread waited.
    None,
    /// Threads blocked in the kernel may wait for this page.
    Some,
}

impl PageTable {
    /// Words for `pages` pages, all Untouched.
    ///
    /// # Errors
    /// What mmap says.
    pub fn new(pages: u32) -> io::Result<Self> {
        Ok(Self { words: ZeroedSlice::new(pages as usize)?, touched: Touched::new(pages)? })
    }

    /// Number of pages of the arena.
    pub fn pages(&self) -> u32 {
        self.words.len() as u32
    }

    /// The word of `page`.
    pub fn load(&self, page: PageIndex) -> Word {
        // Acquire pairs with the release in `claim` and `publish`: what the last owner did is visible.
        Word(self.words[page as usize].load(Ordering::Acquire))
    }

    /// The state of `page`.
    pub fn state(&self, page: PageIndex) -> PageState {
        self.load(page).state()
    }

    /// Changes `page` from `seen` to `next` if it still is as seen.
    pub fn claim(&self, page: PageIndex, seen: Word, next: PageState) -> bool {
        debug_assert!(!seen.is_owned(), "an owned page is published by its owner, not claimed");
        if seen.0 & STATE == 0 {
            self.touched.mark(page);
        }
        self.exchange(page, seen, Word::new(next).claimed_from(seen))
    }

    /// Takes the copy on a device away from a mapped page, which is not Clean then; all else that its word says stays.
    pub fn drop_slot(&self, page: PageIndex, seen: Word) -> bool {
        let without = Word(seen.0 & ((1 << SLOT_SHIFT) - 1));
        match seen.state() {
            PageState::Resident { .. } => self.exchange(page, seen, without),
            PageState::Clean { .. } => self.exchange(page, seen, Word(without.0 & !PINS)),
            state => panic!("page {page} is {state:?}, not mapped"),
        }
    }

    /// A Clean page is Resident from now on, and keeps its slot and standing; false if its word has changed.
    pub fn distrust(&self, page: PageIndex, seen: Word) -> bool {
        assert!(matches!(seen.state(), PageState::Clean { .. }), "page {page} is clean");
        self.exchange(page, seen, Word(seen.0 & !PINS))
    }

    /// Claims a Cached page for eviction: its content is on `slot`, and `shadow` says when it left.
    pub fn evict(&self, page: PageIndex, seen: Word, slot: Slot, left: (NodeId, Shadow)) -> bool {
        let next = Word::new(PageState::Swapped { slot }).with_shadow(left.0, left.1);
        self.exchange(page, seen, next)
    }

    fn exchange(&self, page: PageIndex, seen: Word, next: Word) -> bool {
        let word = &self.words[page as usize];
        word.compare_exchange(seen.0, next.0, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// The owner's last act: sets the next state and wakes the threads that sleep on the word.
    pub fn publish(&self, page: PageIndex, next: PageState) -> Waiters {
        self.publish_word(page, Word::new(next))
    }

    /// Ends an ownership that has changed nothing: the word is what it was.
    pub fn restore(&self, page: PageIndex, seen: Word) -> Waiters {
        debug_assert!(!seen.is_owned(), "what was owned then was somebody else's");
        self.publish_word(page, seen)
    }

    /// The same, but that its content is on another slot: what the word notes of the page stays.
    pub fn restore_on(&self, page: PageIndex, seen: Word, slot: Slot) -> Waiters {
        self.restore(page, seen.on_slot(slot))
    }

    /// Publishes a mapped page with its standing.
    pub fn publish_mapped(&self, page: PageIndex, state: PageState, standing: Standing) -> Waiters {
        self.publish_word(page, Word::new(state).with_standing(standing))
    }

    fn publish_word(&self, page: PageIndex, next: Word) -> Waiters {
        let word = &self.words[page as usize];
        // Release: everything done to the page is visible to a thread that sees the new state.
        let before = Word(word.swap(next.0, Ordering::AcqRel));
        assert!(before.is_owned(), "page {page} was published by a thread that did not own it");
        if before.0 & WAITED == 0 {
            return Waiters::None;
        }
        futex::wake_low(word);
        Waiters::Some
    }

    /// Leaves a note for the owner that a thread waits; false if the page is no longer owned.
    pub fn note_waiter(&self, page: PageIndex) -> bool {
        let word = &self.words[page as usize];
        let mut seen = word.load(Ordering::Acquire);
        while Word(seen).is_owned() {
            match word.compare_exchange_weak(
                seen,
                seen | WAITED,
                Ordering::AcqRel,
                Ordering::Acquire,
            ) {
                Ok(_) => return true,
                Err(now) => seen = now,
            }
        }
        false
    }

    /// Sleeps until `page` is not owned any more.
    pub fn wait_owned(&self, page: PageIndex) {
        while self.note_waiter(page) {
            let word = &self.words[page as usize];
            let seen = word.load(Ordering::Acquire);
            if Word(seen).is_owned() && seen & WAITED != 0 {
                futex::wait_low(word, seen as u32);
            }
        }
    }

    /// One change of state outside ownership; false if the page is not (any more) in `from`.
    pub fn change(&self, page: PageIndex, from: PageState, to: PageState) -> bool {
        let seen = self.load(page);
        seen.state() == from && self.claim(page, seen, to)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use userswap_policy::workingset::Activity;

    fn slot(number: u32) -> Slot {
        Slot(std::num::NonZeroU32::new(number).unwrap())
    }

    #[test]
    fn a_shadow_stays_until_the_page_is_there_and_no_longer() {
        let table = PageTable::new(1).unwrap();
        let (slot, frame, node) = (slot(9), 3, NodeId(5));
        let claimed = |from: PageState, to: PageState| assert!(table.change(0, from, to));
        claimed(PageState::Untouched, PageState::Filling { slot: None });
        let cached = PageState::Cached { frame, slot: Some(slot), marker: false };
        assert_eq!(table.publish(0, cached), Waiters::None);
        let left = (node, Shadow::new(77));
        assert!(table.evict(0, table.load(0), slot, left));
        assert_eq!(table.state(0), PageState::Swapped { slot });
        claimed(PageState::Swapped { slot }, PageState::Filling { slot: Some(slot) });
        assert_eq!(table.load(0).shadow(), Some(left));
        let standing = Standing { activity: Activity::Active, generation: 31 };
        let resident = PageState::Resident { slot: Some(slot), pins: 0, node };
        assert_eq!(table.publish_mapped(0, resident, standing), Waiters::None);
        let word = table.load(0);
        assert_eq!(word.state(), resident);
        assert_eq!((word.shadow(), word.standing()), (None, standing));
        claimed(word.state(), PageState::Leaving { slot: Some(slot) });
        assert_eq!(table.load(0).standing().activity, Activity::Inactive);
    }

    #[test]
    fn a_page_that_loses_its_slot_or_its_trust_keeps_its_standing() {
        let table = PageTable::new(2).unwrap();
        let standing = Standing { activity: Activity::Active, generation: 7 };
        let (slot, node) = (slot(9), NodeId(3));
        let resident = PageState::Resident { slot: Some(slot), pins: 0, node };
        let clean = PageState::Clean { slot, node };
        let without = PageState::Resident { slot: None, pins: 0, node };
        let drop = PageTable::drop_slot as fn(&PageTable, PageIndex, Word) -> bool;
        for (before, change, after) in [
            (resident, drop, without),
            (clean, drop, without),
            (clean, PageTable::distrust, resident),
        ] {
            table.words[0].store(1, Ordering::Relaxed);
            assert_eq!(table.publish_mapped(0, before, standing), Waiters::None);
            let seen = table.load(0);
            assert!(change(&table, 0, seen) && !change(&table, 0, seen), "{before:?}, once");
            let word = table.load(0);
            assert_eq!((word.state(), word.standing()), (after, standing));
        }
    }

    #[test]
    fn a_page_that_is_pinned_and_unpinned_keeps_its_standing() {
        let table = PageTable::new(1).unwrap();
        let node = NodeId(3);
        let pinned = |pins| PageState::Resident { slot: Some(slot(9)), pins, node };
        for (activity, generation) in [(Activity::Active, 31), (Activity::Inactive, 5)] {
            let standing = Standing { activity, generation };
            for before in [pinned(0), PageState::Clean { slot: slot(9), node }] {
                table.words[0].store(1, Ordering::Relaxed);
                assert_eq!(table.publish_mapped(0, before, standing), Waiters::None);
                for after in [pinned(1), pinned(2), pinned(1), pinned(0)] {
                    assert!(table.claim(0, table.load(0), after));
                    let word = table.load(0);
                    assert_eq!((word.state(), word.standing()), (after, standing));
                }
            }
        }
    }

    #[test]
    fn of_many_claimants_exactly_one_wins() {
        let table = PageTable::new(64).unwrap();
        let wins = std::sync::atomic::AtomicU32::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for page in 0..64 {
                        let seen = table.load(page);
                        if seen.state() == PageState::Untouched
                            && table.claim(page, seen, PageState::Filling { slot: None })
                        {
                            wins.fetch_add(1, Ordering::Relaxed);
                        }
                    }
                });
            }
        });
        assert_eq!(wins.into_inner(), 64);
    }

    #[test]
    fn a_waiter_sleeps_until_the_owner_publishes() {
        let table = PageTable::new(1).unwrap();
        assert!(table.change(0, PageState::Untouched, PageState::Filling { slot: None }));
        std::thread::scope(|scope| {
            let waiter = scope.spawn(|| {
                table.wait_owned(0);
                table.state(0)
            });
            while table.words[0].load(Ordering::Relaxed) & WAITED == 0 {
                std::hint::spin_loop();
            }
            let waiters =
                table.publish(0, PageState::Resident { slot: None, pins: 0, node: NodeId(0) });
            assert_eq!(waiters, Waiters::Some);
            assert_eq!(
                waiter.join().unwrap(),
                PageState::Resident { slot: None, pins: 0, node: NodeId(0) }
            );
        });
    }
}
