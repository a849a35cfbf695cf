//! Where an arena lies: for a program under `run` at low addresses, else where the kernel likes.
//!
//! Programs that want memory at an address of their choice choose it below 2 TiB (docs/decisions.md has which): an
//! arena that covers those addresses can give it to them. What does not care is put above them.
use crate::base::index::{PageIndex, PageRange};
use crate::state::range_set::RangeSet;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::{PAGE_BYTES, process};
use std::io;
use std::ops::Range;

/// Pages an arena can have: what a link of the LRU lists can name.
pub const ARENA_PAGES_MAX: u32 = userswap_policy::lru::ITEMS_MAX;

/// Users without rights map nothing below (vm.mmap_min_addr, as it usually is).
const USERS_START: usize = 64 << 10;

/// From 4 TiB on ZGC has its heap, shared memory several times over: it would be in the arena and not managed.
const LOW_END: usize = (4 << 40) - (2 << 30);

/// From here on addresses are free to whoever looks for such in /proc/self/maps, the lowest ones first, as MIT Scheme does.
/// What is mapped there by its address is managed like elsewhere in the arena.
const SEARCHED_START: usize = LOW_END - (64 << 30);

const _: () = assert!(LOW_END / PAGE_BYTES <= ARENA_PAGES_MAX as usize);

/// What the kernel gives for MAP_32BIT (arch/x86/kernel/sys_x86_64.c, find_start_end). The last part stays its own, for
/// what is not managed.
const LOWEST: Range<usize> = 1 << 30..2 << 30;
const KERNELS_START: usize = 7 << 28;

/// Addresses among which the first of those is chosen at random, as the kernel does: 13 bits of pages.
const LOWEST_SPREAD: usize = 32 << 20;

/// What others have mapped is left out in pieces of this size: at most 4096 calls, and mostly one.
const PIECE: usize = 1 << 30;

/// From a page after this address on lies what is asked for without an address; above there is room for 1 TiB.
const FLOOR: usize = (5 << 39) - (66 << 30);

/// Addresses among which that page is chosen at random: 27 bits of pages.
const FLOOR_SPREAD: u64 = 1 << 39;

/// Below what is asked for without an address are the data that grow (brk), where they are not behind the executable.
const DATA_ROOM: usize = 64 << 30;

/// What the tables of an engine take at most for each page of the arena: its word, a link on each of a few nodes,
/// readahead.
const TABLE_BYTES: usize = 64;

/// Address space that is ours, but for gaps.
#[derive(Debug)]
pub struct AddressSpace {
    /// Of its first page, which may be a gap.
    pub address: usize,
    /// Below it there are only gaps.
    pub start: usize,
    /// Length, gaps included.
    pub bytes: usize,
    /// What was mapped there before, and what is left to the kernel.
    pub gaps: RangeSet,
    /// The page from which on allocations without an address are made.
    pub floor: PageIndex,
    /// The pages for allocations below 2 GiB; may be none.
    pub lowest: PageRange,
    /// Where the program's data end, and what it has behind them (brk) begins.
    pub data_end: PageIndex,
    /// Held for their ends.
    _mappings: Vec<Mapping>,
}

impl AddressSpace {
    /// Address space where the kernel likes, halving `pages` until it agrees.
    ///
    /// # Errors
    /// What mmap says when not even 1 GiB can be had.
    pub fn anywhere(pages: u32, access: Access) -> io::Result<Self> {
        let mut pages = pages.min(ARENA_PAGES_MAX) as usize;
        loop {
            let made = Mapping::new(pages * PAGE_BYTES, access);
            match made.and_then(|mapping| can_have_tables(pages).map(|()| mapping)) {
                Ok(mapping) => return Ok(Self::without_gaps(mapping)),
                Err(error) if pages <= 1 << 18 => return Err(error),
                Err(_) => pages /= 2,
            }
        }
    }

    fn without_gaps(mapping: Mapping) -> Self {
        let pages = (mapping.bytes() / PAGE_BYTES) as PageIndex;
        Self {
            address: mapping.address(),
            start: mapping.address(),
            bytes: mapping.bytes(),
            gaps: RangeSet::new(),
            floor: 0,
            lowest: PageRange { first: 0, count: 0 },
            // What needs no address comes from the other end.
            data_end: pages - pages / 8,
            _mappings: vec![mapping],
        }
    }

