//! What the kernel refuses of memory that the program protects, locks, unmaps or covers: the page stays, is gone, or is
//! copied, and nothing waits or ends.
use crate::support::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering};
use userswap::Engine;

fn small(way: Way) -> Engine {
    engine_on(way, &["mem:256M"])
}

fn state_of(engine: &Engine, pages: &Pages, page: usize) -> PageState {
    let core = engine.core();
    core.pages.state(core.arena.page_of(pages.address) + page as u32)
}

fn is_resident(engine: &Engine, pages: &Pages, page: usize) -> bool {
    state_of(engine, pages, page).mapped().is_some()
}

/// Memory without access leaves as any other.
fn protected_memory_leaves(way: Way, protection: i32) {
    limit(60);
    let engine = small(way);
    let region = engine.map(12 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    protect(Pages::of(&region), protection);
    let other = engine.map(24 * MIB).unwrap();
    let others = Pages::of(&other);
    others.fill_all(4);
    others.fill_all(5);
    let has_left = |page: &usize| !is_resident(&engine, &pages, *page);
    assert!((0..pages.count).filter(has_left).count() > 0, "reclaim has met some");
    let nodes = engine.core().nodes.iter();
    let stayed: u32 = nodes.map(|node| node.lock().lists.len(ListId::Unevictable)).sum();
    assert_eq!(stayed, 0, "none had to stay");
    region.page_out(0..region.len()).unwrap();
    assert!((0..pages.count).all(|page| has_left(&page)), "the others leave on request");
    audit(&engine);
    protect(Pages::of(&region), libc::PROT_READ | libc::PROT_WRITE);
    pages.check_all(3);
    others.check_all(5);
    audit(&engine);
}

#[test]
fn memory_without_access_leaves() {
    protected_memory_leaves(WAYS[0], libc::PROT_NONE);
    protected_memory_leaves(WAYS[3], libc::PROT_NONE);
}

#[test]
fn memory_that_may_only_be_read_leaves() {
    protected_memory_leaves(WAYS[1], libc::PROT_READ);
}

#[test]
fn memory_without_access_is_moved_elsewhere() {
    limit(60);
    for way in ways() {
        let engine = small(way);
        let (from, to) = (engine.map(8 * PAGE).unwrap(), engine.map(8 * PAGE).unwrap());
        let (pages, target) = (Pages::of(&from), Pages::of(&to));
        pages.fill_all(3);
        protect(Pages::of(&from), libc::PROT_NONE);
        let core = engine.core();
        core.move_range(
            core.range_at(pages.address, from.len()),
            core.arena.page_of(target.address),
        );
        target.check_all(3);
        audit(&engine);
    }
}

/// Pages that a raw madvise took away are met by reclaim, by a request and by a move.
fn pages_gone_past_us(way: Way, protection: i32) {
    limit(60);
    let engine = small(way);
    let region = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    // Some have a copy on their slots, too.
    region.page_out(0..16 * PAGE).unwrap();
    (0..16).for_each(|page| pages.check(page, 3));
    protect(Pages::of(&region), protection);
    drop_raw(&pages, 0, 64);
    drop_raw(&pages, 70, 1);
    // The others are reclaim's.
    region.page_out(0..24 * PAGE).unwrap();
    region.page_out(32 * PAGE..128 * PAGE).unwrap();
    assert_eq!(state_of(&engine, &pages, 0), PageState::Untouched, "it has no content");
    assert_eq!(state_of(&engine, &pages, 40), PageState::Untouched, "it has no content");
    let other = engine.map(24 * MIB).unwrap();
    Pages::of(&other).fill_all(4);
    Pages::of(&other).fill_all(5);
    let resident = (0..64).filter(|page| is_resident(&engine, &pages, *page)).count();
    assert_eq!(resident, 0, "what is not there holds no budget");
    protect(Pages::of(&region), libc::PROT_READ | libc::PROT_WRITE);
    for page in 0..pages.count {
        pages.check(page, if page < 64 || page == 70 { 0 } else { 3 });
    }
    audit(&engine);
}

#[test]
fn a_page_that_went_past_the_engine_is_untouched() {
    for way in ways() {
        pages_gone_past_us(way, libc::PROT_READ | libc::PROT_WRITE);
    }
}

#[test]
fn a_page_that_is_protected_and_went_past_the_engine_is_untouched() {
    pages_gone_past_us(WAYS[0], libc::PROT_READ);
    pages_gone_past_us(WAYS[1], libc::PROT_NONE);
}

/// Another thread takes pages away while they are copied out; not while they are filled, which would never end.
#[test]
fn pages_that_go_while_they_are_copied_are_waited_for_by_nobody() {
    /// Of the drops of all pages some fall into the time of the copy.
    const DROPS: usize = 8;
    limit(60);
    for way in ways() {
        let engine = small(way);
        let region = engine.map(64 * PAGE).unwrap();
        let pages = Pages::of(&region);
        let (rounds, begins) = (rounds(300), Barrier::new(2));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for _ in 0..rounds {
                    begins.wait();
                    (0..DROPS).for_each(|_| drop_raw(&pages, 0, 64));
                    begins.wait();
                }
            });
            for _ in 0..rounds {
                pages.fill_all(1);
                begins.wait();
                region.page_out(0..region.len()).unwrap();
                begins.wait();
            }
        });
        pages.fill_all(2);
        pages.check_all(2);
        audit(&engine);
    }
}

