//! How much memory compressed pages may take, where that follows from what it brings.
//!
//! Memory that compressed pages take is memory that the program has less. What a step more or less would change is told by
//! how long pages have been away when they come back (`workingset`): those away for less than a step would still be in RAM
//! if it had that step; those that have just left compressed memory for a device would still be there if it had
//! more, and the oldest there would not if it had less. Each is weighed with what it costs, and what costs less by a margin
//! is done. Data that do not compress are given up on, and tried again now and then.
use crate::tiers::Ages;

/// A step is this part of the most that it may be, and no less than what the writes under way are promised.
const STEP_SHARE: u32 = 12;
const STEP_MIN: u32 = 1024;
/// A decision is due after so many pages have come back or moved on: this part of the most that it may be.
const DUE_SHARE: u32 = 8;
const DUE_MIN: u32 = 512;
/// Of a page of memory so many sixteenths of pages at least, or it is not worth it.
const RATIO_MIN: u64 = 20;
/// What it is taken for as long as there is next to nothing.
const RATIO_UNKNOWN: u64 = 32;
/// A change must gain a fourth more than it loses.
const MARGIN: (u64, u64) = (5, 4);
/// Decisions after which data are tried again that did not compress.
const GIVEN_UP: u32 = 16;

/// What a fault costs beside its device, in nanoseconds: its way into the engine, and a page that leaves for it.
const FAULT_NS: u64 = 15_000;
/// What a page costs that goes to compressed memory and comes back, in nanoseconds.
const COMPRESSED_NS: u64 = 8_000;

/// Where a page came back from.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    /// Compressed memory.
    Compressed,
    /// A device behind it.
    Behind,
}

/// Pages that came back, by how long they were away.
#[derive(Clone, Debug, Default)]
pub struct Refaults {
    compressed: Ages,
    behind: Ages,
    count: u32,
}

impl Refaults {
    /// One more, so many pages after it left.
    pub fn add(&mut self, distance: u64, from: Place) {
        self.count = self.count.saturating_add(1);
        match from {
            Place::Compressed => self.compressed.add(distance),
            Place::Behind => self.behind.add(distance),
        }
    }

    /// How many there were.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Takes those of another node along, which has none then.
    pub fn take(&mut self, other: &mut Self) {
        self.compressed.take(&mut other.compressed);
        self.behind.take(&mut other.behind);
        self.count = self.count.saturating_add(core::mem::take(&mut other.count));
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.compressed.clear();
        self.behind.clear();
        self.count = 0;
    }
}

/// What is compressed at a moment.
#[derive(Clone, Copy, Debug)]
pub struct Held {
    /// Pages.
    pub pages: u32,
    /// Pages of memory that these take.
    pub memory: u32,
}

/// How much compressed pages may take.
#[derive(Clone, Debug)]
pub struct Size {
    memory: u32,
    phase: Phase,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Phase {
    /// It follows what it brings.
    Follows,
    /// Data did not compress; so many decisions until they are tried again.
    GivenUp(u32),
}

impl Size {
    /// To begin with: a third of the most that it may be.
    pub fn new(most: u32) -> Self {
        Self { memory: (most / 3).max(step(most)), phase: Phase::Follows }
    }

    /// Pages of memory that compressed pages may take.
    pub fn memory(&self) -> u32 {
        self.memory
    }

    /// Whether enough has happened for a decision.
    pub fn is_due(most: u32, events: u64) -> bool {
        events >= u64::from((most / DUE_SHARE).max(DUE_MIN))
    }

