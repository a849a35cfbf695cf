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
//! ```
//! The bits: 0–2 state, 3 a thread waits, 4 marker, 5–31 frame (while Resident: 5–20 pins, 21–26 node),
//! 32–63 slot.
//!
//! Beside its state a word may carry a *note* for replacement, in bits that its state leaves free. A
//! Resident word notes its [`Standing`] (4 active, 27–31 generation), a Swapped one the [`Shadow`] of its
//! eviction (4 there is one, 5–25 shadow, 26–31 node), which stays while the page is Filling. Notes are
//! hints: no state depends on them, and an exchange that forgets one is correct.
use crate::base::index::{FrameIndex, NodeId, PageIndex, Slot};
use crate::base::limits::{FRAMES_MAX, NODES_MAX, PINS_MAX};
use crate::state::touched::Touched;
use crate::sys::futex;
use crate::sys::mapping::ZeroedSlice;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap_policy::workingset::{Activity, SHADOW_BITS, Shadow};

/// Of a Resident word's frame bits: the pins are below.
const NODE_SHIFT: u32 = 16;

/// Generations of a node's resident pages; they go round.
pub const GENERATIONS: u8 = 1 << (32 - GENERATION_SHIFT);

const STATE: u64 = 0b111;

const WAITED: u64 = 1 << 3;

const MARKER: u64 = 1 << 4;

/// Of a Resident word.
const ACTIVE: u64 = MARKER;

const GENERATION_SHIFT: u32 = 27;

/// Of a Swapped or Filling word.
const SHADOWED: u64 = MARKER;

const SHADOW_SHIFT: u32 = 5;

const SHADOW_NODE_SHIFT: u32 = SHADOW_SHIFT + SHADOW_BITS;

const NOTE: u64 = MARKER | FRAME_MASK << FRAME_SHIFT;

const FRAME_SHIFT: u32 = 5;

const FRAME_MASK: u64 = FRAMES_MAX - 1;

const SLOT_SHIFT: u32 = 32;

/// What a page word says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PageState {
    /// No content: reads as zeros, takes neither frame nor slot.
    Untouched,
    /// Its owner reads it or fills it with zeros.
    Filling {
        /// Where the content is, if it has any.
        slot: Option<Slot>,
    },
    /// Mapped. The slot, if any, holds what the page held when it was swapped in.
    Resident {
        /// The copy that is still on a device.
        slot: Option<Slot>,
        /// Reasons not to evict it.
        pins: u32,
        /// The node whose budget it is charged to, and on whose list it is.
        node: NodeId,
    },
    /// Its owner unmaps it.
    Leaving {
        /// The copy that is still on a device.
        slot: Option<Slot>,
    },
    /// Content in a frame and on the slot, not mapped: second chance, or just read ahead.
    Cached {
        /// Holds the content.
        frame: FrameIndex,
        /// Holds the same content; None when no device would take it.
        slot: Option<Slot>,
        /// The mark: it was read ahead, and its first use is told to the readahead policy.
        marker: bool,
    },
    /// Content in a frame, its write to the slot under way.
    Writing {
        /// Holds the content; the device reads from it.
        frame: FrameIndex,
        /// Belongs to the write until it has finished.
        slot: Slot,
    },
    /// Content on a device only.
    Swapped {
        /// Holds the content.
        slot: Slot,
    },
    /// The content could not be read back; touching the page raises SIGBUS.
    Lost,
}

/// What a resident page's word notes for reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The list it was put on.
    pub activity: Activity,
    /// When it was put there, below [`GENERATIONS`].
    pub generation: u8,
}

/// A page word's raw value, decoded with [`Word::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(u64);

