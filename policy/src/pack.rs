//! Compressed pages on a disk: several in one slot, and none in two.
//!
//! A page that is needed takes the request that it would take by itself, of one slot; what is saved is what is written,
//! and what a run of pages has to read. A page that would be alone in its slot is not worth unpacking: it is better
//! written as it was.
use crate::cells::PAGE_BYTES;
use alloc::vec::Vec;

/// Pages begin at multiples of so many bytes.
pub const UNIT: usize = 16;

/// Slots that take a page that fits, beside a new one. With more the pages of a slot are less alike in age, and heaps and
/// JSON are packed hardly tighter (1 to 3 %).
const OPEN_SLOTS: usize = 4;

/// Where a page is put.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Place {
    /// The number of its slot, among those that are written together.
    pub slot: u32,
    /// The first of its bytes there.
    pub start: usize,
}

/// A slot that may have room for more.
struct Open {
    slot: usize,
    end: usize,
}

/// Places for pages of so many bytes, in their order: the fullest slot that has room for it takes a page. None for a page
/// that has no size, or none to share its slot with. The slots are numbered without gaps.
pub fn places(sizes: &[Option<usize>]) -> Vec<Option<Place>> {
    let mut open: Vec<Open> = Vec::with_capacity(OPEN_SLOTS + 1);
    let mut pages_on = Vec::new();
    let mut put = |bytes: usize| {
        let room = |open: &Open| PAGE_BYTES - open.end;
        let fits = open.iter_mut().filter(|open| room(open) >= bytes);
        let (slot, start) = match fits.min_by_key(|open| room(open)) {
            Some(open) => (open.slot, open.end),
            None => {
                pages_on.push(0);
                open.push(Open { slot: pages_on.len() - 1, end: 0 });
                (pages_on.len() - 1, 0)
            }
        };
        pages_on[slot] += 1;
        let index = open.iter().position(|open| open.slot == slot).expect("it has taken the page");
        open[index].end = (start + bytes).next_multiple_of(UNIT).min(PAGE_BYTES);
        if open.len() > OPEN_SLOTS {
            let fullest = (0..open.len()).min_by_key(|index| room(&open[*index]));
            open.swap_remove(fullest.expect("there are some"));
        }
        (slot, start)
    };
    let put: Vec<_> = sizes.iter().map(|bytes| bytes.map(&mut put)).collect();
    let mut shared = 0;
    let numbers: Vec<Option<u32>> =
        pages_on.into_iter().map(|pages| (pages > 1).then(|| (shared, shared += 1).0)).collect();
    let place = |(slot, start): (usize, usize)| Some(Place { slot: numbers[slot]?, start });
    put.into_iter().map(|put| put.and_then(place)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cells::COMPRESSED_BYTES_MAX;
    use proptest::prelude::*;

    fn slots(sizes: &[usize]) -> Vec<Option<u32>> {
        let sizes: Vec<_> = sizes.iter().map(|bytes| Some(*bytes)).collect();
        places(&sizes).into_iter().map(|place| Some(place?.slot)).collect()
    }

    #[test]
    fn pages_share_a_slot_as_long_as_they_fit() {
        assert_eq!(slots(&[]), []);
        assert_eq!(slots(&[1024; 9]), [[Some(0); 4].as_slice(), &[Some(1); 4], &[None]].concat());
        assert_eq!(slots(&[2048, 2048]), [Some(0); 2]);
        // The unit counts: the second begins at 16.
        assert_eq!(slots(&[1, 4080, 1, 4081]), [Some(0), Some(0), None, None]);
    }

    #[test]
    fn a_page_finds_the_slot_that_it_fills_best() {
        // 1000 bytes are left in the first, 1500 in the second.
        assert_eq!(slots(&[3088, 2592, 1400, 900]), [Some(0), Some(1), Some(1), Some(0)]);
        assert_eq!(slots(&[3088, 2592, 990]), [Some(0), None, Some(0)]);
    }

    #[test]
    fn what_would_be_alone_has_no_place_and_leaves_no_gap() {
        assert_eq!(slots(&[3000, 2100, 2100, 1900]), [None, Some(0), None, Some(0)]);
        assert_eq!(places(&[None, Some(8), None, Some(8)])[3], Some(Place { slot: 0, start: 16 }));
    }

    #[test]
    fn a_slot_is_closed_once_others_have_more_room() {
        // The first is the fullest of five then: 600 bytes would have fitted.
        assert_eq!(slots(&[3400, 3000, 3000, 3000, 3000, 600]).iter().flatten().count(), 2);
        assert_eq!(slots(&[3400, 3000, 3000, 3000, 3000, 600])[0], None);
    }

    proptest! {
        #[test]
        fn no_two_share_a_byte_and_none_is_on_two_slots(
            sizes in prop::collection::vec(prop::option::of(1usize..=COMPRESSED_BYTES_MAX), 0..300),
        ) {
            let placed = places(&sizes);
            prop_assert_eq!(placed.len(), sizes.len());
            let mut taken = alloc::collections::BTreeMap::<u32, Vec<(usize, usize)>>::new();
            for (place, bytes) in placed.iter().zip(&sizes) {
                let Some(place) = place else { continue };
                let bytes = bytes.expect("only what has a size has a place");
                prop_assert!(place.start % UNIT == 0 && place.start + bytes <= PAGE_BYTES);
                taken.entry(place.slot).or_default().push((place.start, place.start + bytes));
            }
            // All numbers up to the last are used, by two pages at least.
            prop_assert!(taken.keys().copied().eq(0..taken.len() as u32));
            for on_slot in taken.values_mut() {
                on_slot.sort_unstable();
                prop_assert!(on_slot.len() > 1);
                prop_assert!(on_slot.windows(2).all(|pair| pair[0].1 <= pair[1].0));
            }
        }
    }
}
