//! A set of pages, kept as ranges in order.
use crate::base::index::{PageIndex, PageRange};
use std::collections::BTreeMap;

/// Pages, as the fewest ranges that have them all.
#[derive(Debug, Default)]
pub struct RangeSet {
    /// First page to count, never adjacent to one another.
    ranges: BTreeMap<PageIndex, u32>,
}

impl RangeSet {
    /// No pages; costs nothing.
    pub const fn new() -> Self {
        Self { ranges: BTreeMap::new() }
    }

    /// Whether there are no pages in it.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// Whether a page is in it. Allocates nothing.
    pub fn contains(&self, page: PageIndex) -> bool {
        let before = self.ranges.range(..=page).next_back();
        before.is_some_and(|(&first, &count)| page < first + count)
    }

    /// Whether all pages of a range are in it. Allocates nothing.
    pub fn covers(&self, range: PageRange) -> bool {
        let before = self.ranges.range(..=range.first).next_back();
        before.is_some_and(|(&first, &count)| range.end() <= first + count)
    }

    /// Adds pages; some or all of them may be in it already.
    pub fn insert(&mut self, range: PageRange) {
        let (mut first, mut end) = (range.first, range.end());
        if range.count == 0 {
            return;
        }
        // Whatever overlaps or touches the range becomes one with it.
        let before = self.ranges.range(..first).next_back().map(|(&first, &count)| (first, count));
        if let Some((before, count)) = before.filter(|(before, count)| before + count >= first) {
            first = before;
            end = end.max(before + count);
        }
        while let Some((&next, &count)) = self.ranges.range(first..=end).next() {
            self.ranges.remove(&next);
            end = end.max(next + count);
        }
        self.ranges.insert(first, end - first);
    }

    /// Takes pages out; those that are not in it are no error.
    pub fn remove(&mut self, range: PageRange) {
        for part in self.within(range) {
            let (&first, &count) =
                self.ranges.range(..=part.first).next_back().expect("the part was just found");
            self.ranges.remove(&first);
            for rest in [first..part.first, part.end()..first + count] {
                if !rest.is_empty() {
                    self.ranges.insert(rest.start, rest.end - rest.start);
                }
            }
        }
    }

    /// The pages of `range` that are in it, in order.
    pub fn within(&self, range: PageRange) -> Vec<PageRange> {
        let start = self.ranges.range(..=range.first).next_back();
        let start = start.map_or(range.first, |(&first, _)| first);
        self.ranges
            .range(start..range.end().max(start))
            .filter_map(|(&first, &count)| {
                let (low, high) = (first.max(range.first), (first + count).min(range.end()));
                (low < high).then(|| PageRange { first: low, count: high - low })
            })
            .collect()
    }

    /// The pages of `range` that are not in it, in order.
    pub fn outside(&self, range: PageRange) -> Vec<PageRange> {
        let mut next = range.first;
        let mut gaps = Vec::new();
        let end = PageRange { first: range.end(), count: 0 };
        for part in self.within(range).into_iter().chain([end]) {
            if next < part.first {
                gaps.push(PageRange { first: next, count: part.first - next });
            }
            next = part.end();
        }
        gaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: usize = 80;

    fn pages_of(ranges: &[PageRange]) -> Vec<bool> {
        let mut pages = vec![false; PAGES];
        for range in ranges {
            pages[range.first as usize..range.end() as usize].fill(true);
        }
        pages
    }

    proptest! {
        #[test]
        fn a_set_agrees_with_an_array_of_pages(
            steps in proptest::collection::vec((any::<bool>(), 0u32..60, 0u32..20), 1..60),
        ) {
            let whole = PageRange { first: 0, count: PAGES as u32 };
            let (mut set, mut model) = (RangeSet::new(), vec![false; PAGES]);
            for (adds, first, count) in steps {
                let range = PageRange { first, count };
                model[first as usize..range.end() as usize].fill(adds);
                if adds { set.insert(range) } else { set.remove(range) }
                let inside = set.within(whole);
                prop_assert_eq!(&pages_of(&inside), &model);
                prop_assert!((0..).zip(&model).all(|(page, is_in)| set.contains(page) == *is_in));
                prop_assert!(inside.windows(2).all(|pair| pair[0].end() < pair[1].first));
                let complement: Vec<bool> = model.iter().map(|page| !page).collect();
                prop_assert_eq!(pages_of(&set.outside(whole)), complement);
                let all = range.count > 0 && model[first as usize..range.end() as usize].iter().all(|page| *page);
                prop_assert_eq!(range.count > 0 && set.covers(range), all);
                let part = set.within(range).iter().map(|part| part.count).sum::<u32>();
                prop_assert_eq!(part, if adds { count } else { 0 });
                prop_assert_eq!(set.is_empty(), inside.is_empty());
            }
        }
    }
}
