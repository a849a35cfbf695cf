//! Which pages of an arena are allocated, region by region, and which are free.
use crate::base::index::{PageIndex, PageRange};
use std::collections::BTreeMap;

/// Two trees, of which every page is in one at most.
pub struct Regions {
    /// First page to count, never adjacent to one another.
    free: BTreeMap<PageIndex, u32>,
    /// First page to count; neighbours stay apart, so that a window ends with its region.
    used: BTreeMap<PageIndex, u32>,
}

impl Regions {
    /// Ranges that are free, and some that are not, none next to another of its kind.
    pub fn new(free: Vec<PageRange>, used: Vec<PageRange>) -> Self {
        let tree = |parts: Vec<PageRange>| {
            parts.into_iter().map(|part| (part.first, part.count)).collect()
        };
        Self { free: tree(free), used: tree(used) }
    }

    /// All regions, in order.
    pub fn all(&self) -> impl Iterator<Item = PageRange> + '_ {
        self.used.iter().map(|(&first, &count)| PageRange { first, count })
    }

    /// The region around `page`, if it is allocated.
    pub fn around(&self, page: PageIndex) -> Option<PageRange> {
        let (&first, &count) = self.used.range(..=page).next_back()?;
        let range = PageRange { first, count };
        range.contains(page).then_some(range)
    }

    /// The lowest page from `floor` on where `count` pages are free at a multiple of `align`, counted from `base`
    /// pages before the arena.
    pub fn lowest_from(
        &self,
        floor: PageIndex,
        count: u32,
        base: u64,
        align: u32,
    ) -> Option<PageIndex> {
        let across = self.free.range(..floor).next_back();
        let holes = across.into_iter().chain(self.free.range(floor..));
        holes.into_iter().find_map(|(&first, &free)| {
            let lowest = base + u64::from(first.max(floor));
            let aligned = lowest.next_multiple_of(u64::from(align)) - base;
            (aligned + u64::from(count) <= u64::from(first + free)).then_some(aligned as u32)
        })
    }

    /// The same, highest page first.
    pub fn highest(&self, count: u32, base: u64, align: u32) -> Option<PageIndex> {
        self.free.iter().rev().find_map(|(&first, &free)| {
            let highest = base + u64::from(first) + u64::from(free.checked_sub(count)?);
            let aligned = highest - highest % u64::from(align);
            (aligned >= base + u64::from(first)).then(|| (aligned - base) as u32)
        })
    }

    /// Whether all of `range` is free.
    pub fn is_free(&self, range: PageRange) -> bool {
        let free = self.free.range(..=range.first).next_back();
        free.is_some_and(|(&first, &count)| first + count >= range.end())
    }

    /// Allocates what is free, to the region that ends there.
    pub fn extend(&mut self, range: PageRange) {
        self.take_free(range);
        let before = self.used.range(..range.first).next_back();
        let before = before.filter(|(first, count)| *first + *count == range.first);
        let first = before.map_or(range.first, |(&first, _)| first);
        self.used.insert(first, range.end() - first);
    }

    /// Makes a range one region that is neither free nor used.
    pub fn put_used(&mut self, range: PageRange) {
        self.used.insert(range.first, range.count);
    }

    /// Allocates what is free.
    pub fn take(&mut self, range: PageRange) -> PageRange {
        self.take_free(range);
        self.put_used(range);
        range
    }

    /// Cuts `range` out of the one free range that contains it; it is neither free nor used then.
    pub fn take_free(&mut self, range: PageRange) {
        assert!(cut(&mut self.free, range), "the range was found free");
    }

    /// Cuts `range` out of the one region that contains it; it is neither free nor used then.
    pub fn take_used(&mut self, range: PageRange) {
        assert!(cut(&mut self.used, range), "the range was found used");
    }

    /// Frees a range that is neither.
    pub fn put_free(&mut self, range: PageRange) {
        let (mut first, mut end) = (range.first, range.end());
        if let Some((&before, &count)) = self.free.range(..first).next_back()
            && before + count == first
        {
            self.free.remove(&before);
            first = before;
        }
        if let Some(count) = self.free.remove(&end) {
            end += count;
        }
        self.free.insert(first, end - first);
    }

    /// The allocated parts of `range`, in order.
    pub fn used_within(&self, range: PageRange) -> Vec<PageRange> {
        let start =
            self.used.range(..=range.first).next_back().map_or(range.first, |(&first, _)| first);
        self.used
            .range(start..range.end())
            .filter_map(|(&first, &count)| {
                let (low, high) = (first.max(range.first), (first + count).min(range.end()));
                (low < high).then(|| PageRange { first: low, count: high - low })
            })
            .collect()
    }
}

/// False where no part contains all of `range`.
fn cut(tree: &mut BTreeMap<PageIndex, u32>, range: PageRange) -> bool {
    let around = tree.range(..=range.first).next_back().map(|(&first, &count)| (first, count));
    let Some((first, count)) = around.filter(|(first, count)| first + count >= range.end()) else {
        return false;
    };
    tree.remove(&first);
    insert_part(tree, first, range.first);
    insert_part(tree, range.end(), first + count);
    true
}

fn insert_part(tree: &mut BTreeMap<PageIndex, u32>, first: PageIndex, end: PageIndex) {
    if first < end {
        tree.insert(first, end - first);
    }
}
