//! Pages that nobody of this process has brought: in a child of a fork, until its memory is registered.
//!
//! Whoever reads the child's memory from outside meanwhile (process_vm_readv(2), /proc/PID/mem, ptrace(2)) has the kernel put a
//! page of zeros where one is swapped out. The child would take it for its own, or nothing else could be put there.
use crate::state::core::Core;
use crate::sys::{PAGE_BYTES, filters, present};
use crate::transfer::drop::drop_memory;
use crate::transfer::verdict::Call;
use std::ops::Range;

/// Pages that are looked at in one call: for so many the kernel has room.
const LOOK_PAGES: usize = 4096;

impl Core {
    /// Drops them, once their places are registered. The gate is closed, and there is one thread.
    pub(crate) fn drop_strangers(&self) {
        for part in self.arena.plain() {
            let mut next = part.first;
            for touched in self.pages.touched.within(part) {
                self.drop_all(next..touched.first);
                let is_mapped = |at| self.pages.state(touched.first + at as u32).mapped().is_some();
                let address = self.page_address(touched.first);
                drop_others(address, touched.count as usize, is_mapped, look_at);
                next = touched.end();
            }
            self.drop_all(next..part.end());
        }
        for node in &self.nodes {
            let state = node.lock();
            let is_present = |at| state.pool.is_present(at as u32);
            let address = self.frame_address(node.first_frame());
            drop_others(address, node.positions() as usize, is_present, look_at);
        }
    }

    /// Drops what is in a part of the arena that no page of ours has ever been in.
    fn drop_all(&self, pages: Range<u32>) {
        drop_run(self.page_address(pages.start), 0..pages.len());
    }
}

/// Drops all of so many pages but those that are `expected`: what is found, or, where that cannot be asked for, unasked.
fn drop_others(address: usize, count: usize, expected: impl Fn(usize) -> bool, look_at: Look) {
    let mut found = [0; LOOK_PAGES];
    for first in (0..count).step_by(LOOK_PAGES) {
        let look = first..count.min(first + LOOK_PAGES);
        if look.clone().all(&expected) {
            continue;
        }
        let found = &mut found[..look.len()];
        let is_known = look_at(address + first * PAGE_BYTES, found);
        let may_be_there = |at: usize| !is_known || present::is_present(found[at - first]);
        let is_stranger = |at: &usize| may_be_there(*at) && !expected(*at);
        let mut rest = look;
        while let Some(stranger) = rest.find(is_stranger) {
            let end = rest.find(|at| !is_stranger(at)).unwrap_or(rest.end);
            drop_run(address, stranger..end);
        }
    }
}

/// Fills a byte for each page from an address on; false if that cannot be known.
type Look = fn(usize, &mut [u8]) -> bool;

/// A filter of the program's may end it for this call; others refuse it, as the kernel does where a raw munmap has left a hole.
fn look_at(address: usize, found: &mut [u8]) -> bool {
    !filters::are_expected() && present::look(address, found).is_ok()
}

fn drop_run(address: usize, pages: Range<usize>) {
    if !pages.is_empty() {
        let bytes = pages.len() * PAGE_BYTES;
        drop_memory(Call::DropUnwanted, address + pages.start * PAGE_BYTES, bytes);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::mapping::{Access, Mapping};
    use crate::sys::pages;

    #[test]
    fn what_is_expected_stays_and_all_else_is_dropped() {
        const BLOCK_PAGES: usize = LOOK_PAGES / 4;
        const PAGES: usize = 5 * LOOK_PAGES + 7;
        let memory = Mapping::new(PAGES * PAGE_BYTES, Access::ReadWrite).unwrap();
        let _ = memory.advise(0, memory.bytes(), libc::MADV_NOHUGEPAGE);
        // Looks and parts of them of either kind, mixed ones, and the end.
        let is_ours = |at: usize| match at / BLOCK_PAGES {
            0 | 3 | 8 => at.is_multiple_of(3),
            1 | 4..8 => true,
            20 => at.is_multiple_of(2),
            _ => false,
        };
        let unknown = |_, _: &mut [u8]| false;
        for (round, look) in [(0, look_at as Look), (1, look_at), (1, unknown)] {
            for at in (0..PAGES).filter(|at| round == 1 || is_ours(*at)) {
                let page = pages::view_mut(memory.address() + at * PAGE_BYTES, PAGE_BYTES);
                match is_ours(at) {
                    true => page[0] = 1,
                    // The page of zeros that all share.
                    false => assert_eq!(std::hint::black_box(page[0]), 0),
                }
            }
            drop_others(memory.address(), PAGES, is_ours, look);
        }
        let mut found = vec![0; PAGES];
        present::look(memory.address(), &mut found).unwrap();
        for (at, found) in found.into_iter().enumerate() {
            assert_eq!(present::is_present(found), is_ours(at), "page {at}");
            let page = pages::view_mut(memory.address() + at * PAGE_BYTES, PAGE_BYTES);
            assert_eq!(page[0], u8::from(is_ours(at)), "page {at}");
        }
    }
}
