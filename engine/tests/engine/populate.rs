//! Pages that come in for another process: the kernel finds them there, none comes that is not the engine's, and what
//! it writes to them stays.
use crate::control::{builder_in, directory};
use crate::support::*;
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::atomic::{AtomicBool, Ordering};
use tempfile::TempDir;
use userswap::Engine;
use userswap::internals::other::Other;

const COUNT: usize = 256;
const BYTES: usize = COUNT * PAGE;

/// With a socket in a directory of its own.
fn engine_in(directory: &TempDir, (fault, transfer): Way) -> Engine {
    build(builder_in(directory.path()).fault(fault).transfer(transfer))
}

/// Pages that are missing are so for the kernel, too.
fn engine_by_signal() -> (TempDir, Engine) {
    limit(60);
    let directory = directory();
    let engine = engine_in(&directory, WAYS[1]);
    (directory, engine)
}

/// Asks as another process does, by the socket.
fn ask(directory: &TempDir, address: usize) -> usize {
    let mut other = Other::of(std::process::id(), Some(directory.path())).unwrap();
    other.populate(address, usize::MAX).unwrap()
}

/// A file with what pages hold under a stamp, page 0 first.
fn file_with(stamp: u64) -> File {
    let file = tempfile::tempfile_in("/var/tmp").unwrap();
    let words = |page| (0..WORDS).flat_map(move |index| word(stamp, page, index).to_ne_bytes());
    let content: Vec<u8> = (0..COUNT).flat_map(words).collect();
    file.write_all_at(&content, 0).unwrap();
    file
}

#[test]
fn the_kernel_finds_pages_that_were_asked_for_and_can_write_to_them() {
    for way in ways() {
        limit(60);
        let directory = directory();
        let engine = engine_in(&directory, way);
        let (region, pages) = paged_out(&engine, COUNT, 7);
        let copy = tempfile::tempfile_in("/var/tmp").unwrap();
        let is_read = || copy.write_all_at(bytes(pages, 0, COUNT), 0).is_ok();
        assert_eq!(is_read(), way.0 == FaultMode::Thread, "{way:?}: all of it has left");
        region.page_out(0..region.len()).unwrap();
        assert_eq!(ask(&directory, pages.address), BYTES, "{way:?}");
        assert!(is_read(), "{way:?}");
        for stamp in [8, 9] {
            assert_eq!(ask(&directory, pages.address), BYTES, "{way:?}");
            file_with(stamp).read_exact_at(bytes(pages, 0, COUNT), 0).unwrap();
            region.page_out(0..region.len()).unwrap();
            pages.check_all(stamp);
        }
        audit(&engine);
    }
}

#[test]
fn a_page_that_was_dropped_past_us_comes_as_zeros() {
    let (directory, engine) = engine_by_signal();
    let region = engine.map(BYTES).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(7);
    mapping::advise(pages.at(3).addr(), PAGE, libc::MADV_DONTNEED).unwrap();
    let copy = tempfile::tempfile_in("/var/tmp").unwrap();
    assert!(copy.write_all_at(bytes(pages, 3, 1), 0).is_err());
    assert_eq!(ask(&directory, pages.at(3).addr()), BYTES - 3 * PAGE);
    copy.write_all_at(bytes(pages, 3, 1), 0).unwrap();
    pages.check(3, 0);
    audit(&engine);
}

#[test]
fn only_what_the_engine_has_is_brought_in() {
    let (directory, engine) = engine_by_signal();
    let (region, pages) = paged_out(&engine, COUNT, 7);
    let end = pages.address + BYTES;
    let is_all = |from: usize| ask(&directory, from) == end - from;
    assert!(is_all(end - 3 * PAGE) && is_all(end - PAGE - 5) && is_all(end - 1));
    for nowhere in [0, 4096, end, end + 5, usize::MAX] {
        assert_eq!(ask(&directory, nowhere), 0, "{nowhere:#x}");
    }
    let untouched = engine.map(BYTES).unwrap();
    let address = Pages::of(&untouched).address;
    assert_eq!(ask(&directory, address), BYTES);
    Pages::of(&untouched).check_all(0);
    pages.check_all(7);
    drop((region, untouched));
    assert_eq!(ask(&directory, address), 0, "it was given back");
    audit(&engine);
}

#[test]
fn zeros_that_leave_as_soon_as_they_are_there_count() {
    let (_directory, engine) = engine_by_signal();
    let region = engine.map(BYTES).unwrap();
    let pages = Pages::of(&region);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                region.page_out(0..region.len()).unwrap();
            }
        });
        let missing = (0..rounds(20_000)).find(|round| {
            let page = pages.at(*round as usize % COUNT).addr();
            engine.core().populate(page, PAGE) != PAGE
        });
        done.store(true, Ordering::Relaxed);
        assert_eq!(missing, None);
    });
    pages.check_all(0);
    audit(&engine);
}

#[test]
fn memory_that_is_given_back_meanwhile_is_neither_filled_nor_found_again() {
    let (_directory, engine) = engine_by_signal();
    let core = engine.core();
    let done = AtomicBool::new(false);
    let address = Pages::of(&engine.map(BYTES).unwrap()).address;
    std::thread::scope(|scope| {
        for _ in 0..2 {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    core.populate(address, BYTES);
                }
            });
        }
        for round in 1..=rounds(200) {
            let (region, pages) = paged_out(&engine, COUNT, round);
            assert_eq!(pages.address, address);
            pages.check_all(round);
            drop(region);
            let region = engine.map(BYTES).unwrap();
            Pages::of(&region).check_all(0);
        }
        done.store(true, Ordering::Relaxed);
    });
    assert_eq!((engine.counters().pages_lost, engine.usage().slots_used), (0, 0));
    audit(&engine);
}
