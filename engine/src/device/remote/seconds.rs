//! Where the second copies of groups go: to another master than the first ones, by who had which hash slots when the device
//! was opened.
//!
//! What is in the braces of a second key is what is in those of the first, and a number. The checksum of the longer text
//! depends on that of the shorter one and on the number alone: so a table by checksum has the number for every group that
//! there can be. It is made once, and stays as it is, in forked children, too: where slots go later, keys do not.
use super::keys::{HASH_SLOTS, slot_of, sum_on};
use std::sync::Arc;

/// Checksums that there are.
const SUMS: usize = 1 << u16::BITS;

/// The numbers of second keys, by the checksum of what the first have in braces; none where there are no second copies.
#[derive(Clone, Default)]
pub struct Seconds {
    numbers: Arc<[u32]>,
}

impl Seconds {
    /// Has second copies go to other masters than the first: to the first one that numbers lead to, so that masters get
    /// about as many as they have hash slots.
    ///
    /// # Panics
    /// `owner` knows fewer than two masters ([`masters`]).
    pub fn place(owner: impl Fn(usize) -> Option<u8>) -> Self {
        assert!(masters(&owner) > 1, "copies need two masters");
        let mut numbers = vec![0; SUMS];
        let mut rest: Vec<u16> = (0..=u16::MAX).collect();
        let mut number = 0;
        while !rest.is_empty() {
            let tail = format!(":{number}");
            rest.retain(|first| {
                // Nobody can write to a slot without an owner.
                let there = owner(slot_of(sum_on(*first, tail.as_bytes())));
                let is_another = there.is_some() && there != owner(slot_of(*first));
                if is_another {
                    numbers[usize::from(*first)] = number;
                }
                !is_another
            });
            number += 1;
        }
        Self { numbers: numbers.into() }
    }

    /// The number of a second key, by the checksum of the first.
    pub fn number(&self, first: u16) -> u32 {
        self.numbers[usize::from(first)]
    }
}

/// How many masters have hash slots: of 64 at most, which is what a cluster has room for here.
pub fn masters(owner: impl Fn(usize) -> Option<u8>) -> usize {
    let all = (0..HASH_SLOTS).filter_map(owner).fold(0_u64, |all, owner| all | 1 << owner);
    all.count_ones() as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::remote::keys::{Copy, Key};

    /// Holds that no copies of a group are together where masters have these ranges, each by its last slot.
    fn are_apart(ranges: &[(usize, u8)]) {
        let owner = |slot| ranges.iter().find(|(last, _)| slot <= *last).map(|range| range.1);
        let seconds = Seconds::place(owner);
        for group in (0..400_000).step_by(7) {
            let owner = |copy| owner(Key::new("us", group, 3, copy, &seconds).hash_slot());
            let (first, second) = (owner(Copy::First), owner(Copy::Second));
            assert!(second.is_some() && first != second, "{group}: {first:?}, {second:?}");
        }
    }

    #[test]
    fn the_copies_of_a_group_are_on_two_masters_however_slots_are_laid_out() {
        let end = HASH_SLOTS - 1;
        are_apart(&[(5460, 0), (10_922, 1), (end, 2)]);
        are_apart(&[(4499, 1), (5460, 0), (10_922, 1), (end, 2)]);
        are_apart(&[(8191, 0), (8291, 1), (8391, 2), (end, 0)]);
        // Some slots have no owner.
        are_apart(&[(4000, 0), (8000, 1), (12_000, 2)]);
    }

    #[test]
    fn second_copies_are_spread_as_slots_are() {
        let owner = |slot: usize| Some((slot * 4 / HASH_SLOTS) as u8);
        let seconds = Seconds::place(owner);
        let mut of_second = [0; 4];
        for group in (0..64_000).step_by(16) {
            let key = Key::new("us", group, 3, Copy::Second, &seconds);
            of_second[usize::from(owner(key.hash_slot()).unwrap())] += 1;
        }
        assert!(of_second.iter().all(|count| (800..1200).contains(count)), "{of_second:?}");
    }
}
