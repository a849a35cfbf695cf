//! What a trace is made of: faults, and runs of pages that came or went.

/// Pages of one event at most; a longer run takes several.
pub const RUN_MAX: u32 = (1 << 28) - 1;

/// What happened to pages.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Kind {
    /// A fault on a page without content.
    FirstTouch = 1,
    /// A fault on a page whose content was in a frame: no read.
    SecondChance = 2,
    /// A fault on a page that was on a device.
    Read = 3,
    /// A fault on a page in transition, which waited for it.
    Waited = 4,
    /// A fault on a page that was there: its fault was answered meanwhile. Before [`Self::Written`] was told apart, this was
    /// also said of such pages.
    Present = 5,
    /// A fault that found no page: in no region, or lost.
    Nothing = 6,
    /// Pages were mapped that no device had, with those that the fault did not ask for.
    Fresh = 7,
    /// Pages with content were mapped.
    Back = 8,
    /// Reclaim, or a request, unmapped pages.
    Left = 9,
    /// The program gave pages up; they have no content any more.
    Dropped = 10,
    /// A fault of a write to a page that was there, protected since it was read: the first write to it.
    Written = 11,
}

impl Kind {
    /// All kinds, by their numbers.
    pub const ALL: [Self; 11] = [
        Self::FirstTouch,
        Self::SecondChance,
        Self::Read,
        Self::Waited,
        Self::Present,
        Self::Nothing,
        Self::Fresh,
        Self::Back,
        Self::Left,
        Self::Dropped,
        Self::Written,
    ];

    /// The kind of a number.
    pub fn from_number(number: u8) -> Option<Self> {
        Self::ALL.get(usize::from(number).checked_sub(1)?).copied()
    }

    /// Whether it is a fault, and thus of one page.
    pub fn is_fault(self) -> bool {
        !matches!(self, Self::Fresh | Self::Back | Self::Left | Self::Dropped)
    }
}

/// What happened, and to which pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Event {
    /// What happened.
    pub kind: Kind,
    /// The first page.
    pub first: u32,
    /// Pages from it on: 1 to [`RUN_MAX`], of a fault 1.
    pub count: u32,
}

impl Event {
    /// A fault on a page.
    pub fn fault(kind: Kind, page: u32) -> Self {
        Self { kind, first: page, count: 1 }
    }

    /// As one number, which is never 0.
    pub fn to_bits(self) -> u64 {
        debug_assert!((1..=RUN_MAX).contains(&self.count), "a run is cut before");
        u64::from(self.first) | u64::from(self.count) << 32 | (self.kind as u64) << 60
    }

    /// From [`Self::to_bits`]; None for any other number.
    pub fn from_bits(bits: u64) -> Option<Self> {
        let kind = Kind::from_number((bits >> 60) as u8)?;
        let count = (bits >> 32) as u32 & RUN_MAX;
        (count > 0).then_some(Self { kind, first: bits as u32, count })
    }
}
