//! A page's state, and the 64 bits that encode it.
//!
//! The bits: 0–2 state, 3 a thread waits, 4 marker, 5–31 frame (while Resident: 5–20 pins, 21–26 node; while Clean
//! the pins are all ones), 32–63 slot.
//!
//! Beside its state a word may carry a *note* for replacement, in bits that its state leaves free. A
//! Resident word notes its [`Standing`] (4 active, 27–31 generation), a Swapped one the [`Shadow`] of its
//! eviction (4 there is one, 5–25 shadow, 26–31 node), which stays while the page is Filling. Notes are
//! hints: no state depends on them, and an exchange that forgets one is correct.
use crate::base::index::{FrameIndex, NodeId, Slot};
use crate::base::limits::{FRAMES_MAX, NODES_MAX, PINS_MAX};
use userswap_policy::workingset::{Activity, SHADOW_BITS, Shadow};

/// Of a Resident word's frame bits: the pins are below.
const NODE_SHIFT: u32 = 16;

/// In place of the pins of a Resident word: it is Clean.
const CLEAN: u32 = PINS_MAX + 1;

/// The bits of a Resident word that hold its pins, or [`CLEAN`].
pub(super) const PINS: u64 = (CLEAN as u64) << FRAME_SHIFT;

/// Generations of a node's resident pages; they go round.
pub const GENERATIONS: u8 = 1 << (32 - GENERATION_SHIFT);

pub(super) const STATE: u64 = 0b111;

pub(super) const WAITED: u64 = 1 << 3;

const MARKER: u64 = 1 << 4;

/// Of a Resident word.
const ACTIVE: u64 = MARKER;

const GENERATION_SHIFT: u32 = 27;

/// Of a Resident word, what [`Standing`] says.
const STANDING: u64 = ACTIVE | (GENERATIONS as u64 - 1) << GENERATION_SHIFT;

/// Of a Swapped or Filling word.
const SHADOWED: u64 = MARKER;

const SHADOW_SHIFT: u32 = 5;

const SHADOW_NODE_SHIFT: u32 = SHADOW_SHIFT + SHADOW_BITS;

const NOTE: u64 = MARKER | FRAME_MASK << FRAME_SHIFT;

const FRAME_SHIFT: u32 = 5;

const FRAME_MASK: u64 = FRAMES_MAX - 1;

pub(super) const SLOT_SHIFT: u32 = 32;

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
    /// Mapped, protected against writing since its slot was read: dropping it loses nothing.
    Clean {
        /// Holds the same content.
        slot: Slot,
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

/// What a page is that is mapped, Resident or Clean.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Mapped {
    /// The copy that is still on a device.
    pub slot: Option<Slot>,
    /// Reasons not to evict it.
    pub pins: u32,
    /// The node whose budget it is charged to, and on whose list it is.
    pub node: NodeId,
}

impl PageState {
    /// What a mapped page is; None of every other one.
    pub fn mapped(self) -> Option<Mapped> {
        match self {
            Self::Resident { slot, pins, node } => Some(Mapped { slot, pins, node }),
            Self::Clean { slot, node } => Some(Mapped { slot: Some(slot), pins: 0, node }),
            _ => None,
        }
    }
}

/// What a mapped page's word notes for reclaim.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Standing {
    /// The list it was put on.
    pub activity: Activity,
    /// When it was put there, below [`GENERATIONS`].
    pub generation: u8,
}

