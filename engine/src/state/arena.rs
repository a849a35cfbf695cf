//! The arena: one large reservation of address space from which all regions are sub-allocated.
//!
//! One mapping, registered once, keeps the kernel's work per region at nothing; hundreds of thousands of
//! regions are only entries in two trees. Everything is counted in pages from the arena's start.
use crate::base::index::{PageIndex, PageRange};
use crate::state::address_space::{ARENA_PAGES_MAX, AddressSpace};
use crate::state::hints::Hints;
use crate::state::origins::{Origin, Origins};
use crate::state::range_set::RangeSet;
use crate::state::regions::Regions;
use crate::sys::PAGE_BYTES;
use crate::sys::lock::Lock;
use crate::sys::mapping::{self, Access};
use std::io;
use std::sync::Arc;
use userswap_policy::readahead::Hint;

/// Address space, and which pages of it are allocated.
pub struct Arena {
    space: AddressSpace,
    /// What the program has said about its pages; forgotten when they are freed.
    pub hints: Hints,
    tables: Lock<Tables>,
    /// See [`Arena::set_foreign`]. A lock of its own: a fork's child registers while it holds the other.
    foreign: Lock<RangeSet>,
}

struct Tables {
    regions: Regions,
    origins: Origins,
    /// What a user of the library has protected from being read.
    closed: RangeSet,
}

/// A part of a region, and where it comes from, if that is known.
pub type Mapped = (PageRange, Option<Arc<Origin>>);

impl Arena {
    /// Reserves an arena, halving `pages` until the kernel agrees.
    ///
    /// # Errors
    /// What mmap says when not even 1 GiB of address space can be had.
    pub fn reserve(pages: u32, access: Access) -> io::Result<Self> {
        Self::in_space(AddressSpace::anywhere(pages, access)?)
    }

    /// Reserves an arena at the addresses that programs ask for, as far as that can be; else anywhere.
    ///
    /// # Errors
    /// As [`Self::reserve`].
    pub fn reserve_low() -> io::Result<Self> {
        match AddressSpace::low() {
            Some(space) => Self::in_space(space),
            None => Self::reserve(ARENA_PAGES_MAX, Access::Reserved),
        }
    }

    fn in_space(space: AddressSpace) -> io::Result<Self> {
        let pages = (space.bytes / PAGE_BYTES) as u32;
        let mut foreign = RangeSet::new();
        let whole = PageRange { first: 0, count: pages };
        let gaps = space.gaps.within(whole);
        gaps.iter().for_each(|gap| foreign.insert(*gap));
        let regions = Regions::new(space.gaps.outside(whole), gaps);
        let (origins, closed) = (Origins::default(), RangeSet::new());
        let tables = Lock::new(Tables { regions, origins, closed });
        Ok(Self { space, hints: Hints::new(pages)?, tables, foreign: Lock::new(foreign) })
    }

    /// Number of pages, at most [`ARENA_PAGES_MAX`].
    pub fn pages(&self) -> u32 {
        (self.space.bytes / PAGE_BYTES) as u32
    }

    /// The address of its first page.
    pub fn address(&self) -> usize {
        self.space.address
    }

    /// Below this address it has only gaps.
    pub fn start(&self) -> usize {
        self.space.start
    }

    /// Length in bytes.
    pub fn bytes(&self) -> usize {
        self.space.bytes
    }

    /// Takes the lock of the tables across a fork, to be given back by [`Self::release`] on both sides.
    pub fn hold(&self) {
        self.tables.hold();
    }

    /// Gives back what [`Self::hold`] took.
    pub fn release(&self) {
        self.tables.release();
    }

    /// The same for the table of what is the kernel's own.
    pub fn hold_foreign(&self) {
        self.foreign.hold();
    }

    /// Gives back what [`Self::hold_foreign`] took.
    pub fn release_foreign(&self) {
        self.foreign.release();
    }

    /// Whether an address lies in the arena.
    pub fn contains(&self, address: usize) -> bool {
        address.wrapping_sub(self.address()) < self.bytes()
    }

    /// The page an address lies in.
    ///
    /// # Panics
    /// The address is not in the arena.
    pub fn page_of(&self, address: usize) -> PageIndex {
        assert!(self.contains(address), "the address lies in the arena");
        ((address - self.address()) / PAGE_BYTES) as PageIndex
    }