impl Word {
    /// Encodes a state.
    pub fn new(state: PageState) -> Self {
        let slot_bits =
            |slot: Option<Slot>| slot.map_or(0, |slot| u64::from(slot.0.get()) << SLOT_SHIFT);
        let frame_bits = |frame: u32| {
            assert!(u64::from(frame) < FRAMES_MAX, "frame numbers fit the page word");
            u64::from(frame) << FRAME_SHIFT
        };
        Self(match state {
            PageState::Untouched => 0,
            PageState::Filling { slot } => 1 | slot_bits(slot),
            PageState::Resident { slot, pins, node } => {
                2 | frame_bits(pins | u32::from(node.0) << NODE_SHIFT) | slot_bits(slot)
            }
            PageState::Leaving { slot } => 3 | slot_bits(slot),
            PageState::Cached { frame, slot, marker } => {
                4 | frame_bits(frame) | slot_bits(slot) | if marker { MARKER } else { 0 }
            }
            PageState::Writing { frame, slot } => 5 | frame_bits(frame) | slot_bits(Some(slot)),
            PageState::Swapped { slot } => 6 | slot_bits(Some(slot)),
            PageState::Lost => 7,
        })
    }

    /// Decodes the state.
    pub fn state(self) -> PageState {
        let slot = std::num::NonZeroU32::new((self.0 >> SLOT_SHIFT) as u32).map(Slot);
        let frame = ((self.0 >> FRAME_SHIFT) & FRAME_MASK) as u32;
        let required = || slot.expect("this state has a slot");
        match self.0 & STATE {
            0 => PageState::Untouched,
            1 => PageState::Filling { slot },
            2 => PageState::Resident {
                slot,
                pins: frame & PINS_MAX,
                node: NodeId((frame >> NODE_SHIFT) as u8 & (NODES_MAX - 1) as u8),
            },
            3 => PageState::Leaving { slot },
            4 => PageState::Cached { frame, slot, marker: self.0 & MARKER != 0 },
            5 => PageState::Writing { frame, slot: required() },
            6 => PageState::Swapped { slot: required() },
            _ => PageState::Lost,
        }
    }

    /// Whether a thread owns the page right now.
    pub fn is_owned(self) -> bool {
        matches!(self.0 & STATE, 1 | 3)
    }

    /// When a page that is Swapped, or Filling from there, left, by the clock of which node; None when it
    /// left on request.
    pub fn shadow(self) -> Option<(NodeId, Shadow)> {
        let noted = matches!(self.0 & STATE, 1 | 6) && self.0 & SHADOWED != 0;
        let node = NodeId((self.0 >> SHADOW_NODE_SHIFT) as u8 & (NODES_MAX - 1) as u8);
        noted.then(|| (node, Shadow::new((self.0 >> SHADOW_SHIFT) as u32)))
    }

    /// What a Resident word notes; that of any other state means nothing.
    pub fn standing(self) -> Standing {
        let activity = if self.0 & ACTIVE == 0 { Activity::Inactive } else { Activity::Active };
        let generation = (self.0 >> GENERATION_SHIFT) as u8 % GENERATIONS;
        Standing { activity, generation }
    }

    fn with_shadow(self, node: NodeId, shadow: Shadow) -> Self {
        debug_assert!(matches!(self.state(), PageState::Swapped { .. }), "only there is room");
        let noted = u64::from(shadow.bits()) << SHADOW_SHIFT;
        Self(self.0 | SHADOWED | noted | u64::from(node.0) << SHADOW_NODE_SHIFT)
    }

    fn with_standing(self, standing: Standing) -> Self {
        debug_assert!(matches!(self.state(), PageState::Resident { .. }), "only there is room");
        let active = match standing.activity {
            Activity::Inactive => 0,
            Activity::Active => ACTIVE,
        };
        Self(self.0 | active | u64::from(standing.generation % GENERATIONS) << GENERATION_SHIFT)
    }

