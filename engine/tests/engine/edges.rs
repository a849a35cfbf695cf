//! Cases at the edges of the paging core, each of which once ended a program or stopped it for ever.
use crate::support::*;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use userswap::Builder;
use userswap::internals::Proceed;

/// The pages that the server reads itself must not be all there is, as long as it waits for a page.
#[test]
fn many_readers_of_a_slow_device_beside_pinned_memory_all_go_on() {
    const READERS: usize = 32;
    const EACH: usize = 256;
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:256M,latency=20000"]);
    let region = engine.map(READERS * EACH * PAGE).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(7);
    let pinned = engine.map(12 * MIB).unwrap();
    pinned.pin(0..12 * MIB).unwrap();
    let start = Barrier::new(READERS);
    std::thread::scope(|scope| {
        for reader in 0..READERS {
            let start = &start;
            scope.spawn(move || {
                start.wait();
                (reader * EACH..(reader + 1) * EACH).for_each(|page| pages.check(page, 7));
            });
        }
    });
    pinned.unpin(0..12 * MIB).unwrap();
    audit(&engine);
}

/// Several messages for one page come in one batch: when the second is looked at, its thread may have gone
/// on and the region may be gone.
#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_message_older_than_its_answer_harms_no_thread() {
    const THREADS: usize = 3;
    limit(100);
    let rounds = rounds(200);
    let engine = build(Builder::new(64 << 20).arena_bytes(1 << 30));
    let core = engine.core().clone();
    let (address, round_of, finished) =
        (AtomicUsize::new(0), AtomicUsize::new(0), AtomicUsize::new(0));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            let (address, round_of, finished) = (&address, &round_of, &finished);
            scope.spawn(move || {
                for round in 1..=rounds {
                    while round_of.load(Ordering::Acquire) < round {
                        std::thread::yield_now();
                    }
                    touch(address.load(Ordering::Acquire));
                    finished.fetch_add(1, Ordering::AcqRel);
                }
            });
        }
        let (other, done) = (core.clone(), &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                let range = other.arena.allocate(64, 1).unwrap();
                (range.first..range.end()).for_each(|page| _ = touch(other.page_address(page)));
                other.drop_range(range);
                other.arena.free(range);
            }
        });
        for round in 1..=rounds {
            let range = core.arena.allocate(1024, 1).unwrap();
            // A sequential program: the windows grow, and the next one begins at `page`.
            (range.first..range.first + 512).for_each(|page| _ = touch(core.page_address(page)));
            let fresh = |page: &u32| core.pages.state(*page) == PageState::Untouched;
            let page = (range.first + 512..range.end()).find(fresh).unwrap_or(range.first);
            address.store(core.page_address(page), Ordering::Release);
            finished.store(0, Ordering::Release);
            round_of.store(round, Ordering::Release);
            while finished.load(Ordering::Acquire) < THREADS {
                std::thread::yield_now();
            }
            core.drop_range(range);
            core.arena.free(range);
        }
        done.store(true, Ordering::Relaxed);
    });
    audit(&engine);
}

#[test]
fn protecting_pages_that_fork_left_shared_while_they_leave_ends_no_program() {
    alone(100, || {
        let engine = engine(WAYS[0]);
        let region = engine.map(8 * MIB).unwrap();
        let pages = Pages::of(&region);
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let done = &done;
            scope.spawn(move || {
                while !done.load(Ordering::Relaxed) {
                    for protection in [libc::PROT_READ, libc::PROT_READ | libc::PROT_WRITE] {
                        protect(pages, protection);
                    }
                }
            });
            for _ in 0..10 {
                (0..pages.count).for_each(|page| _ = touch(pages.at(page) as usize));
                let blocked = signal::Blocked::new();
                let ticket = engine.fork_prepare();
                let child = forked();
                if child == 0 {
                    rest();
                }
                engine.fork_parent(ticket);
                drop(blocked);
                region.page_out(0..8 * MIB).unwrap();
                kill(child);
            }
            done.store(true, Ordering::Relaxed);
        });
    });
}

