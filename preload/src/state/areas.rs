//! What each part of the arena is used for: the protection the program gave it, whether it is locked,
//! whether something foreign is mapped there.
//!
//! The engine's arena knows which pages are allocated; this map knows what for. Ranges that are next to
//! each other and alike are one, as the kernel merges its mappings.
use std::collections::BTreeMap;
use userswap::internals::PageIndex;
use userswap::internals::PageRange;
use userswap::internals::RangeSet;

/// The use of a range of pages.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Area {
    /// Private anonymous memory of the program.
    Memory(Memory),
    /// Memory that mimalloc shares out.
    Heap {
        /// PROT_ bits in force: the program may have put guards into what it was given.
        protection: i32,
        /// Whether the program locked it in RAM.
        locked: bool,
    },
    /// The program mapped a file or shared memory over it.
    Foreign,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Memory {
    /// PROT_ bits in force.
    pub protection: i32,
    /// Whether it was ever accessible as far as we were told: it counts against the budget. A raw system
    /// call may have opened it all the same.
    pub opened: bool,
    /// Whether the program locked it in RAM.
    pub locked: bool,
    /// Whether the program gave it a protection key.
    pub keyed: bool,
}

impl Memory {
    /// Fresh memory with a protection.
    pub fn new(protection: i32) -> Self {
        let opened = protection != libc::PROT_NONE;
        Self { protection, opened, locked: false, keyed: false }
    }

    /// The same memory with another protection.
    pub fn protected(self, protection: i32) -> Self {
        Self { protection, opened: self.opened || protection != libc::PROT_NONE, ..self }
    }
}

impl Area {
    /// Memory that mimalloc can share out.
    pub const HEAP: Self =
        Self::Heap { protection: libc::PROT_READ | libc::PROT_WRITE, locked: false };

    /// Whether the program can read it: also what it may only write to, which processors do not know. Of what is foreign the
    /// kernel knows.
    pub fn is_readable(self) -> bool {
        match self {
            Area::Memory(Memory { protection, .. }) | Area::Heap { protection, .. } => {
                protection & (libc::PROT_READ | libc::PROT_WRITE) != 0
            }
            Area::Foreign => false,
        }
    }

    /// Whether the program locked it in RAM.
    pub fn is_locked(self) -> bool {
        matches!(self, Area::Memory(Memory { locked: true, .. }) | Area::Heap { locked: true, .. })
    }

    /// The same, locked in RAM. Of what is foreign the kernel knows.
    pub fn locked(self) -> Self {
        match self {
            Area::Memory(memory) => Area::Memory(Memory { locked: true, ..memory }),
            Area::Heap { protection, .. } => Area::Heap { protection, locked: true },
            Area::Foreign => Area::Foreign,
        }
    }

    /// The same, and not locked.
    pub fn unlocked(self) -> Self {
        match self {
            Area::Memory(memory) => Area::Memory(Memory { locked: false, ..memory }),
            Area::Heap { protection, .. } => Area::Heap { protection, locked: false },
            Area::Foreign => Area::Foreign,
        }
    }
}

/// Whether all of a range is in use, by what [`Areas::within`] says about it.
pub fn is_covered(range: PageRange, parts: &[(PageRange, Area)]) -> bool {
    parts.iter().map(|(part, _)| part.count).sum::<u32>() == range.count
}

/// The map, with a running total of what is accessible.
#[derive(Default)]
pub struct Areas {
    parts: BTreeMap<PageIndex, (u32, Area)>,
    opened_pages: u64,
    /// Free, but accessible all the same: at the limit on mappings the kernel refuses to close a part of one.
    pub left_open: RangeSet,
    /// What a core dump would look at: all that was accessible, but for large parts that are free again.
    pub dumped: RangeSet,
}

impl Areas {
    pub const fn new() -> Self {
        Self {
            parts: BTreeMap::new(),
            opened_pages: 0,
            left_open: RangeSet::new(),
            dumped: RangeSet::new(),
        }
    }

    /// Pages that the program can have filled.
    pub fn opened_pages(&self) -> u64 {
        self.opened_pages
    }

    /// Sets the use of a range, whatever it was before.
    pub fn set(&mut self, range: PageRange, area: Area) {
        self.clear(range);
        let mut merged = range;
        if let Some((&first, &(count, before))) = self.parts.range(..range.first).next_back()
            && first + count == range.first
            && before == area
        {
            self.take(first);
            merged = PageRange { first, count: count + merged.count };
        }
        if let Some(&(count, after)) = self.parts.get(&range.end())
            && after == area
        {
            self.take(range.end());
            merged.count += count;
        }
        self.put(merged, area);
    }

