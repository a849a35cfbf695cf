//! Where mappings come from, for records: what the program calls them, or the calls that made them.
//!
//! Only a process that records notes any. A range keeps its origin until it is freed, whatever becomes of its pages.
use crate::base::index::{PageIndex, PageRange};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Where a mapping comes from.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Origin {
    /// malloc shares it out, to many.
    Heap,
    /// The program's own name for it (PR_SET_VMA_ANON_NAME).
    Named(String),
    /// Addresses in the functions that called each other, the one that asked for it first.
    Calls(Vec<usize>),
}

/// Origins of ranges, which do not overlap.
#[derive(Default)]
pub(super) struct Origins {
    /// First page to count and origin.
    parts: BTreeMap<PageIndex, (u32, Arc<Origin>)>,
}

impl Origins {
    pub fn set(&mut self, range: PageRange, origin: Arc<Origin>) {
        self.clear(range);
        self.parts.insert(range.first, (range.count, origin));
    }

    /// Forgets a range; what lies across its ends is cut there.
    pub fn clear(&mut self, range: PageRange) {
        for (part, origin) in self.around(range) {
            self.parts.remove(&part.first);
            let before = part.first..range.first;
            let after = range.end()..part.end();
            for kept in [before, after].into_iter().filter(|kept| !kept.is_empty()) {
                self.parts.insert(kept.start, (kept.end - kept.start, origin.clone()));
            }
        }
    }

    /// All of a range, in order, cut where the origin changes.
    pub fn split(&self, range: PageRange) -> Vec<(PageRange, Option<Arc<Origin>>)> {
        let (mut parts, mut next) = (Vec::new(), range.first);
        let until = |next: PageIndex, end: PageIndex| PageRange { first: next, count: end - next };
        for (part, origin) in self.around(range) {
            let (first, end) = (part.first.max(range.first), part.end().min(range.end()));
            if next < first {
                parts.push((until(next, first), None));
            }
            parts.push((until(first, end), Some(origin)));
            next = end;
        }
        if next < range.end() {
            parts.push((until(next, range.end()), None));
        }
        parts
    }

    /// The parts that a range meets, whole.
    fn around(&self, range: PageRange) -> Vec<(PageRange, Arc<Origin>)> {
        if self.parts.is_empty() {
            return Vec::new();
        }
        let before = self.parts.range(..=range.first).next_back().map(|(&first, _)| first);
        let parts = self.parts.range(before.unwrap_or(range.first)..range.end());
        let parts = parts
            .map(|(&first, (count, origin))| (PageRange { first, count: *count }, origin.clone()));
        parts.filter(|(part, _)| part.end() > range.first).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_parts_agree_with_a_map_of_pages(steps in proptest::collection::vec((0usize..4, 0u32..300, 1u32..60), 1..200)) {
            let mut origins = Origins::default();
            let mut model = vec![None; 400];
            for (kind, first, count) in steps {
                let (range, pages) = (PageRange { first, count }, first as usize..(first + count) as usize);
                if kind == 0 {
                    origins.clear(range);
                    model[pages].fill(None);
                } else {
                    origins.set(range, Arc::new(Origin::Calls(vec![kind])));
                    model[pages].fill(Some(kind));
                }
                let split = origins.split(PageRange { first: 0, count: 400 });
                let told = split.iter().flat_map(|(part, origin)| {
                    let number = match origin.as_deref() {
                        Some(Origin::Calls(calls)) => Some(calls[0]),
                        _ => None,
                    };
                    std::iter::repeat_n(number, part.count as usize)
                });
                prop_assert_eq!(told.collect::<Vec<_>>(), model.clone());
                let within = origins.split(range);
                prop_assert_eq!(within.iter().map(|(part, _)| part.count).sum::<u32>(), count);
                prop_assert_eq!(within[0].0.first, first);
            }
        }
    }
}
