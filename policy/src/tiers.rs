//! Tiers of swap devices: when pages of a device move on to the next, and which of them.
//!
//! A device that is asked first keeps what came first, and sends whatever leaves later past it once it is full: then the
//! coldest pages have the fastest place. So room is kept ahead, by moving on the pages that have been away for longest. How
//! long that is their shadow says (`workingset`): how many others have left since. Such ages are counted in bins that are
//! narrow for young pages and wide for old ones, so that one look at all pages finds an age which enough of them have.

/// Room is short below this part of all.
const LOW_SHARE: u32 = 16;
/// Once it was short, room is made up to this part.
const HIGH_SHARE: u32 = 8;
/// Pages of room at least: two writes of a reclaimer, for which a page of memory each is promised, and one more.
const LOW_MIN: u32 = 512;
const HIGH_MIN: u32 = 768;

/// Room beyond what is kept ahead that counts as idle: what a fault reads at once.
const IDLE_PAGES: i64 = 64;

/// Bins of ages up to twice as large, as a power of two: an age is told to a sixteenth.
const STEP_BITS: u32 = 4;
const STEPS: u64 = 1 << STEP_BITS;
const BINS: usize = (u64::BITS - STEP_BITS + 1) as usize * STEPS as usize;

/// What a device has room for, in pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Room {
    /// Room for so many more; less than nothing where it holds more than it should.
    pub free: i64,
    /// Room for so many if it were empty.
    pub total: u32,
}

impl Room {
    /// Whether pages should move on.
    pub fn is_short(self) -> bool {
        self.free < (self.total / LOW_SHARE).max(LOW_MIN).min(self.total / 4).into()
    }

    /// Room to be made once it was short.
    pub fn missing(self) -> u32 {
        (self.enough() - self.free).clamp(0, u32::MAX.into()) as u32
    }

    /// Whether there is room that nothing had to move on for: for a page that is well kept where it is. Pages that come and
    /// go in a loop would else send each other away.
    pub fn is_idle(self) -> bool {
        self.free >= self.enough() + IDLE_PAGES
    }

    fn enough(self) -> i64 {
        (self.total / HIGH_SHARE).max(HIGH_MIN).min(self.total / 2).into()
    }
}

/// How many pages of a device have which age.
#[derive(Clone, Debug)]
pub struct Ages {
    bins: [u32; BINS],
}

impl Default for Ages {
    fn default() -> Self {
        Self { bins: [0; BINS] }
    }
}

impl Ages {
    /// Forgets all.
    pub fn clear(&mut self) {
        self.bins.fill(0);
    }

    /// One more page.
    pub fn add(&mut self, age: u64) {
        let bin = &mut self.bins[bin_of(age)];
        *bin = bin.saturating_add(1);
    }

    /// Pages from one age on to below another.
    pub fn within(&self, from: u64, to: u64) -> u64 {
        let bins = bin_of(from)..bin_of(to).max(bin_of(from));
        self.bins[bins].iter().map(|count| u64::from(*count)).sum()
    }

    /// Takes the pages of another along, which has none then.
    pub fn take(&mut self, other: &mut Self) {
        for (bin, more) in self.bins.iter_mut().zip(&mut other.bins) {
            *bin = bin.saturating_add(core::mem::take(more));
        }
    }

    /// The age from which on there are `wanted` pages, and hardly more; 0 if there are no more than that.
    pub fn oldest(&self, wanted: u32) -> u64 {
        let mut found = 0;
        let enough = self.bins.iter().rposition(|count| {
            found += u64::from(*count);
            found >= u64::from(wanted)
        });
        enough.map_or(0, first_of)
    }
}

fn bin_of(age: u64) -> usize {
    if age < STEPS {
        return age as usize;
    }
    let shift = age.ilog2() - STEP_BITS;
    ((u64::from(shift) + 1) * STEPS + (age >> shift) % STEPS) as usize
}

/// The least age of a bin.
fn first_of(bin: usize) -> u64 {
    let (row, step) = (bin as u64 / STEPS, bin as u64 % STEPS);
    if row == 0 { step } else { (STEPS + step) << (row - 1) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_age_lies_in_its_bin_and_a_bin_is_a_sixteenth_wide() {
        let powers = (0..64).flat_map(|power| [1u64 << power, (1 << power) - 1, 3 << power >> 1]);
        for age in powers.chain([0, 17, 1000, u64::MAX]) {
            let bin = bin_of(age);
            assert!(first_of(bin) <= age, "{age}");
            if bin + 1 < BINS {
                assert!(first_of(bin + 1) > age, "{age}");
                assert!(first_of(bin + 1) - first_of(bin) <= age / STEPS + 1, "{age}");
            }
        }
        assert!(bin_of(u64::MAX) < BINS);
    }

    #[test]
    fn room_is_made_when_it_is_short_and_not_a_page_before() {
        let room = |free| Room { free, total: 1 << 18 };
        let low = 1 << 14;
        assert!(room(low - 1).is_short() && !room(low).is_short());
        assert_eq!(room(low - 1).missing(), (1 << 15) - (1 << 14) + 1);
        // Of a small one there is room for what is under way, and no more.
        let small = |free| Room { free, total: 6000 };
        assert!(small(511).is_short() && !small(512).is_short() && small(511).missing() == 257);
        // What is smaller than that is kept half empty at most.
        for total in [0, 1, 100, 2048] {
            let full = Room { free: 0, total };
            assert!(full.missing() <= total / 2);
            let made = Room { free: full.missing().into(), total };
            assert!(!made.is_short() && made.missing() == 0 && !made.is_idle(), "{total}");
            assert!(Room { free: made.free + IDLE_PAGES, total }.is_idle());
            let over = Room { free: -7, total };
            assert!(over.is_short() && over.missing() == full.missing() + 7);
        }
    }

    proptest! {
        #[test]
        fn no_page_that_stays_is_much_older_than_one_that_goes(
            ages in prop::collection::vec(0u64..1 << 34, 1..300),
            wanted in 1u32..400,
        ) {
            let mut counted = Ages::default();
            ages.iter().for_each(|age| counted.add(*age));
            let oldest = counted.oldest(wanted);
            let going = ages.iter().filter(|age| **age >= oldest).count();
            prop_assert!(going >= ages.len().min(wanted as usize));
            // All that is over is of the last bin.
            let next = ages.iter().filter(|age| first_of(bin_of(**age)) > oldest).count();
            prop_assert!(next < wanted as usize);
            let both = counted.within(0, oldest) + counted.within(oldest, u64::MAX);
            prop_assert_eq!((both, counted.within(oldest, u64::MAX)), (ages.len() as u64, going as u64));
            counted.clear();
            prop_assert_eq!(counted.oldest(1), 0);
        }
    }
}
