//! Free slots of all devices as one number, from which whoever wants slots subtracts in advance.
//!
//! Subtracting first keeps those who search from being more than there are slots. The number may be
//! below zero for a while: a device that is swapped off takes all its slots with it at once, and those
//! that were in use come back one by one.

/// How many slots of the swapped-on devices are free, and how many there are.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct FreeSlots {
    free: i64,
    total: i64,
}

impl FreeSlots {
    /// No devices.
    pub const fn new() -> Self {
        Self { free: 0, total: 0 }
    }

    /// Free slots that nobody has reserved; negative while a device is being swapped off.
    pub const fn free(&self) -> i64 {
        self.free
    }

    /// Usable slots.
    pub const fn total(&self) -> i64 {
        self.total
    }

    /// Is swap more than half full, so that it is worth giving up slots of pages that are in RAM?
    pub const fn is_more_than_half_full(&self) -> bool {
        2 * self.free < self.total
    }

    /// Adds a device's usable slots: all that its swap-off took away if that has failed, free or not.
    pub fn swap_on(&mut self, pages: u32) {
        self.free += i64::from(pages);
        self.total += i64::from(pages);
    }

    /// Takes a device's usable slots away, free or not; those in use are given back as they are freed.
    pub fn swap_off(&mut self, pages: u32) {
        self.free -= i64::from(pages);
        self.total -= i64::from(pages);
    }

    /// Takes up to `want` slots away in advance, before they are looked for: how many may be.
    pub fn reserve(&mut self, want: u32) -> u32 {
        let granted = self.free.clamp(0, i64::from(want)) as u32;
        self.free -= i64::from(granted);
        granted
    }

    /// Gives back what was reserved and not found, or what was freed.
    pub fn give_back(&mut self, count: u32) {
        self.free += i64::from(count);
    }

    /// Takes free slots out of service for ever: the device ends before them.
    pub fn lose_free(&mut self, count: u32) {
        self.free -= i64::from(count);
        self.total -= i64::from(count);
    }

    /// Takes slots in use out of service for ever: writing them failed.
    pub fn lose_used(&mut self, count: u32) {
        self.total -= i64::from(count);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn d21_of_64_wanted_and_10_free_10_are_granted() {
        let mut slots = FreeSlots::new();
        slots.swap_on(10);
        assert_eq!(slots.reserve(64), 10);
        assert_eq!((slots.free(), slots.total()), (0, 10));
        assert_eq!(slots.reserve(1), 0);
    }

    #[test]
    fn what_is_reserved_and_not_found_is_there_for_others() {
        let mut slots = FreeSlots::new();
        slots.swap_on(100);
        assert_eq!(slots.reserve(64), 64);
        slots.give_back(60);
        assert_eq!((slots.free(), slots.reserve(200)), (96, 96));
    }

    #[test]
    fn half_full_is_not_more_than_half_full() {
        let mut slots = FreeSlots::new();
        slots.swap_on(100);
        slots.reserve(50);
        assert!(!slots.is_more_than_half_full());
        slots.reserve(1);
        assert!(slots.is_more_than_half_full());
    }

    #[test]
    fn while_a_device_in_use_goes_nothing_is_granted_that_the_others_do_not_have() {
        let mut slots = FreeSlots::new();
        slots.swap_on(100);
        slots.swap_on(10);
        slots.reserve(90);
        slots.swap_off(100);
        assert_eq!((slots.free(), slots.reserve(5)), (-80, 0));
        slots.give_back(90);
        assert_eq!((slots.free(), slots.total()), (10, 10));
    }

    proptest! {
        #[test]
        fn counts_equal_those_of_a_device(
            operations in prop::collection::vec((0u32..5, 0u32..50), 1..100),
        ) {
            let mut slots = FreeSlots::new();
            slots.swap_on(500);
            let (mut free, mut used) = (500, 0);
            for (operation, count) in operations {
                let (of_free, of_used) = (count.min(free), count.min(used));
                match operation {
                    0 | 1 => {
                        prop_assert_eq!(slots.reserve(count), of_free);
                        (free, used) = (free - of_free, used + of_free);
                    }
                    2 => {
                        slots.give_back(of_used);
                        (free, used) = (free + of_used, used - of_used);
                    }
                    3 => {
                        slots.lose_free(of_free);
                        free -= of_free;
                    }
                    _ => {
                        slots.lose_used(of_used);
                        used -= of_used;
                    }
                }
                let expected = (i64::from(free), i64::from(free + used));
                prop_assert_eq!((slots.free(), slots.total()), expected);
            }
        }
    }
}
