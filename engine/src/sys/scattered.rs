//! Dropping pages that lie anywhere, by one call: process_madvise for the process itself, which flushes the other
//! CPUs' TLBs once for all of them (Linux 6.16).
use super::PAGE_BYTES;
use super::mapping::{Access, Mapping};
use super::pages;

/// The calling thread's process, without a descriptor that the program could close or replace (PIDFD_SELF, 6.15).
const SELF: libc::c_int = -10_000;

/// Pages that one call drops at most; the kernel takes four times as many.
pub const SCATTERED_MAX: usize = 256;

/// Addresses of up to `N` pages, or runs of them.
pub struct Scattered<const N: usize = SCATTERED_MAX> {
    parts: [libc::iovec; N],
    count: usize,
}

// SAFETY: the addresses are numbers here, looked at by the kernel only.
unsafe impl<const N: usize> Send for Scattered<N> {}

impl<const N: usize> Default for Scattered<N> {
    fn default() -> Self {
        let none = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self { parts: [none; N], count: 0 }
    }
}

impl<const N: usize> Scattered<N> {
    /// Takes these pages instead of those before.
    ///
    /// # Panics
    /// More than `N` pages.
    pub fn fill(&mut self, addresses: impl Iterator<Item = usize>) {
        self.fill_runs(addresses.map(|address| (address, PAGE_BYTES)));
    }

    /// Takes these runs, by address and bytes, instead of what was there before.
    ///
    /// # Panics
    /// More than `N` runs.
    pub fn fill_runs(&mut self, runs: impl Iterator<Item = (usize, usize)>) {
        self.count = 0;
        for (address, bytes) in runs {
            self.parts[self.count] =
                libc::iovec { iov_base: address as *mut libc::c_void, iov_len: bytes };
            self.count += 1;
        }
    }

    /// Drops the memory of all from index `first` on, up to the first that the kernel refuses; returns how many pages.
    pub fn drop_from(&self, first: usize) -> usize {
        let parts = &self.parts[first..self.count];
        let number = libc::SYS_process_madvise;
        // SAFETY: the caller owns these pages and needs their content no more. The raw system call passes by an
        // interposed one.
        let dropped = unsafe {
            libc::syscall(number, SELF, parts.as_ptr(), parts.len(), libc::MADV_DONTNEED, 0)
        };
        dropped.max(0) as usize / PAGE_BYTES
    }
}

/// Whether this kernel drops scattered pages of the process itself.
pub fn is_supported() -> bool {
    let Ok(memory) = Mapping::new(3 * PAGE_BYTES, Access::ReadWrite) else { return false };
    let page = |index: usize| memory.address() + index * PAGE_BYTES;
    let mut scattered = Scattered::<2>::default();
    scattered.fill([0, 2].into_iter().map(page));
    (0..3).for_each(|index| pages::view_mut(page(index), PAGE_BYTES).fill(1));
    let dropped = scattered.drop_from(0);
    let left = [0, 1, 2].map(|index| pages::view(page(index), 1)[0]);
    (dropped, left) == (2, [0, 1, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_named_are_dropped_up_to_the_first_that_is_refused() {
        if !is_supported() {
            println!("this kernel cannot drop scattered pages of its own process");
            return;
        }
        let memory = Mapping::new(8 * PAGE_BYTES, Access::ReadWrite).unwrap();
        let page = |index: usize| memory.address() + index * PAGE_BYTES;
        pages::view_mut(page(0), memory.bytes()).fill(7);
        // SAFETY: changes only where the page may be.
        assert_eq!(unsafe { libc::mlock(page(4) as *const libc::c_void, PAGE_BYTES) }, 0);
        let mut scattered = Scattered::<4>::default();
        scattered.fill([1, 2, 4, 6].into_iter().map(page));
        assert_eq!(
            (scattered.drop_from(0), scattered.drop_from(2), scattered.drop_from(3)),
            (2, 0, 1)
        );
        let left: Vec<u8> = (0..8).map(|index| pages::view(page(index), 1)[0]).collect();
        assert_eq!(left, [7, 0, 0, 7, 7, 7, 0, 7]);
    }
}
