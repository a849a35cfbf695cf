//! What a device's lock guards: its state, and which of its slots are taken.
use super::far::Far;
use super::loans::Loans;
use super::record::{DeviceState, Holding, Supply};
use crate::sys::own_fd::Own;
use std::fs::File;
use std::sync::Arc;
use userswap_policy::lent::{Lent, SlotWord};
use userswap_policy::slots::{ClusterCursor, SlotRun, Slots};

/// What the device's lock guards.
pub struct Store {
    /// Whether there is a device.
    pub state: DeviceState,
    /// Whose it is.
    pub holding: Holding,
    /// Which slots are taken.
    pub slots: Slots,
    /// Whether those that are not can be.
    pub(super) supply: Supply,
    /// Which of them this process has freed, but others may still read.
    pub lent: Lent,
    /// Slots allocated since it was last asked who reads the lent ones.
    pub(super) allocated: u32,
    /// Who reads its slots beside this process; None where no memory can be shared.
    pub(super) loans: Option<Arc<Loans>>,
    /// The clusters that CPUs fill, by CPU.
    pub(super) cursors: Vec<ClusterCursor>,
    pub(super) file: Option<Own<File>>,
    /// Where its pages are, if it is a remote one.
    pub(super) remote: Option<Arc<dyn Far>>,
}

/// Which cluster new slots come from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cursor {
    /// Each CPU fills a cluster of its own.
    Cpu(usize),
    /// All share one.
    Shared,
}

impl Store {
    pub(super) fn new(state: DeviceState, max: u32) -> Self {
        Self {
            state,
            holding: Holding::Own,
            slots: Slots::new(max),
            supply: Supply::Enough,
            lent: Lent::new(max),
            allocated: 0,
            loans: None,
            cursors: Vec::new(),
            file: None,
            remote: None,
        }
    }

    /// Slots in use by this process.
    pub fn used(&self) -> u32 {
        self.slots.used() - self.lent.count()
    }

    /// Whether it can give out no slot for now.
    pub fn is_full(&self) -> bool {
        self.slots.is_full() || self.supply != Supply::Enough
    }

    /// Whether it takes no writes for the moment.
    pub fn is_silent(&self) -> bool {
        self.supply == Supply::Silent
    }

    /// Its slots in use by this process, by words.
    pub fn used_words(&self) -> impl Iterator<Item = SlotWord> {
        let own =
            |word: SlotWord| SlotWord { mask: word.mask & !self.lent.word(word.index), ..word };
        self.slots.used_runs().flat_map(SlotWord::of).map(own)
    }

    /// Takes up to `want` consecutive slots into use, if the device takes pages for now.
    pub fn allocate(&mut self, cursor: Cursor, want: u32) -> Option<SlotRun> {
        if self.state != DeviceState::On || self.supply != Supply::Enough {
            return None;
        }
        match cursor {
            Cursor::Shared => self.slots.allocate(want),
            Cursor::Cpu(cpu) => self.slots.allocate_at(&mut self.cursors[cpu], want),
        }
    }
}
