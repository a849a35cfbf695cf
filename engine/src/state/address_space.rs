//! Where an arena lies: for a program under `run` at low addresses, else where the kernel likes.
//!
//! Programs that want memory at an address of their choice choose it between 2 GiB and 2 TiB (docs/decisions.md has
//! which): an arena that covers those addresses can give it to them. What does not care is put above them.
use crate::base::index::{PageIndex, PageRange};
use crate::state::range_set::RangeSet;
use crate::sys::mapping::{Access, Mapping};
use crate::sys::{PAGE_BYTES, process};
use std::io;

/// Pages an arena can have: what a link of the LRU lists can name.
pub const ARENA_PAGES_MAX: u32 = userswap_policy::lru::ITEMS_MAX;

/// Below are executables with fixed addresses, and what the kernel gives for MAP_32BIT.
const LOW_START: usize = 2 << 30;

/// From here on ZGC has its heap, shared memory several times over: it would be in the arena and not managed.
const LOW_END: usize = 4 << 40;

const _: () = assert!((LOW_END - LOW_START) / PAGE_BYTES == ARENA_PAGES_MAX as usize);

/// Left free after the heap that grows from an executable with a fixed address (brk).
const BREAK_ROOM: usize = 16 << 30;

/// What others have mapped is left out in pieces of this size: at most 4096 calls, and mostly one.
const PIECE: usize = 1 << 30;

/// From a page after this address on lies what is asked for without an address; above there is room for 1 TiB.
const FLOOR: usize = 5 << 39;

/// Addresses among which that page is chosen at random: 27 bits of pages.
const FLOOR_SPREAD: u64 = 1 << 39;

/// What the tables of an engine take at most for each page of the arena: its word, a link on each of a few nodes,
/// readahead.
const TABLE_BYTES: usize = 64;

/// Address space that is ours, but for gaps.
#[derive(Debug)]
pub struct AddressSpace {
    /// Of its first page.
    pub address: usize,
    /// Length, gaps included.
    pub bytes: usize,
    /// What was mapped there before.
    pub gaps: Vec<PageRange>,
    /// The page from which on allocations without an address are made.
    pub floor: PageIndex,
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
                Ok(mapping) => {
                    let (address, bytes) = (mapping.address(), mapping.bytes());
                    let _mappings = vec![mapping];
                    return Ok(Self { address, bytes, gaps: Vec::new(), floor: 0, _mappings });
                }
                Err(error) if pages <= 1 << 18 => return Err(error),
                Err(_) => pages /= 2,
            }
        }
    }

    /// Inaccessible address space below 4 TiB, around what is there; None when too much is, or a limit is in the way.
    pub fn low() -> Option<Self> {
        let start = match process::program_break() {
            end if end < LOW_END => (end + BREAK_ROOM).next_multiple_of(PIECE).max(LOW_START),
            _ => LOW_START,
        };
        let bytes = LOW_END - start;
        can_have_tables(bytes / PAGE_BYTES).ok()?;
        let mut mappings = Vec::new();
        reserve_around(start, LOW_END, &mut mappings);
        if mappings.iter().map(Mapping::bytes).sum::<usize>() < bytes / 2 {
            return None;
        }
        let page_of = |address: usize| ((address - start) / PAGE_BYTES) as PageIndex;
        let mut ours = RangeSet::new();
        for mapping in &mappings {
            let count = (mapping.bytes() / PAGE_BYTES) as u32;
            ours.insert(PageRange { first: page_of(mapping.address()), count });
        }
        let gaps = ours.outside(PageRange { first: 0, count: page_of(LOW_END) });
        let offset = (process::random_of_addresses() % FLOOR_SPREAD) as usize;
        let floor = page_of(FLOOR + offset);
        Some(Self { address: start, bytes, gaps, floor, _mappings: mappings })
    }
}

/// Reserves what is free between two addresses, by halves down to pieces, in order.
fn reserve_around(start: usize, end: usize, mappings: &mut Vec<Mapping>) {
    match Mapping::reserve_at(start, end - start) {
        Ok(mapping) => mappings.push(mapping),
        Err(_) if end - start > PIECE => {
            let middle = (start + (end - start) / 2).next_multiple_of(PIECE);
            reserve_around(start, middle, mappings);
            reserve_around(middle, end, mappings);
        }
        Err(_) => {}
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
        let start = 8 * LOW_END;
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
}