/// In the child the descriptor is still the parent's memory until it is replaced.
#[test]
fn a_child_copies_its_own_memory_out() {
    alone(60, || {
        for way in ways() {
            let engine = small(way);
            let region = engine.map(64 * PAGE).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(3);
            protect(Pages::of(&region), libc::PROT_READ);
            let child = fork(&engine, || {
                protect(Pages::of(&region), libc::PROT_READ | libc::PROT_WRITE);
                pages.fill_all(4);
                protect(Pages::of(&region), libc::PROT_READ);
                region.page_out(0..region.len()).unwrap();
                assert!(!is_resident(&engine, &pages, 0));
                pages.check_all(4);
                audit(&engine);
            });
            join(child);
            region.page_out(0..region.len()).unwrap();
            pages.check_all(3);
            audit(&engine);
        }
    });
}

/// Locked by the program past the engine: it stays, with its content, until the program drops it.
fn locked_memory_stays(way: Way) {
    let engine = small(way);
    let mut region = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    lock_raw(&pages, 8, 16);
    region.page_out(0..64 * PAGE).unwrap();
    let other = engine.map(24 * MIB).unwrap();
    Pages::of(&other).fill_all(4);
    Pages::of(&other).fill_all(5);
    // Reclaim may just be trying one again; a page that has left stays away, as nobody touches it.
    for page in 8..24 {
        eventually("it is to be in RAM", || is_resident(&engine, &pages, page));
    }
    assert!(!is_resident(&engine, &pages, 0) && !is_resident(&engine, &pages, 24));
    pages.check_all(3);
    (8..24).for_each(|page| pages.fill(page, 6));
    (8..24).for_each(|page| pages.check(page, 6));
    audit(&engine);
    region.discard(0..region.len()).unwrap();
    pages.check_all(0);
    audit(&engine);
    // Its lock went with its content.
    pages.fill_all(7);
    region.page_out(0..region.len()).unwrap();
    assert!(!is_resident(&engine, &pages, 8));
    pages.check_all(7);
}

#[test]
fn memory_that_the_program_locks_stays_until_it_is_dropped() {
    limit(60);
    WAYS.into_iter().for_each(locked_memory_stays);
}

#[test]
fn locked_memory_is_moved_elsewhere() {
    limit(60);
    let engine = small(WAYS[0]);
    let (from, to) = (engine.map(4 * PAGE).unwrap(), engine.map(4 * PAGE).unwrap());
    let (pages, target) = (Pages::of(&from), Pages::of(&to));
    pages.fill_all(3);
    lock_raw(&pages, 0, 4);
    let core = engine.core();
    core.move_range(core.range_at(pages.address, from.len()), core.arena.page_of(target.address));
    target.check_all(3);
    audit(&engine);
}

#[test]
fn an_engine_of_a_program_that_locks_all_its_future_memory_works() {
    alone(60, || {
        // As a program does at its start; the test's own memory is another matter.
        lock_all(libc::MCL_CURRENT | libc::MCL_FUTURE);
        for way in ways() {
            let engine = small(way);
            let region = engine.map(24 * MIB).unwrap();
            let pages = Pages::of(&region);
            for stamp in 1..4 {
                pages.fill_all(stamp);
            }
            pages.check_all(3);
            assert_eq!(engine.counters().budget_exceeded, 0);
            region.page_out(0..region.len()).unwrap();
            engine.page_out_all();
            audit(&engine);
        }
    });
}

