//! Which victims of a batch go together: those of one region, under one acquisition of its lock (patch 1 of
//! the kernel's series of 2016, which batches removal from a mapping's index).

/// Moves all items with the first one's key to the front, in order, the others after them, in order;
/// returns how many those are.
pub fn take_same<T: Copy, K: PartialEq>(items: &mut [T], key: impl Fn(&T) -> K) -> usize {
    let Some(first) = items.first().map(&key) else { return 0 };
    let mut same = 0;
    for index in 0..items.len() {
        if key(&items[index]) == first {
            // What lies between keeps its order: it moves up by one.
            items[same..=index].rotate_right(1);
            same += 1;
        }
    }
    same
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Lock acquisitions for a list of (region, referenced), and how many pages are reclaimed.
    fn remove(list: &[(char, bool)]) -> (usize, usize) {
        let mut list = list.to_vec();
        let (mut rest, mut locks, mut removed) = (&mut list[..], 0, 0);
        while !rest.is_empty() {
            let same = take_same(rest, |(region, _)| *region);
            locks += 1;
            removed += rest[..same].iter().filter(|(_, referenced)| !referenced).count();
            rest = &mut rest[same..];
        }
        (locks, removed)
    }

    #[test]
    fn one_acquisition_per_region_and_batch() {
        let plain = |text: &str| text.chars().map(|region| (region, false)).collect::<Vec<_>>();
        assert_eq!(remove(&plain(&"X".repeat(4))), (1, 4), "B1");
        assert_eq!(remove(&plain("XYXYX")), (2, 5), "B2");
        assert_eq!(remove(&plain("XYZ")), (3, 3), "B3");
        assert_eq!(remove(&[('X', true), ('X', false)]), (1, 1), "B4");
        assert_eq!(remove(&[]), (0, 0), "B5");
    }

    #[test]
    fn the_first_ones_region_comes_first_and_order_is_kept() {
        let mut list = [('X', 1), ('Y', 2), ('X', 3), ('Y', 4), ('X', 5)];
        assert_eq!(take_same(&mut list, |item| item.0), 3);
        assert_eq!(list.map(|item| item.1), [1, 3, 5, 2, 4]);
    }

    proptest! {
        #[test]
        fn a_partition_loses_nothing(list in prop::collection::vec(0..4u8, 0..40)) {
            let mut tagged: Vec<(u8, usize)> = list.iter().copied().zip(0..).collect();
            let same = take_same(&mut tagged, |item| item.0);
            let (front, back) = tagged.split_at(same);
            let expect = |equal: bool| list.iter().copied().zip(0..)
                .filter(|item| (Some(&item.0) == list.first()) == equal).collect::<Vec<_>>();
            prop_assert_eq!(front.to_vec(), expect(true));
            prop_assert_eq!(back.to_vec(), expect(false));
        }
    }
}