    /// The address of a page.
    pub fn address_of(&self, page: PageIndex) -> usize {
        self.address() + page as usize * PAGE_BYTES
    }

    /// Gives advice to the kernel for all plain memory of the arena.
    ///
    /// # Errors
    /// What madvise says; but for ENOMEM, a hole by a raw munmap, around which it goes on.
    pub fn advise(&self, advice: i32) -> io::Result<()> {
        self.plain().into_iter().try_for_each(|part| {
            let (address, bytes) = (self.address_of(part.first), part.count as usize * PAGE_BYTES);
            let outcome = mapping::advise(address, bytes, advice);
            outcome.or_else(|error| match error.raw_os_error() {
                Some(libc::ENOMEM) => Ok(()),
                _ => Err(error),
            })
        })
    }

    /// The parts of the whole arena that are plain memory: all of it, but for what the program has mapped over.
    pub fn plain(&self) -> Vec<PageRange> {
        self.plain_within(PageRange { first: 0, count: self.pages() })
    }

    /// Allocates `count` pages at a multiple of `align` pages (from the arena's first address counted in
    /// absolute addresses): lowest address first from the floor on, else as near below it as can be. None when
    /// the arena is used up.
    pub fn allocate(&self, count: u32, align: u32) -> Option<PageRange> {
        let base = self.base();
        let mut tables = self.tables.lock();
        let fitting = tables.regions.lowest_from(self.space.floor, count, base, align);
        let first = fitting.or_else(|| tables.regions.highest(count, base, align))?;
        Some(tables.regions.take(PageRange { first, count }))
    }

    /// The same below 2 GiB, for MAP_32BIT; None when that is used up, or not in the arena.
    pub fn allocate_lowest(&self, count: u32, align: u32) -> Option<PageRange> {
        let lowest = self.space.lowest;
        let mut tables = self.tables.lock();
        let first = tables.regions.lowest_from(lowest.first, count, self.base(), align)?;
        (first + count <= lowest.end()).then(|| tables.regions.take(PageRange { first, count }))
    }

    /// The address where the program's data (brk) end at first.
    pub fn data_end(&self) -> usize {
        self.address_of(self.space.data_end)
    }

    /// Pages below the arena.
    fn base(&self) -> u64 {
        (self.address() / PAGE_BYTES) as u64
    }

    /// Allocates exactly `range` if all of it is free.
    pub fn allocate_at(&self, range: PageRange) -> bool {
        let mut tables = self.tables.lock();
        let fits = tables.regions.is_free(range);
        if fits {
            tables.regions.take(range);
        }
        fits
    }

    /// The same; it becomes a part of the region that ends there.
    pub fn extend(&self, range: PageRange) -> bool {
        let mut tables = self.tables.lock();
        let fits = tables.regions.is_free(range);
        if fits {
            tables.regions.extend(range);
        }
        fits
    }

    /// Makes `range` one region, whatever was allocated in it; returns what was free. What lay across its
    /// ends is cut there. At no moment is a page free that was not, so nobody else can be given it.
    pub fn replace(&self, range: PageRange) -> Vec<PageRange> {
        let mut tables = self.tables.lock();
        let used = tables.regions.used_within(range);
        let mut free = RangeSet::new();
        free.insert(range);
        for part in used {
            tables.regions.take_used(part);
            tables.origins.clear(part);
            self.hints.set(part, Hint::Normal);
            free.remove(part);
        }
        let free = free.within(range);
        free.iter().for_each(|gap| tables.regions.take_free(*gap));
        tables.regions.put_used(range);
        free
    }

    /// Notes that the program has mapped something of the kernel's over `range`: a file, shared memory, huge
    /// pages. Such pages are allocated, have no content here (their words are Untouched), and are not to be
    /// registered, adopted, or given advice that is meant for managed memory.
    ///
    /// Changed only by the thread that changes the mapping, with forks and the start of an engine kept out
    /// until both are done: what these see is what is mapped.
    pub fn set_foreign(&self, range: PageRange) {
        self.foreign.lock().insert(range);
    }

    /// Notes that plain memory of the arena lies in `range` again.
    pub fn set_plain(&self, range: PageRange) {
        self.foreign.lock().remove(range);
    }

    /// Whether something of the kernel's is mapped at `page`. Allocates nothing.
    pub fn is_foreign(&self, page: PageIndex) -> bool {
        self.foreign.lock().contains(page)
    }

