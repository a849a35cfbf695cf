//! A page has been mapped: its word is published, active or inactive, and it goes to that list of its node (the
//! kernel's lru_add).
//!
//! Whether it is active is the working set's decision (`policy::workingset`), made under the node's lock
//! before the word is published; the list follows after it, because a page on a list whose word does not
//! say so would be forgotten. Mapping it is `map.rs`'s.
use crate::base::counters::count;
use crate::base::index::{PageIndex, PageRange, Slot};
use crate::state::core::Core;
use crate::state::node::{Node, NodeState};
use crate::state::page::{PageState, Standing, Waiters, Word};
use userswap_policy::compress::Place;
use userswap_policy::workingset::{Activity, Need, Refault, Shadow};
use userswap_trace::Kind;

/// Pages decided about at a time: one bit each.
const CHUNK: u32 = u64::BITS;

/// How a page came to be mapped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Origin {
    /// Touched for the first time, adopted, or first used after it was read ahead.
    New,
    /// Used while it was on its second chance.
    SecondChance,
    /// Read from its device.
    Read {
        /// The page among them that a fault asked for.
        asked: Option<PageIndex>,
    },
    /// It was to be unmapped or written, and has to stay.
    Again,
    /// Swapped in before a fault asked for it.
    Unasked,
}

impl Origin {
    /// What a trace says of it.
    fn kind(self) -> Kind {
        match self {
            Self::New => Kind::Fresh,
            Self::SecondChance | Self::Read { .. } | Self::Again | Self::Unasked => Kind::Back,
        }
    }
}

impl Core {
    /// Publishes pages that were just mapped, each with the slot that still holds its content, and puts them on
    /// their node's list.
    pub(crate) fn publish_resident(
        &self,
        node: &Node,
        range: PageRange,
        origin: Origin,
        slot: impl Fn(PageIndex) -> Option<Slot>,
    ) {
        let state = |page| PageState::Resident { slot: slot(page), pins: 0, node: node.id };
        self.publish_mapped(node, range, origin, state);
    }

    /// Publishes pages that were just mapped in the states that they are in, and puts them on their node's list.
    pub(crate) fn publish_mapped(
        &self,
        node: &Node,
        range: PageRange,
        origin: Origin,
        state: impl Fn(PageIndex) -> PageState,
    ) {
        self.trace.note_run(origin.kind(), range);
        let mut first = range.first;
        while first < range.end() {
            let chunk = PageRange { first, count: (range.end() - first).min(CHUNK) };
            let (active, generation) = self.active_of(node, chunk, origin);
            for page in chunk.first..chunk.end() {
                let is_active = active >> (page - first) & 1 == 1;
                let activity = if is_active { Activity::Active } else { Activity::Inactive };
                let standing = Standing { activity, generation };
                if self.pages.publish_mapped(page, state(page), standing) == Waiters::Some {
                    self.wake_faults(PageRange { first: page, count: 1 });
                }
            }
            first = chunk.end();
        }
        // After publishing: a page on the list whose word is not Resident would be forgotten.
        node.lock().enlist(&self.pages, range.first, range.count);
    }

    /// A bit for each page that is taken for active, and the generation of all.
    fn active_of(&self, node: &Node, range: PageRange, origin: Origin) -> (u64, u8) {
        let words = (range.first..range.end()).map(|page| (page, self.pages.load(page)));
        let mut state = node.lock();
        let bits = words.enumerate().map(|(index, (page, word))| {
            let activity = match origin {
                Origin::New => {
                    let counts = state.counts();
                    state.workingset.on_first_touch(counts)
                }
                Origin::Again | Origin::Unasked => Activity::Inactive,
                Origin::SecondChance => {
                    state.workingset.on_activation(page);
                    count(&self.counters.pgactivate, 1);
                    Activity::Active
                }
                Origin::Read { asked } => {
                    let need = if asked == Some(page) { Need::Asked } else { Need::Beside };
                    self.refault(&mut state, page, word, need)
                }
            };
            u64::from(activity == Activity::Active) << index
        });
        let active = bits.fold(0, |all, bit| all | bit);
        (active, state.generation())
    }

    /// What decides about compressed memory, where anything does, is told of a page that came back.
    fn note_refault(&self, state: &mut NodeState, word: Word, shadow: Shadow) {
        if !self.demotion.follows() {
            return;
        }
        let distance = state.workingset.distance(shadow);
        let PageState::Filling { slot: Some(slot) } = word.state() else { return };
        let Some(refaults) = &mut state.refaults else { return };
        let is_compressed = self.devices.device_of(slot).is_compressed();
        refaults.add(distance, if is_compressed { Place::Compressed } else { Place::Behind });
        self.demotion.tell(refaults.count().into(), 1);
    }

    /// A page is swapped in again: whether it was away for long, by the clock of the node that takes it.
    fn refault(&self, state: &mut NodeState, page: PageIndex, word: Word, need: Need) -> Activity {
        let counts = state.counts();
        let Some((node, shadow)) = word.shadow() else {
            return state.workingset.on_first_touch(counts);
        };
        count(&self.counters.workingset_refault, 1);
        if node != state.id() {
            // Another node's clock says nothing here.
            return state.workingset.on_first_touch(counts);
        }
        self.note_refault(state, word, shadow);
        let refault = state.workingset.on_refault(page, shadow, need, counts);
        match refault {
            Refault::Activated => count(&self.counters.workingset_activate, 1),
            Refault::Regretted => count(&self.counters.workingset_regret, 1),
            Refault::Unproven | Refault::Distant => {}
        }
        refault.activity()
    }
}
