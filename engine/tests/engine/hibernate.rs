//! Parking a program: everything out and its memory with it, and everything back.
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::{Builder, Engine, Stayed};

const NOTHING: Stayed = Stayed { pinned: 0, others: 0 };

fn engine_with(way: Way, ram_mib: usize, swap: &str) -> Engine {
    let builder = Builder::new((ram_mib * MIB) as u64).arena_bytes(1 << 30);
    build(with_swap(builder.fault(way.0).transfer(way.1), &[swap]))
}

/// The process's own memory in bytes, as the kernel counts it.
fn memory() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

#[test]
fn the_memory_of_a_parked_program_goes_back_to_the_kernel() {
    alone(60, || {
        for way in ways() {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let engine = engine_with(way, 64, &format!("{}:256M", directory.path().display()));
            let region = engine.map(90 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(3);
            let before = memory();
            assert_eq!(engine.page_out_all(), NOTHING);
            let after = memory();
            assert!(before > 60 * MIB && after < before - 55 * MIB, "{way:?}: {before} {after}");
            let usage = engine.usage();
            assert_eq!((usage.resident, usage.cached, usage.free), (0, 0, 0));
            assert_eq!((usage.spare, usage.debt), (usage.budget, 0));
            audit(&engine);
            // Parked twice is parked.
            assert_eq!(engine.page_out_all(), NOTHING);
            pages.check_all(3);
            pages.fill_all(4);
            assert_eq!(engine.page_out_all(), NOTHING);
            assert!(memory() < before - 55 * MIB);
            pages.check_all(4);
            audit(&engine);
        }
    });
}

#[test]
fn everything_comes_back_as_far_as_ram_has_room() {
    for way in ways() {
        limit(60);
        let engine = engine_with(way, 32, "mem:128M");
        let (small, large) = (engine.map(16 * MIB).unwrap(), engine.map(40 * MIB).unwrap());
        let (small, large) = (Pages::of(&small), Pages::of(&large));
        small.fill_all(5);
        assert_eq!(engine.page_out_all(), NOTHING);
        let before = engine.counters();
        engine.prefetch_all().unwrap();
        assert_eq!(engine.usage().resident as usize, small.count);
        small.check_all(5);
        let after = engine.counters();
        assert_eq!(after.pswpin - before.pswpin, small.count as u64);
        assert_eq!(after.pgfault, before.pgfault, "nothing is left to fault for");
        // Unchanged they leave without a write, as they have kept their slots.
        assert_eq!(engine.page_out_all(), NOTHING);
        assert_eq!(engine.counters().pswpout, before.pswpout);
        large.fill_all(6);
        assert_eq!(engine.page_out_all(), NOTHING);
        engine.prefetch_all().unwrap();
        let usage = engine.usage();
        let room = 32 * MIB / PAGE;
        assert!((room * 8 / 10..room).contains(&(usage.resident as usize)), "{usage:?}");
        assert_eq!(engine.counters().budget_exceeded, 0);
        audit(&engine);
        small.check_all(5);
        large.check_all(6);
        audit(&engine);
    }
}

#[test]
fn pinned_pages_stay_and_are_counted() {
    limit(30);
    let engine = engine_with(WAYS[0], 32, "mem:64M");
    let region = engine.map(8 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    region.pin(MIB..2 * MIB).unwrap();
    assert_eq!(engine.page_out_all(), Stayed { pinned: 256, others: 0 });
    assert_eq!(engine.usage().resident, 256);
    pages.check_all(3);
    region.unpin(MIB..2 * MIB).unwrap();
    assert_eq!(engine.page_out_all(), NOTHING);
    pages.check_all(3);
    audit(&engine);
}

#[test]
fn what_no_device_has_room_for_stays() {
    limit(30);
    let engine = engine_with(WAYS[0], 32, "mem:4M");
    let region = engine.map(16 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    let stayed = engine.page_out_all();
    let expected = (12 * MIB / PAGE + 1) as u32;
    assert_eq!(stayed, Stayed { pinned: 0, others: expected });
    pages.check_all(3);
    assert_eq!(engine.counters().budget_exceeded, 0);
    audit(&engine);
}

/// Programs do not hold still for it.
#[test]
fn parking_a_busy_program_again_and_again_loses_nothing() {
    for way in ways() {
        limit(60);
        let engine = engine_with(way, 16, "mem:64M");
        let region = engine.map(24 * MIB).unwrap();
        let pages = Pages::of(&region);
        let seed = seed();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|task| {
                    scope.spawn(move || {
                        let mut random = Random::new(seed + task as u64);
                        let own = pages.count / 3;
                        let mut stamps = vec![0; own];
                        for step in 1..rounds(1500) {
                            let index = random.below(own);
                            pages.check(task * own + index, stamps[index]);
                            stamps[index] = step;
                            pages.fill(task * own + index, step);
                        }
                        (0..own).for_each(|index| pages.check(task * own + index, stamps[index]));
                    })
                })
                .collect();
            while workers.iter().any(|worker| !worker.is_finished()) {
                engine.page_out_all();
                engine.prefetch_all().unwrap();
            }
        });
        let counters = engine.counters();
        assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
        audit(&engine);
        drop(region);
        assert_eq!(engine.usage().slots_used, 0);
    }
}

/// Frames whose memory is just given back belong to no node: none may miss them.
#[test]
fn parking_where_devices_are_full_exceeds_no_budget() {
    for way in ways() {
        limit(60);
        let engine = engine_with(way, 32, "mem:4M");
        let region = engine.map(30 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        assert_eq!(engine.counters().budget_exceeded, 0, "there is room for all of it");
        let (done, seed) = (AtomicBool::new(false), seed());
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(seed);
                while !done.load(Ordering::Relaxed) {
                    pages.check(random.below(pages.count), 3);
                }
            });
            (0..rounds(30)).for_each(|_| _ = engine.page_out_all());
            done.store(true, Ordering::Relaxed);
        });
        assert_eq!(engine.counters().budget_exceeded, 0, "{way:?}");
        pages.check_all(3);
        audit(&engine);
    }
}