#[test]
fn after_a_cancelled_swapoff_the_device_is_not_taken_for_full() {
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:256M"]);
    let kept = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&kept);
    pages.fill_all(3);
    kept.page_out(0..2 * MIB).unwrap();
    let during = engine.map(20 * MIB).unwrap();
    let outcome = swapoff_with(&engine, "mem", &mut |_| {
        let pages = Pages::of(&during);
        pages.fill_all(4);
        Proceed::Cancel
    });
    assert!(outcome.is_err(), "it was cancelled");
    let before = engine.counters().budget_exceeded;
    let after = engine.map(100 * MIB).unwrap();
    let more = Pages::of(&after);
    more.fill_all(5);
    assert_eq!(engine.counters().budget_exceeded, before, "{:?}", engine.usage());
    pages.check_all(3);
    more.check_all(5);
    audit(&engine);
}

#[test]
fn a_wrong_memory_of_full_devices_passes() {
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:128M"]);
    engine.core().shortage.devices_full.store(true, Ordering::Relaxed);
    let region = engine.map(100 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    pages.check_all(3);
    assert_eq!(engine.counters().budget_exceeded, 0, "{:?}", engine.usage());
    audit(&engine);
}

/// Dropping a lost page takes its poison off; a run of zeros beside it must not get there first.
#[test]
fn a_lost_page_is_dropped_beside_a_growing_run() {
    limit(100);
    let engine = engine(WAYS[0]);
    let core = engine.core().clone();
    let range = core.arena.allocate(64, 1).unwrap();
    let lost = range.first + 20;
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let (other, done) = (core.clone(), &done);
        scope.spawn(move || {
            while !done.load(Ordering::Relaxed) {
                (range.first..lost).for_each(|page| _ = touch(other.page_address(page)));
                other.drop_range(PageRange { first: range.first, count: 20 });
            }
        });
        for _ in 0..rounds(10_000) {
            if core.pages.change(lost, PageState::Untouched, PageState::Filling { slot: None }) {
                core.poison(lost);
                core.publish(lost, PageState::Lost);
            }
            core.drop_range(PageRange { first: lost, count: 1 });
        }
        done.store(true, Ordering::Relaxed);
    });
    core.drop_range(range);
    core.arena.free(range);
    audit(&engine);
}

#[test]
fn pages_taken_away_past_us_read_as_zeros() {
    for way in ways() {
        limit(20);
        let engine = engine(way);
        let region = engine.map(4 * MIB).unwrap();
        let pages = Pages::of(&region);
        (0..4).for_each(|page| pages.fill(page, 1));
        drop_raw(&pages, 1, 1);
        pages.check(1, 0);
        [0, 2, 3].into_iter().for_each(|page| pages.check(page, 1));
        audit(&engine);
    }
}

/// swapoff takes slots from pages that reclaim is about to take: they must be found again.
#[test]
fn pages_whose_slot_goes_while_they_are_isolated_stay_on_a_list() {
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:256M", "mem:257M"]);
    let region = engine.map(48 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(7);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let done = &done;
        scope.spawn(move || {
            let mut random = Random::new(99);
            while !done.load(Ordering::Relaxed) {
                pages.check(random.below(pages.count), 7);
            }
        });
        for _ in 0..8 {
            let device = engine.core().devices.list().next().unwrap();
            let name = device.label().unwrap().name.clone();
            swapoff(&engine, &name).unwrap();
            swapon(&engine, "mem:256M").unwrap();
        }
        done.store(true, Ordering::Relaxed);
    });
    audit(&engine);
}

/// A late message makes the server look after a page for a moment: pins that go meanwhile are gone.
#[test]
fn a_pin_taken_off_while_a_late_message_is_answered_is_off() {
    const THREADS: usize = 3;
    limit(100);
    let rounds = rounds(1500);
    let engine = build(Builder::new(64 << 20).arena_bytes(1 << 30));
    let core = engine.core().clone();
    let range = core.arena.allocate(1, 1).unwrap();
    let address = core.page_address(range.first);
    let (begin, end) = (Barrier::new(THREADS + 1), Barrier::new(THREADS + 1));
    let mut wrong = Vec::new();
    std::thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for _ in 0..rounds {
                    begin.wait();
                    touch(address);
                    end.wait();
                }
            });
        }
        for round in 0..rounds {
            begin.wait();
            core.pin_range(range).unwrap();
            core.unpin_range(range);
            end.wait();
            core.pages.wait_owned(range.first);
            let state = core.pages.state(range.first);
            let is_free =
                matches!(state, PageState::Resident { pins: 0, .. } | PageState::Leaving { .. });
            wrong.extend((!is_free).then_some((round, state)));
            core.drop_range(range);
        }
    });
    assert_eq!(wrong, []);
    core.arena.free(range);
    audit(&engine);
}