    /// Inaccessible address space below 4 TiB, around what is there, and behind the data of an executable with a fixed address;
    /// None when too much is there, or a limit is in the way.
    pub fn low() -> Option<Self> {
        let data_end = process::program_break().next_multiple_of(PAGE_BYTES);
        let is_fixed = data_end < LOW_END;
        // A page's number is that of its address: what is aligned is so in the tables, too.
        let (address, bytes) = (0, LOW_END);
        can_have_tables(bytes / PAGE_BYTES).ok()?;
        let mut _mappings = if is_fixed { reserve_behind(data_end) } else { reserve_all() };
        if _mappings.iter().map(Mapping::bytes).sum::<usize>() < bytes / 2 {
            return None;
        }
        let start = _mappings.first()?.address();
        // Else something is in the way.
        let is_behind_data = is_fixed && start == data_end;
        let page_of = |address: usize| (address / PAGE_BYTES) as PageIndex;
        let mut ours = RangeSet::new();
        for mapping in &_mappings {
            let count = (mapping.bytes() / PAGE_BYTES) as u32;
            ours.insert(PageRange { first: page_of(mapping.address()), count });
        }
        let mut gaps = RangeSet::new();
        for gap in ours.outside(PageRange { first: 0, count: page_of(LOW_END) }) {
            gaps.insert(gap);
        }
        // Who looks for more room than that finds none across the end.
        _mappings.extend(Mapping::reserve_at(LOW_END, PAGE_BYTES));
        let random = process::random_of_addresses();
        let floor = FLOOR + (random % FLOOR_SPREAD) as usize;
        let data_end = if is_behind_data { start } else { floor - DATA_ROOM };
        let (floor, data_end) = (page_of(floor), page_of(data_end));
        let lowest = (LOWEST.start + (random >> 40) as usize % LOWEST_SPREAD).max(start);
        let lowest_end = if is_fixed { LOWEST.end } else { KERNELS_START };
        let count = lowest_end.saturating_sub(lowest) / PAGE_BYTES;
        let lowest = PageRange { first: page_of(lowest), count: count as u32 };
        Some(Self { address, start, bytes, gaps, floor, lowest, data_end, _mappings })
    }
}

/// Reserves what is free, but for what is left to the kernel.
fn reserve_all() -> Vec<Mapping> {
    let mut mappings = Vec::new();
    reserve_around(USERS_START, KERNELS_START, &mut mappings);
    reserve_around(LOWEST.end, SEARCHED_START, &mut mappings);
    mappings
}

/// The same behind the data of an executable with a fixed address: these grow as far as they can.
fn reserve_behind(start: usize) -> Vec<Mapping> {
    let mut mappings = Vec::new();
    if start < SEARCHED_START {
        reserve_around(start, SEARCHED_START, &mut mappings);
    }
    mappings
}

/// Reserves what is free between two addresses, by halves down to pieces, in order.
fn reserve_around(start: usize, end: usize, mappings: &mut Vec<Mapping>) {
    if let Ok(mapping) = Mapping::reserve_at(start, end - start) {
        return mappings.push(mapping);
    }
    let half = if start.is_multiple_of(PIECE) { (end - start) / 2 } else { 1 };
    let middle = (start + half).next_multiple_of(PIECE);
    if middle < end {
        reserve_around(start, middle, mappings);
        reserve_around(middle, end, mappings);
    }
}

/// Whether limits on data, on address space and on commitments leave room for the tables of an engine.
fn can_have_tables(pages: usize) -> io::Result<()> {
    Mapping::new(pages * TABLE_BYTES, Access::ReadWrite).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_mapped_is_left_out_in_whole_pieces() {
        // Between what this reserves and what the kernel chooses: no other thread maps anything there.
        let start = 8 << 42;
        let others = [start + PAGE_BYTES, start + 5 * PIECE - PAGE_BYTES]
            .map(|address| Mapping::reserve_at(address, PAGE_BYTES).unwrap());
        let mut mappings = Vec::new();
        reserve_around(start, start + 8 * PIECE, &mut mappings);
        let pieces: Vec<usize> = (0..8)
            .filter(|piece| {
                let address = start + piece * PIECE;
                mappings.iter().any(|mapping| {
                    (mapping.address()..mapping.address() + mapping.bytes()).contains(&address)
                })
            })
            .collect();
        assert_eq!(pieces, [1, 2, 3, 5, 6, 7]);
        assert_eq!(mappings.iter().map(Mapping::bytes).sum::<usize>(), 6 * PIECE);
        drop(others);
    }

    #[test]
    fn what_does_not_begin_with_a_piece_is_left_out_up_to_the_next_one() {
        let start = (8 << 42) + 32 * PIECE;
        let other = Mapping::reserve_at(start + PIECE / 2, PAGE_BYTES).unwrap();
        let mut mappings = Vec::new();
        reserve_around(start + PAGE_BYTES, start + 2 * PIECE + PAGE_BYTES, &mut mappings);
        let parts: Vec<_> = mappings.iter().map(|part| (part.address(), part.bytes())).collect();
        // The last part is not whole, and free.
        assert_eq!(parts, [(start + PIECE, PIECE + PAGE_BYTES)]);
        drop(other);
        drop(mappings);
        let mut mappings = Vec::new();
        let late = Mapping::reserve_at(start + PIECE + PAGE_BYTES, PAGE_BYTES).unwrap();
        reserve_around(start + PAGE_BYTES, start + 2 * PIECE, &mut mappings);
        let parts: Vec<_> = mappings.iter().map(|part| (part.address(), part.bytes())).collect();
        assert_eq!(parts, [(start + PAGE_BYTES, PIECE - PAGE_BYTES)]);
        drop(late);
    }
}
