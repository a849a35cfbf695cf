//! Which slot numbers belong to which device.
//!
//! One number of 32 bits names a slot on whatever device. The numbers are dealt out by banks: a device has as many
//! neighbouring ones as its slots need, so that there can be many small devices or some large ones. A number's bank
//! leads to the device, and its distance from the first number of the device's first bank is the slot's number there.

/// Slots of a bank: 256 GiB.
pub const BANK_SLOTS: u32 = 1 << 26;
/// Banks that 32 bits can number.
pub const BANKS: u32 = 1 << (u32::BITS - BANK_SLOTS.ilog2());

/// The bank of a slot's number.
pub fn bank_of(slot: u32) -> u32 {
    slot / BANK_SLOTS
}

/// The banks that a device of so many slots has, the first one being `first`.
pub fn banks_from(first: u32, slots: u32) -> core::ops::Range<u32> {
    first..first + slots.div_ceil(BANK_SLOTS)
}

/// Which banks are taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Banks(u64);

impl Banks {
    /// Takes the first banks that a device of `slots` slots can have, and returns the first of them; None if nowhere
    /// so many free ones follow each other.
    pub fn take(&mut self, slots: u32) -> Option<u32> {
        let is_free = |first: &u32| self.0 & mask(*first, slots) == 0;
        let last = BANKS - slots.div_ceil(BANK_SLOTS);
        let first = (0..=last).find(is_free)?;
        self.keep(first, slots);
        Some(first)
    }

    /// Notes a device that has its banks already.
    pub fn keep(&mut self, first: u32, slots: u32) {
        let mask = mask(first, slots);
        assert_eq!(self.0 & mask, 0, "a bank has one device");
        self.0 |= mask;
    }
}

fn mask(first: u32, slots: u32) -> u64 {
    banks_from(first, slots).fold(0, |mask, bank| mask | 1 << bank)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn there_are_sixty_four_small_devices_or_half_as_many_of_twice_the_size() {
        for (slots, devices) in [(10, 64), (BANK_SLOTS, 64), (BANK_SLOTS + 1, 32), (u32::MAX, 1)] {
            let mut banks = Banks::default();
            let taken = std::iter::from_fn(|| banks.take(slots)).count();
            assert_eq!(taken, devices, "of {slots} slots");
        }
    }

    #[test]
    fn a_large_device_needs_neighbours() {
        let mut banks = Banks::default();
        (0..BANKS).step_by(2).for_each(|bank| banks.keep(bank, 1));
        assert_eq!(banks.take(BANK_SLOTS + 1), None);
        assert_eq!(banks.take(BANK_SLOTS), Some(1));
    }

    proptest! {
        /// Devices that come and go, against a list of whose each bank is.
        #[test]
        fn no_bank_has_two_devices_and_none_is_forgotten(
            sizes in prop::collection::vec((1..4 * BANK_SLOTS, any::<bool>()), 1..100),
        ) {
            let mut owners = [None; BANKS as usize];
            let mut devices: Vec<(u32, u32)> = Vec::new();
            for (number, (slots, goes)) in sizes.into_iter().enumerate() {
                let mut banks = Banks::default();
                devices.iter().for_each(|(first, slots)| banks.keep(*first, *slots));
                let wanted = slots.div_ceil(BANK_SLOTS) as usize;
                let expected = owners.windows(wanted).position(|few| few.iter().all(Option::is_none));
                let first = banks.take(slots);
                prop_assert_eq!(first.map(|first| first as usize), expected);
                if let Some(first) = first {
                    devices.push((first, slots));
                    banks_from(first, slots).for_each(|bank| owners[bank as usize] = Some(number));
                }
                if goes && !devices.is_empty() {
                    let (first, slots) = devices.remove(number % devices.len());
                    banks_from(first, slots).for_each(|bank| owners[bank as usize] = None);
                }
            }
        }
    }
}
