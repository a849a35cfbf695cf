//! What is on a device, slot by slot, and which slots to read with one request.
//!
//! Swapoff is fastest in the device's own order and in large requests, whatever the order
//! of the pages. A span of slots ends where nothing is needed for a while: reading over a short gap costs
//! less than another request. Large devices are looked at in parts, so that the table stays small.

use alloc::vec;
use alloc::vec::Vec;
use core::ops::Range;

/// Slots of one part: 16 GiB of a device, 16 MiB of table where it is full.
pub const PART_SLOTS: u32 = 1 << 22;
/// Slots that are read although no page needs them, to save a request: 64 KiB take a disk of 2.5 GB/s 26 µs,
/// about what a request costs by itself.
pub const GAP_MAX: u32 = 16;

/// What the table says where there is no page.
const EMPTY: u32 = 0;

/// The pages on one part of a device.
#[derive(Debug)]
pub struct SlotMap {
    slots: Range<u32>,
    /// One more than the page on each slot; zero pages of memory as long as nothing is put there.
    pages: Vec<u32>,
    count: u32,
}

impl SlotMap {
    /// A map of `slots`, with nothing on them.
    pub fn new(slots: Range<u32>) -> Self {
        let length = slots.end.saturating_sub(slots.start) as usize;
        Self { slots, pages: vec![EMPTY; length], count: 0 }
    }

    /// The slots it is about.
    pub fn slots(&self) -> Range<u32> {
        self.slots.clone()
    }

    /// Number of slots with a page.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Notes that `page` is on `slot`, if the map is about that slot; of two the last one counts.
    ///
    /// # Panics
    /// When `page` is the largest number there is.
    pub fn put(&mut self, slot: u32, page: u32) {
        if !self.slots.contains(&slot) {
            return;
        }
        let page = page.checked_add(1).expect("a page number is below the largest");
        let entry = &mut self.pages[(slot - self.slots.start) as usize];
        self.count += u32::from(*entry == EMPTY);
        *entry = page;
    }

    /// The page on `slot`.
    pub fn page_at(&self, slot: u32) -> Option<u32> {
        let index = slot.checked_sub(self.slots.start)?;
        self.pages.get(index as usize)?.checked_sub(1)
    }

    /// The next slots from `from` on to read together, at most `most`: they begin and end with a page, and
    /// nowhere within are more than [`GAP_MAX`] slots without one.
    pub fn span_from(&self, from: u32, most: u32) -> Option<Range<u32>> {
        let is_used = |slot: &u32| self.page_at(*slot).is_some();
        let first = (from.max(self.slots.start)..self.slots.end).find(is_used)?;
        let bound = first.saturating_add(most.max(1)).min(self.slots.end);
        let mut last = first;
        for slot in first + 1..bound {
            if is_used(&slot) {
                last = slot;
            } else if slot - last > GAP_MAX {
                break;
            }
        }
        Some(first..last + 1)
    }
}

/// The parts that slots up to `max` are looked at in; slot 0 is the header's.
pub fn parts(max: u32) -> impl Iterator<Item = Range<u32>> {
    (0..max.div_ceil(PART_SLOTS)).map(move |part| {
        let start = part * PART_SLOTS;
        start.max(1)..max.min(start.saturating_add(PART_SLOTS))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    fn map(slots: &[u32]) -> SlotMap {
        let mut map = SlotMap::new(10..1000);
        slots.iter().for_each(|slot| map.put(*slot, slot * 2));
        map
    }

    #[test]
    fn neighbours_are_read_together_up_to_the_most() {
        let map = map(&[10, 11, 12, 13, 14]);
        assert_eq!(map.span_from(0, 100), Some(10..15));
        assert_eq!(map.span_from(12, 2), Some(12..14));
        assert_eq!(map.span_from(15, 2), None);
    }

    #[test]
    fn a_short_gap_is_read_and_a_long_one_ends_the_span() {
        let gap = GAP_MAX;
        assert_eq!(map(&[20, 21 + gap]).span_from(10, 100), Some(20..22 + gap));
        assert_eq!(map(&[20, 22 + gap]).span_from(10, 100), Some(20..21));
        assert_eq!(map(&[20, 21 + gap]).span_from(10, gap), Some(20..21), "no gap at the end");
    }

    #[test]
    fn parts_cover_all_slots_but_the_header() {
        assert!(parts(1).eq(core::iter::once(1..1)));
        assert!(parts(300).eq(core::iter::once(1..300)));
        let large: Vec<_> = parts(PART_SLOTS + 5).collect();
        assert_eq!(large, [1..PART_SLOTS, PART_SLOTS..PART_SLOTS + 5]);
    }

    proptest! {
        #[test]
        fn spans_visit_every_page_once_in_the_order_of_the_device(
            puts in prop::collection::vec((1u32..600, 0u32..5000), 0..200),
            start in 1u32..300,
            most in 1u32..64,
        ) {
            let mut map = SlotMap::new(start..start + 300);
            let mut model = BTreeMap::new();
            for (slot, page) in puts {
                map.put(slot, page);
                if (start..start + 300).contains(&slot) {
                    model.insert(slot, page);
                }
            }
            prop_assert_eq!(map.count() as usize, model.len());
            let (mut seen, mut from) = (Vec::new(), 0);
            while let Some(span) = map.span_from(from, most) {
                prop_assert!(span.end - span.start <= most && span.start >= from);
                prop_assert!(map.page_at(span.start).is_some() && map.page_at(span.end - 1).is_some());
                seen.extend(span.clone().filter_map(|slot| map.page_at(slot).map(|page| (slot, page))));
                from = span.end;
            }
            prop_assert_eq!(seen, model.into_iter().collect::<Vec<_>>());
        }
    }
}