    /// The parts of `range` where something of the kernel's is mapped, in order.
    pub fn foreign_within(&self, range: PageRange) -> Vec<PageRange> {
        self.foreign.lock().within(range)
    }

    /// The parts of `range` that the arena did not have from the start: what is there goes back to the kernel.
    pub fn gaps_within(&self, range: PageRange) -> Vec<PageRange> {
        self.space.gaps.within(range)
    }

    /// The parts of `range` that it had.
    pub fn own_within(&self, range: PageRange) -> Vec<PageRange> {
        self.space.gaps.outside(range)
    }

    /// The parts of `range`, free or allocated, that are plain memory: what an engine may register.
    pub fn plain_within(&self, range: PageRange) -> Vec<PageRange> {
        self.foreign.lock().outside(range)
    }

    /// Frees whatever is allocated in `range`: whole regions, parts, holes between them.
    pub fn free(&self, range: PageRange) {
        let mut tables = self.tables.lock();
        for part in tables.regions.used_within(range) {
            tables.regions.take_used(part);
            tables.origins.clear(part);
            self.hints.set(part, Hint::Normal);
            tables.regions.put_free(part);
        }
    }

    /// From here on an access to these pages brings none of them in: it may not read.
    pub fn close(&self, range: PageRange) {
        self.tables.lock().closed.insert(range);
    }

    /// Undoes [`Self::close`].
    pub fn reopen(&self, range: PageRange) {
        self.tables.lock().closed.remove(range);
    }

    /// The first page of `range` that may not be read.
    pub fn closed_within(&self, range: PageRange) -> Option<PageIndex> {
        self.tables.lock().closed.within(range).first().map(|part| part.first)
    }

    /// The allocated parts of `range`, in order.
    pub fn allocated(&self, range: PageRange) -> Vec<PageRange> {
        self.tables.lock().regions.used_within(range)
    }

    /// Notes where what is allocated in `range` comes from.
    pub fn set_origin(&self, range: PageRange, origin: &Arc<Origin>) {
        let mut tables = self.tables.lock();
        for part in tables.regions.used_within(range) {
            tables.origins.set(part, origin.clone());
        }
    }

    /// Forgets where `range` comes from.
    pub fn clear_origin(&self, range: PageRange) {
        self.tables.lock().origins.clear(range);
    }

    /// Where `page` comes from, if that is known.
    pub fn origin_of(&self, page: PageIndex) -> Option<Arc<Origin>> {
        let tables = self.tables.lock();
        tables.origins.split(PageRange { first: page, count: 1 }).pop()?.1
    }

    /// Everything that is allocated, in order, region by region.
    pub fn mapped(&self) -> Vec<Mapped> {
        let tables = self.tables.lock();
        tables.regions.all().flat_map(|region| tables.origins.split(region)).collect()
    }

    /// The region around `page`, if it is allocated.
    pub fn region_of(&self, page: PageIndex) -> Option<PageRange> {
        self.tables.lock().regions.around(page)
    }