#[test]
fn a_pool_that_is_locked_later_gives_its_memory_back() {
    alone(60, || {
        let engine = small(WAYS[0]);
        let region = engine.map(4 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        region.page_out(0..MIB).unwrap();
        lock_all(libc::MCL_CURRENT | libc::MCL_ONFAULT);
        engine.page_out_all();
        engine.set_budget(20 << 20).unwrap();
        pages.check_all(3);
        audit(&engine);
    });
}

/// Maps a file over pages past the engine, as a thread does whose fault was answered while another's on the same page
/// still waits to be read.
fn cover_with_a_file(pages: &Pages, first: usize, count: usize) {
    let file = std::fs::File::open("/proc/self/exe").unwrap();
    cover_with(&file, pages.address + first * PAGE, count);
}

/// Waits until a thread sleeps.
fn until_asleep(thread: u64) {
    eventually("the thread sleeps in its fault", || {
        let stat = std::fs::read_to_string(format!("/proc/self/task/{thread}/stat")).unwrap();
        stat.rsplit(')').next().unwrap().trim_start().starts_with(['S', 'D'])
    });
}

/// Something else is mapped at a page by the time that its fault is served. With the budget used up, zeros come in
/// frames instead of from the kernel.
fn a_message_that_is_too_old(way: Way, used: usize) {
    let engine = small(way);
    let other = engine.map(24 * MIB).unwrap();
    (0..used / PAGE).for_each(|page| Pages::of(&other).fill(page, 1));
    let region = engine.map(64 * PAGE).unwrap();
    let pages = Pages::of(&region);
    let (core, faulting) = (engine.core(), AtomicU64::new(0));
    std::thread::scope(|scope| {
        core.gate.close();
        let reader = scope.spawn(|| {
            faulting.store(clock::thread_id() as u64, Ordering::Release);
            touch(pages.at(20) as usize)
        });
        eventually("the thread runs", || faulting.load(Ordering::Acquire) != 0);
        until_asleep(faulting.load(Ordering::Acquire));
        cover_with_a_file(&pages, 20, 4);
        core.gate.open();
        assert_eq!(reader.join().unwrap(), 0x7f, "{way:?}: the file begins as every program");
    });
    assert_eq!(state_of(&engine, &pages, 20), PageState::Untouched, "{way:?}");
    // Runs of zeros end before it, and go on after it.
    (0..20).for_each(|page| pages.fill(page, 2));
    (24..64).for_each(|page| pages.fill(page, 3));
    assert!((20..24).all(|page| state_of(&engine, &pages, page) == PageState::Untouched));
    (0..20).for_each(|page| pages.check(page, 2));
    (24..64).for_each(|page| pages.check(page, 3));
    drop_raw(&pages, 20, 4);
    audit(&engine);
}

#[test]
fn a_fault_message_older_than_what_is_mapped_there_is_given_up() {
    alone(60, || {
        for way in ways() {
            a_message_that_is_too_old(way, 0);
            a_message_that_is_too_old(way, 24 * MIB);
        }
    });
}

/// With free frames at hand, zeros for two pages come in them, and the second page is not ours any more.
fn a_pair_whose_second_page_is_gone(way: Way) {
    let engine = small(way);
    let mut other = engine.map(12 * MIB).unwrap();
    // Free frames: a run leaves, and its content is given up.
    Pages::of(&other).fill_all(1);
    other.page_out(0..other.len()).unwrap();
    other.discard(0..other.len()).unwrap();
    let mut regions = Vec::new();
    for stamp in 0..32 {
        let region = engine.map(64 * PAGE).unwrap();
        let pages = Pages::of(&region);
        cover_with_a_file(&pages, 63, 1);
        [61, 62, 60].into_iter().for_each(|page| pages.fill(page, stamp));
        regions.push(region);
    }
    for (stamp, region) in (0..).zip(&regions) {
        let pages = Pages::of(region);
        (60..63).for_each(|page| pages.check(page, stamp));
        drop_raw(&pages, 63, 1);
    }
    audit(&engine);
}

#[test]
fn of_a_pair_that_is_copied_the_second_page_may_be_gone() {
    alone(60, || WAYS.into_iter().for_each(a_pair_whose_second_page_is_gone));
}

#[test]
fn memory_with_a_hole_is_forked_and_dropped() {
    alone(60, || {
        for way in ways() {
            let engine = small(way);
            let mut region = engine.map(64 * PAGE).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(3);
            unmap_raw(&pages, 8, 4);
            let others = || (0..64).filter(|page| !(8..12).contains(page));
            join(fork(&engine, || {
                others().for_each(|page| pages.check(page, 3));
                region.page_out(0..region.len()).unwrap();
                others().for_each(|page| pages.check(page, 3));
                audit(&engine);
            }));
            others().for_each(|page| pages.check(page, 3));
            region.discard(0..region.len()).unwrap();
            others().for_each(|page| pages.check(page, 0));
            audit(&engine);
        }
    });
}
