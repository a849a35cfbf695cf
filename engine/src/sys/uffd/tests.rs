//! A thread waits for a page that the kernel moves without counting it.
use super::*;
use crate::sys::mapping::{self, Mapping};
use crate::sys::pages;
use std::time::Duration;

/// UFFDIO_MOVE_MODE_DONTWAKE.
const WAKES_NOBODY: u64 = 1;

/// Nothing takes this long.
const PATIENCE_MS: u32 = 60_000;

#[test]
fn who_waits_for_a_page_that_was_moved_uncounted_is_woken() {
    let uffd = Uffd::open(feature::MOVE | feature::THREAD_ID, 0, Rights::UserOnly).unwrap();
    let new = || Mapping::new(PAGE_BYTES, mapping::Access::ReadWrite).unwrap();
    let (memory, frame) = (new(), new());
    let (to, from) = (memory.address(), frame.address());
    pages::view_mut(from, PAGE_BYTES).fill(7);
    uffd.register(to, PAGE_BYTES).unwrap();
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| pages::view(to, PAGE_BYTES)[0]);
        let mut message = [Fault::default()];
        while uffd.read(&mut message) == 0 {
            fd::poll(&[uffd.as_raw_fd(), -1, -1], -1);
        }
        // As the kernel leaves it: the page has gone over, the call has not said so, and nobody was woken.
        let code = iowr(0x05, size_of::<TransferArg>());
        uffd.transfer_with(WAKES_NOBODY, code, [to, from, PAGE_BYTES]).unwrap();
        let outcome = uffd.move_pages(to, from, PAGE_BYTES);
        let is_woken = (0..PATIENCE_MS).any(|_| {
            std::thread::sleep(Duration::from_millis(1));
            reader.is_finished()
        });
        uffd.wake(to, PAGE_BYTES);
        assert_eq!(outcome, Ok(()));
        assert!(is_woken, "the thread still waits for a page that is there");
        assert_eq!(reader.join().unwrap(), 7);
    });
}