    /// Pages of all regions; walks the table of regions.
    pub fn used_pages(&self) -> u64 {
        self.tables.lock().regions.all().map(|region| u64::from(region.count)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PAGES: u32 = 1 << 18;

    fn arena() -> Arena {
        Arena::reserve(PAGES, Access::Reserved).unwrap()
    }

    #[test]
    fn a_partial_free_splits_a_region_in_two() {
        let arena = arena();
        let region = arena.allocate(100, 1).unwrap();
        arena.free(PageRange { first: region.first + 40, count: 20 });
        assert_eq!(
            arena.region_of(region.first),
            Some(PageRange { first: region.first, count: 40 })
        );
        assert_eq!(arena.region_of(region.first + 50), None);
        assert_eq!(arena.region_of(region.first + 99).map(|r| r.count), Some(40));
    }

    #[test]
    fn a_region_grows_at_its_end_while_what_follows_is_free() {
        let arena = arena();
        let range = |first, count| PageRange { first, count };
        assert!(arena.extend(range(10, 5)), "of nothing");
        assert!(arena.extend(range(15, 5)) && !arena.extend(range(15, 1)));
        assert_eq!(arena.region_of(19), Some(range(10, 10)));
        assert!(arena.allocate_at(range(30, 5)) && !arena.extend(range(20, 11)));
        assert!(arena.extend(range(21, 9)), "not where it ends");
        assert_eq!(arena.region_of(21), Some(range(21, 9)));
        assert_eq!((arena.region_of(10), arena.used_pages()), (Some(range(10, 10)), 24));
    }

    #[test]
    fn what_is_replaced_is_one_region_and_what_lay_across_its_ends_is_cut() {
        let arena = arena();
        let range = |first, count| PageRange { first, count };
        assert!(arena.allocate_at(range(10, 20)) && arena.allocate_at(range(40, 20)));
        assert_eq!(arena.replace(range(20, 30)), vec![range(30, 10)]);
        assert_eq!(arena.region_of(10), Some(range(10, 10)));
        assert_eq!(arena.region_of(35), Some(range(20, 30)));
        assert_eq!(arena.region_of(59), Some(range(50, 10)));
        assert_eq!(arena.replace(range(20, 30)), vec![]);
        arena.free(range(0, 100));
        assert_eq!(arena.used_pages(), 0);
        assert!(arena.allocate_at(range(0, 100)), "what was cut is whole again");
    }

    #[test]
    fn foreign_parts_are_left_out_of_what_is_registered() {
        let arena = arena();
        let range = |first, count| PageRange { first, count };
        let whole = range(0, PAGES);
        assert_eq!(arena.plain_within(whole), vec![whole]);
        arena.set_foreign(range(16, 8));
        arena.set_plain(range(20, 1));
        assert_eq!(arena.foreign_within(whole), vec![range(16, 4), range(21, 3)]);
        assert_eq!(
            arena.plain_within(whole),
            vec![range(0, 16), range(20, 1), range(24, PAGES - 24)]
        );
        arena.set_plain(whole);
        assert_eq!(arena.plain_within(whole), vec![whole]);
    }

    #[test]
    fn what_needs_no_address_stays_clear_of_low_ones_while_it_can() {
        let arena = Arena::reserve_low().unwrap();
        let floor = arena.space.floor;
        let first = arena.allocate(10, 1).unwrap();
        assert_eq!(first, PageRange { first: floor, count: 10 });
        let end = arena.pages() - ((64 << 30) / PAGE_BYTES) as u32;
        assert_eq!(arena.allocate(end - floor - 10, 1).unwrap().end(), end);
        let below = arena.allocate(512, 512).unwrap();
        assert!(below.end() <= floor && floor - below.end() < 512, "{below:?} below {floor}");
        assert_eq!(arena.address_of(below.first) % (512 * PAGE_BYTES), 0);
        assert!(arena.allocate_lowest(10, 512).is_some_and(|low| {
            let address = arena.address_of(low.first);
            (1 << 30..2 << 30).contains(&address) && address.is_multiple_of(512 * PAGE_BYTES)
        }));
        assert_eq!(arena.allocate_lowest(1 << 18, 1), None);
        let first = arena.page_of(2 << 30);
        let rest = PageRange { first, count: below.first - first };
        assert!(arena.allocate_at(rest), "all else is free");
        // At last what is below 2 GiB, too.
        let taken = std::iter::from_fn(|| arena.allocate(1024, 1)).count();
        assert!((400..480).contains(&taken), "{taken}");
    }

    #[test]
    fn alignment_is_of_addresses_not_of_page_numbers() {
        let arena = arena();
        arena.allocate(3, 1).unwrap();
        let region = arena.allocate(8, 8192).unwrap();
        assert_eq!(arena.address_of(region.first) % (8192 * PAGE_BYTES), 0);
    }

    proptest! {
        #[test]
        fn the_tables_agree_with_a_map_of_pages(steps in proptest::collection::vec((0u32..3, 0u32..300, 1u32..60), 1..200)) {
            let arena = arena();
            let mut model = vec![false; 400];
            for (kind, first, count) in steps {
                let range = PageRange { first, count };
                let pages = first as usize..(first + count) as usize;
                match kind {
                    0 => {
                        let free = model[pages.clone()].iter().all(|used| !used);
                        prop_assert_eq!(arena.allocate_at(range), free);
                        if free { model[pages].fill(true); }
                    }
                    1 => { arena.free(range); model[pages].fill(false); }
                    _ => {
                        let used: u32 = arena.allocated(range).iter().map(|part| part.count).sum();
                        prop_assert_eq!(used as usize, model[pages].iter().filter(|used| **used).count());
                    }
                }
                prop_assert_eq!(arena.used_pages() as usize, model.iter().filter(|used| **used).count());
            }
        }
    }
}