    /// The word of a claimed page: one on its way in from its slot keeps its shadow.
    fn claimed_from(self, seen: Word) -> Self {
        if self.0 & STATE == 1 && seen.0 & STATE == 6 { Self(self.0 | seen.0 & NOTE) } else { self }
    }
}

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

    /// Takes the copy on a device away from a Resident page; all else that its word says stays.
    pub fn drop_slot(&self, page: PageIndex, seen: Word) -> bool {
        assert!(matches!(seen.state(), PageState::Resident { .. }), "page {page} is resident");
        self.exchange(page, seen, Word(seen.0 & ((1 << SLOT_SHIFT) - 1)))
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

    /// Publishes a page as Resident and unpinned, with its standing.
    pub fn publish_resident(
        &self,
        page: PageIndex,
        (slot, node): (Option<Slot>, NodeId),
        standing: Standing,
    ) -> Waiters {
        let state = PageState::Resident { slot, pins: 0, node };
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
    use proptest::prelude::*;

    fn slot(number: u32) -> Slot {
        Slot(std::num::NonZeroU32::new(number).unwrap())
    }

    fn any_state() -> impl Strategy<Value = PageState> {
        let frame = 0..(FRAMES_MAX as u32);
        let some = (1u32..).prop_map(slot);
        let maybe = proptest::option::of((1u32..).prop_map(slot));
        prop_oneof![
            Just(PageState::Untouched),
            Just(PageState::Lost),
            maybe.clone().prop_map(|slot| PageState::Filling { slot }),
            maybe.clone().prop_map(|slot| PageState::Leaving { slot }),
            (maybe.clone(), 0..=PINS_MAX, 0..NODES_MAX as u8).prop_map(|(slot, pins, node)| {
                PageState::Resident { slot, pins, node: NodeId(node) }
            }),
            (frame.clone(), maybe, any::<bool>())
                .prop_map(|(frame, slot, marker)| PageState::Cached { frame, slot, marker }),
            (frame, some.clone()).prop_map(|(frame, slot)| PageState::Writing { frame, slot }),
            some.prop_map(|slot| PageState::Swapped { slot }),
        ]
    }

    proptest! {
        #[test]
        fn every_state_survives_its_encoding(state in any_state()) {
            prop_assert_eq!(Word::new(state).state(), state);
        }
    }

    proptest! {
        #[test]
        fn notes_change_no_state(
            number in 1u32.., bits in 0u32..1 << SHADOW_BITS, node in 0..NODES_MAX as u8,
            generation in 0..GENERATIONS, pins in 0..=PINS_MAX,
        ) {
            let (slot, node) = (slot(number), NodeId(node));
            let swapped = Word::new(PageState::Swapped { slot });
            let noted = swapped.with_shadow(node, Shadow::new(bits));
            prop_assert_eq!(noted.state(), swapped.state());
            prop_assert_eq!(noted.shadow(), Some((node, Shadow::new(bits))));
            prop_assert_eq!(swapped.shadow(), None);
            let resident = Word::new(PageState::Resident { slot: Some(slot), pins, node });
            for activity in [Activity::Active, Activity::Inactive] {
                let standing = Standing { activity, generation };
                let noted = resident.with_standing(standing);
                prop_assert_eq!((noted.state(), noted.standing()), (resident.state(), standing));
                prop_assert_eq!(noted.shadow(), None);
            }
        }
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
        assert_eq!(table.publish_resident(0, (Some(slot), node), standing), Waiters::None);
        let word = table.load(0);
        assert_eq!(word.state(), PageState::Resident { slot: Some(slot), pins: 0, node });
        assert_eq!((word.shadow(), word.standing()), (None, standing));
        claimed(word.state(), PageState::Leaving { slot: Some(slot) });
        assert_eq!(table.load(0).standing().activity, Activity::Inactive);
    }

    #[test]
    fn a_page_that_loses_its_slot_keeps_its_standing() {
        let table = PageTable::new(1).unwrap();
        let standing = Standing { activity: Activity::Active, generation: 7 };
        assert!(table.change(0, PageState::Untouched, PageState::Filling { slot: None }));
        assert_eq!(table.publish_resident(0, (Some(slot(9)), NodeId(3)), standing), Waiters::None);
        assert!(table.drop_slot(0, table.load(0)));
        let word = table.load(0);
        let expected = PageState::Resident { slot: None, pins: 0, node: NodeId(3) };
        assert_eq!((word.state(), word.standing()), (expected, standing));
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