    /// Decides by what has come back since the last time, where a page behind takes so many nanoseconds.
    pub fn decide(&mut self, seen: &Refaults, held: Held, most: u32, behind_ns: u64) {
        let step = step(most);
        if let Phase::GivenUp(left) = self.phase {
            self.phase = match left {
                0 => Phase::Follows,
                left => Phase::GivenUp(left - 1),
            };
            self.memory = if left == 0 { step } else { 0 };
            return;
        }
        self.memory = self.memory.max(step / 2).min(most);
        let sixteenths = match held.memory >= step / 2 {
            true => u64::from(held.pages) * 16 / u64::from(held.memory.max(1)),
            false => RATIO_UNKNOWN,
        };
        if sixteenths < RATIO_MIN {
            (self.memory, self.phase) = (0, Phase::GivenUp(GIVEN_UP));
            return;
        }
        // Pages that a step more would hold, beyond those that it keeps out of RAM.
        let more = u64::from(step) * sixteenths.saturating_sub(16) / 16;
        let saved_ns = behind_ns.saturating_sub(COMPRESSED_NS);
        let pages = u64::from(held.pages);
        let near = seen.compressed.within(0, step.into()) + seen.behind.within(0, step.into());
        let near_ns = near * (FAULT_NS + COMPRESSED_NS);
        let gain_ns = seen.behind.within(0, pages + more) * saved_ns;
        let loss_ns = seen.compressed.within(pages.saturating_sub(more), u64::MAX) * saved_ns;
        if is_worth(gain_ns, near_ns) {
            self.memory = (self.memory + step).min(most);
        } else if is_worth(near_ns, loss_ns) {
            self.memory = self.memory.saturating_sub(step).max(step / 2);
        }
    }
}

fn step(most: u32) -> u32 {
    (most / STEP_SHARE).max(STEP_MIN).min(most)
}

fn is_worth(gain_ns: u64, loss_ns: u64) -> bool {
    gain_ns / MARGIN.0 > loss_ns / MARGIN.1
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MOST: u32 = 96 << 10;
    const STEP: u32 = MOST / STEP_SHARE;
    const DISK_NS: u64 = 100_000;

    fn refaults(from: Place, distances: impl Iterator<Item = u64>) -> Refaults {
        let mut refaults = Refaults::default();
        distances.for_each(|distance| refaults.add(distance, from));
        refaults
    }

    /// With three pages in one.
    fn held(size: &Size) -> Held {
        Held { pages: 3 * size.memory, memory: size.memory }
    }

    #[test]
    fn it_grows_for_pages_that_have_just_gone_on_to_a_disk() {
        let mut size = Size::new(MOST);
        for _ in 0..STEP_SHARE {
            let pages = u64::from(held(&size).pages);
            let seen = refaults(Place::Behind, (0..1000).map(|page| pages + page));
            size.decide(&seen, held(&size), MOST, DISK_NS);
        }
        assert_eq!(size.memory(), MOST);
        // A disk that is as fast brings nothing.
        let before = size.clone();
        let seen = refaults(Place::Behind, (0..1000).map(|page| u64::from(MOST) + page));
        size.decide(&seen, held(&before), MOST, COMPRESSED_NS);
        assert_eq!(size.memory(), before.memory());
    }

    #[test]
    fn it_shrinks_for_pages_that_ram_would_still_have() {
        let mut size = Size::new(MOST);
        for _ in 0..STEP_SHARE {
            let seen = refaults(Place::Compressed, (0..1000).map(|page| page % u64::from(STEP)));
            size.decide(&seen, held(&size), MOST, DISK_NS);
        }
        assert_eq!(size.memory(), STEP / 2, "a little is kept, to see what would come");
    }

    #[test]
    fn pages_at_random_from_far_more_than_there_is_room_for_keep_all_of_it() {
        let mut size = Size::new(MOST);
        for _ in 0..2 * STEP_SHARE {
            let pages = u64::from(held(&size).pages);
            let mut seen = Refaults::default();
            for page in 0..20_000u64 {
                let distance = page * 40;
                let place = if distance < pages { Place::Compressed } else { Place::Behind };
                seen.add(distance, place);
            }
            size.decide(&seen, held(&size), MOST, DISK_NS);
        }
        assert_eq!(size.memory(), MOST);
    }

    #[test]
    fn data_that_do_not_compress_are_given_up_on_and_tried_again_a_little() {
        let mut size = Size::new(MOST);
        let seen = refaults(Place::Behind, 0..1000);
        let noise = |size: &Size| Held { pages: size.memory, memory: size.memory };
        size.decide(&seen, noise(&size), MOST, DISK_NS);
        assert_eq!(size.memory(), 0);
        for _ in 0..3 {
            let mut decisions = 0;
            while size.memory() == 0 {
                size.decide(&seen, noise(&size), MOST, DISK_NS);
                decisions += 1;
            }
            assert_eq!((decisions, size.memory()), (GIVEN_UP + 1, STEP));
            size.decide(&seen, noise(&size), MOST, DISK_NS);
            assert_eq!(size.memory(), 0);
        }
        // What compresses at last is kept.
        (0..=GIVEN_UP).for_each(|_| size.decide(&seen, noise(&size), MOST, DISK_NS));
        size.decide(&seen, held(&size), MOST, DISK_NS);
        assert!(size.memory() > STEP);
    }

    #[test]
    fn a_budget_that_grows_from_nothing_is_used() {
        let mut size = Size::new(0);
        for _ in 0..=STEP_SHARE {
            let held = Held { pages: 2 * size.memory(), memory: size.memory() };
            size.decide(&refaults(Place::Behind, 0..1000), held, MOST, DISK_NS);
        }
        assert_eq!(size.memory(), MOST);
    }

    #[test]
    fn little_that_happens_decides_nothing() {
        assert!(!Size::is_due(MOST, u64::from(MOST / DUE_SHARE) - 1));
        assert!(Size::is_due(MOST, u64::from(MOST / DUE_SHARE)));
        assert!(!Size::is_due(0, 511) && Size::is_due(0, 512));
        let mut size = Size::new(MOST);
        let before = size.memory();
        size.decide(&Refaults::default(), Held { pages: 0, memory: 0 }, MOST, DISK_NS);
        assert_eq!(size.memory(), before);
    }

    proptest! {
        #[test]
        fn it_never_takes_more_than_it_may(
            rounds in prop::collection::vec(
                (prop::collection::vec((0u64..1 << 20, any::<bool>()), 0..50), 0u32..1 << 20,
                    0u32..1 << 20, 0u32..1 << 17, 0u64..1 << 40), 0..40),
        ) {
            let mut size = Size::new(MOST);
            for (refaults, pages, memory, most, behind_ns) in rounds {
                let mut seen = Refaults::default();
                for (distance, is_behind) in refaults {
                    let place = if is_behind { Place::Behind } else { Place::Compressed };
                    seen.add(distance, place);
                }
                size.decide(&seen, Held { pages, memory }, most, behind_ns);
                prop_assert!(size.memory() <= most);
            }
        }
    }
}