    /// Forgets the use of a range.
    pub fn clear(&mut self, range: PageRange) {
        let touched: Vec<PageIndex> = self.touching(range).map(|(first, ..)| first).collect();
        for first in touched {
            let (count, area) = self.take(first);
            if first < range.first {
                self.put(PageRange { first, count: range.first - first }, area);
            }
            if first + count > range.end() {
                self.put(
                    PageRange { first: range.end(), count: first + count - range.end() },
                    area,
                );
            }
        }
    }

    /// What `range` is used for, in order, cut to the range.
    pub fn within(&self, range: PageRange) -> Vec<(PageRange, Area)> {
        self.parts_within(range).collect()
    }

    /// Changes what each part of a range is.
    pub fn update(&mut self, range: PageRange, change: impl Fn(Area) -> Area) {
        for (part, area) in self.within(range) {
            self.set(part, change(area));
        }
    }

    /// The same one by one, with no memory taken for a list.
    pub fn parts_within(
        &self,
        range: PageRange,
    ) -> impl DoubleEndedIterator<Item = (PageRange, Area)> + '_ {
        self.touching(range).map(move |(first, count, area)| {
            let (low, high) = (first.max(range.first), (first + count).min(range.end()));
            (PageRange { first: low, count: high - low }, area)
        })
    }

    /// All parts for which `wanted` holds.
    pub fn select(&self, wanted: impl Fn(Area) -> bool) -> Vec<PageRange> {
        let parts = self.parts.iter().filter(|(_, (_, area))| wanted(*area));
        parts.map(|(&first, &(count, _))| PageRange { first, count }).collect()
    }

    fn touching(
        &self,
        range: PageRange,
    ) -> impl DoubleEndedIterator<Item = (PageIndex, u32, Area)> + '_ {
        let before = self.parts.range(..range.first).next_back();
        let start = before.filter(|(first, (count, _))| *first + count > range.first);
        let start = start.map_or(range.first, |(&first, _)| first);
        self.parts
            .range(start..range.end().max(start))
            .map(|(&first, &(count, area))| (first, count, area))
    }

    fn put(&mut self, range: PageRange, area: Area) {
        self.opened_pages += opened(range.count, area);
        self.parts.insert(range.first, (range.count, area));
    }

    fn take(&mut self, first: PageIndex) -> (u32, Area) {
        let (count, area) = self.parts.remove(&first).expect("the part was just found");
        self.opened_pages -= opened(count, area);
        (count, area)
    }
}

fn opened(count: u32, area: Area) -> u64 {
    match area {
        Area::Memory(Memory { opened: true, .. }) => u64::from(count),
        // The heap counts what it commits.
        Area::Memory(_) | Area::Heap { .. } | Area::Foreign => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn range(first: PageIndex, count: u32) -> PageRange {
        PageRange { first, count }
    }

    #[test]
    fn neighbours_that_are_alike_become_one() {
        let mut areas = Areas::new();
        let memory = Area::Memory(Memory::new(libc::PROT_READ));
        areas.set(range(0, 4), memory);
        areas.set(range(8, 4), memory);
        areas.set(range(4, 4), memory);
        assert_eq!(areas.within(range(2, 8)), vec![(range(2, 8), memory)]);
        assert_eq!(areas.opened_pages(), 12);
    }

    #[test]
    fn random_changes_match_an_array_of_pages() {
        const PAGES: usize = 64;
        let mut seed = 0x9e37_79b9_u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % below
        };
        let kinds = [
            Area::HEAP,
            Area::Foreign,
            Area::Memory(Memory::new(libc::PROT_NONE)),
            Area::Memory(Memory::new(libc::PROT_READ)),
        ];
        let mut areas = Areas::new();
        let mut model = [None; PAGES];
        for _ in 0..20_000 {
            let first = next(PAGES as u64) as usize;
            let count = 1 + next((PAGES - first) as u64) as usize;
            let kind = kinds.get(next(5) as usize).copied();
            let part = range(first as u32, count as u32);
            match kind {
                Some(area) => areas.set(part, area),
                None => areas.clear(part),
            }
            model[first..first + count].fill(kind);
            let mut seen = [None; PAGES];
            for (part, area) in areas.within(range(0, PAGES as u32)) {
                seen[part.first as usize..part.end() as usize].fill(Some(area));
            }
            assert_eq!(seen, model);
            let opened = model.iter().filter(|kind| **kind == Some(kinds[3])).count();
            assert_eq!(areas.opened_pages(), opened as u64);
        }
    }
}