/// A page word's raw value, decoded with [`Word::state`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word(pub(super) u64);

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
            PageState::Clean { slot, node } => {
                2 | frame_bits(CLEAN | u32::from(node.0) << NODE_SHIFT) | slot_bits(Some(slot))
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
            2 => {
                let node = NodeId((frame >> NODE_SHIFT) as u16 & (NODES_MAX - 1) as u16);
                match frame & CLEAN {
                    CLEAN => PageState::Clean { slot: required(), node },
                    pins => PageState::Resident { slot, pins, node },
                }
            }
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
        let node = NodeId((self.0 >> SHADOW_NODE_SHIFT) as u16 & (NODES_MAX - 1) as u16);
        noted.then(|| (node, Shadow::new((self.0 >> SHADOW_SHIFT) as u32)))
    }

    /// The word of the same swapped page once its content is on another slot.
    pub(super) fn on_slot(self, slot: Slot) -> Self {
        debug_assert!(matches!(self.state(), PageState::Swapped { .. }), "only there is no other");
        Self(self.0 & ((1 << SLOT_SHIFT) - 1) | u64::from(slot.0.get()) << SLOT_SHIFT)
    }

    /// What a mapped page's word notes; that of any other state means nothing.
    pub fn standing(self) -> Standing {
        let activity = if self.0 & ACTIVE == 0 { Activity::Inactive } else { Activity::Active };
        let generation = (self.0 >> GENERATION_SHIFT) as u8 % GENERATIONS;
        Standing { activity, generation }
    }

    pub(super) fn with_shadow(self, node: NodeId, shadow: Shadow) -> Self {
        debug_assert!(matches!(self.state(), PageState::Swapped { .. }), "only there is room");
        let noted = u64::from(shadow.bits()) << SHADOW_SHIFT;
        Self(self.0 | SHADOWED | noted | u64::from(node.0) << SHADOW_NODE_SHIFT)
    }

    pub(super) fn with_standing(self, standing: Standing) -> Self {
        debug_assert!(self.0 & STATE == 2, "only there is room");
        let active = match standing.activity {
            Activity::Inactive => 0,
            Activity::Active => ACTIVE,
        };
        Self(self.0 | active | u64::from(standing.generation % GENERATIONS) << GENERATION_SHIFT)
    }

    /// The word of a claimed page: one on its way in from its slot keeps its shadow, and one that stays mapped (pinned
    /// or unpinned) its standing.
    pub(super) fn claimed_from(self, seen: Word) -> Self {
        match (seen.0 & STATE, self.0 & STATE) {
            (6, 1) => Self(self.0 | seen.0 & NOTE),
            (2, 2) => Self(self.0 | seen.0 & STANDING),
            _ => self,
        }
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
            (maybe.clone(), 0..=PINS_MAX, 0..NODES_MAX as u16).prop_map(|(slot, pins, node)| {
                PageState::Resident { slot, pins, node: NodeId(node) }
            }),
            (some.clone(), 0..NODES_MAX as u16)
                .prop_map(|(slot, node)| PageState::Clean { slot, node: NodeId(node) }),
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
            number in 1u32.., bits in 0u32..1 << SHADOW_BITS, node in 0..NODES_MAX as u16,
            generation in 0..GENERATIONS, pins in 0..=PINS_MAX,
        ) {
            let (slot, node) = (slot(number), NodeId(node));
            let swapped = Word::new(PageState::Swapped { slot });
            let noted = swapped.with_shadow(node, Shadow::new(bits));
            prop_assert_eq!(noted.state(), swapped.state());
            prop_assert_eq!(noted.shadow(), Some((node, Shadow::new(bits))));
            let other = Slot(slot.0.saturating_add(1));
            let moved = noted.on_slot(other);
            prop_assert_eq!(moved.state(), PageState::Swapped { slot: other });
            prop_assert_eq!(moved.shadow(), noted.shadow());
            prop_assert_eq!(swapped.shadow(), None);
            let resident = Word::new(PageState::Resident { slot: Some(slot), pins, node });
            let clean = Word::new(PageState::Clean { slot, node });
            for mapped in [resident, clean] {
                for activity in [Activity::Active, Activity::Inactive] {
                    let standing = Standing { activity, generation };
                    let noted = mapped.with_standing(standing);
                    prop_assert_eq!((noted.state(), noted.standing()), (mapped.state(), standing));
                    prop_assert_eq!(noted.shadow(), None);
                }
            }
        }
    }
}
