//! Compressed memory as a device: pages of every kind, beside other devices, across fork, and what it is charged.
use crate::support::*;
use std::sync::Barrier;
use userswap::{Builder, Engine, Error};

/// Both algorithms, in pages far more than the budget holds at once.
const SWAPS: [&str; 2] = ["zram:64M", "zram:64M,algo=zstd"];

/// What a page is filled with: of five kinds, by its number and a stamp.
fn word_of(stamp: u64, page: usize, index: usize) -> u64 {
    let value = word(stamp, page, 0);
    match (page + stamp as usize) % 5 {
        0 => 0,
        1 => value,
        // Like text: of few letters, and the same words come again.
        2 => u64::from_ne_bytes(*b"of pages") ^ (value >> (index * 7 % 5 * 8) & 0x0f0f),
        3 => word(stamp, page, index),
        _ if index.is_multiple_of(4) => word(stamp, page, index),
        _ => index as u64 / 16,
    }
}

pub fn fill(pages: Pages, page: usize, stamp: u64) {
    pages.fill_with(page, |index| word_of(stamp, page, index));
}

pub fn check(pages: Pages, page: usize, stamp: u64) {
    let wrong = pages.wrong_word(page, |index| word_of(stamp, page, index));
    assert_eq!(wrong, None, "of stamp {stamp}");
}

pub fn all(pages: Pages, stamp: u64, act: fn(Pages, usize, u64)) {
    (0..pages.count).for_each(|page| act(pages, page, stamp));
}

/// What is stored on the device with this name, when no freed slot waits in a buffer.
pub fn stored(engine: &Engine, name: &str) -> Stored {
    empty_buffers(engine);
    let is_named = |device: &&Device| device.label().is_some_and(|label| label.name == name);
    let device = engine.core().devices.list().find(is_named).unwrap();
    device.stored().unwrap()
}

fn empty_buffers(engine: &Engine) {
    engine.core().devices.set_mode(engine.core().devices.mode());
}

pub fn used(engine: &Engine, device: usize) -> u32 {
    empty_buffers(engine);
    engine.core().devices.list().nth(device).unwrap().used()
}

#[test]
fn pages_of_every_kind_come_back_as_they_were() {
    limit(60);
    for way in ways() {
        for swap in SWAPS {
            let engine = engine_on(way, &[swap]);
            let region = engine.map(16 * MIB).unwrap();
            let pages = Pages::of(&region);
            for stamp in [1, 2] {
                all(pages, stamp, fill);
                all(pages, stamp, check);
            }
            let count = pages.count as u64;
            // Some may be on their way by the background reclaimer, or back.
            eventually("all pages but those of zeros are stored", || {
                region.page_out(0..region.len()).unwrap();
                stored(&engine, "zram").pages.abs_diff(count * 4 / 5) <= 2
            });
            let now = stored(&engine, "zram");
            assert!(now.same_pages > count / 6 && now.huge_pages > count / 6, "{now:?}");
            let others = (now.pages - now.same_pages - now.huge_pages) * PAGE as u64;
            let compressed = now.compressed_bytes - now.huge_pages * PAGE as u64;
            assert!(compressed * 10 < others * 6, "{now:?}");
            assert!(
                now.slab_bytes < now.compressed_bytes + now.compressed_bytes / 12 + (4 << 20),
                "{now:?}"
            );
            audit(&engine);
            all(pages, 2, check);
            let counters = engine.counters();
            assert!(counters.zswpin > 0 && counters.zswpin <= counters.pswpin);
            assert!(counters.zswpout >= now.pages && counters.zswpout <= counters.pswpout);
            assert_eq!((counters.pages_lost, counters.swap_read_errors), (0, 0));
            assert_eq!(counters.budget_exceeded, 0);
            drop(region);
            audit(&engine);
            assert_eq!((stored(&engine, "zram").pages, used(&engine, 0)), (0, 0));
            // What was still in buffers is accounted for with the next that is dropped.
            drop(engine.map(PAGE).unwrap());
            assert!(engine.usage().compressed <= 256, "{:?}", engine.usage());
        }
    }
}

#[test]
fn threads_that_read_and_write_see_their_own_pages_only() {
    const THREADS: usize = 4;
    limit(60);
    for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
        let engine = engine_on(way, &[swap]);
        let region = engine.map(18 * MIB).unwrap();
        let pages = Pages::of(&region);
        let start = Barrier::new(THREADS);
        let seed = seed();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let start = &start;
                scope.spawn(move || {
                    let own: Vec<usize> = (thread..pages.count).step_by(THREADS).collect();
                    let mut stamps = vec![0; own.len()];
                    let mut random = Random::new(seed + thread as u64);
                    start.wait();
                    for _ in 0..rounds(6000usize) {
                        let index = random.below(own.len());
                        if stamps[index] != 0 {
                            check(pages, own[index], stamps[index]);
                        }
                        if random.below(3) > 0 {
                            stamps[index] = 1 + random.below(1000) as u64;
                            fill(pages, own[index], stamps[index]);
                        }
                    }
                    for (page, stamp) in own.iter().zip(&stamps).filter(|(_, stamp)| **stamp != 0) {
                        check(pages, *page, *stamp);
                    }
                });
            }
        });
        let counters = engine.counters();
        assert!(counters.zswpin > 0 && counters.zswpout > 0 && counters.pages_lost == 0);
        assert_eq!(counters.budget_exceeded, 0);
        audit(&engine);
    }
}

#[test]
fn memory_of_pages_that_went_here_and_there_comes_back_while_the_reclaimer_works() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:128M"]);
        let mut region = engine.map(14 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 3, fill);
        region.page_out(0..region.len()).unwrap();
        let before = stored(&engine, "zram");
        let is_kept = |page: &usize| (page / 5).is_multiple_of(4);
        for page in (0..pages.count).filter(|page| !is_kept(page)) {
            region.discard(page * PAGE..(page + 1) * PAGE).unwrap();
        }
        let scattered = stored(&engine, "zram");
        assert!(
            scattered.compressed_bytes * 3 < before.compressed_bytes,
            "{before:?} {scattered:?}"
        );
        let others = engine.map(20 * MIB).unwrap();
        let same = Pages::of(&others);
        let mut round = 0;
        eventually("slabs are full again", || {
            round += 1;
            // Of one value each: they pass through the reclaimer, and take no slab.
            (0..same.count).for_each(|page| {
                same.fill_with(page, |_| (page + round) as u64);
            });
            let now = stored(&engine, "zram");
            // Each class has a slab that is not full; scattered over all slabs it were twice as much.
            now.slab_bytes < now.compressed_bytes + now.compressed_bytes / 4 + (3 << 19)
        });
        (0..pages.count).filter(is_kept).for_each(|page| check(pages, page, 3));
        audit(&engine);
        assert_eq!(engine.counters().budget_exceeded, 0);
    }
}

#[test]
fn what_compressed_memory_has_no_room_for_goes_to_the_next_device() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:128M,pri=1", "mem:128M"]);
        let (region, pages) = paged_out(&engine, 36 * MIB / PAGE, 7);
        let now = stored(&engine, "zram");
        let budget = u64::from(engine.usage().budget) * PAGE as u64;
        assert!(now.huge_pages > 0 && now.slab_bytes <= budget * 3 / 4, "{now:?}");
        assert!(used(&engine, 1) > 0, "the rest is on the next device");
        eventually("no page is on its way from one to the other", || {
            u64::from(used(&engine, 0)) == stored(&engine, "zram").pages
        });
        // A device that has no memory for what it was made for does not make the other one full.
        assert!(!engine.core().devices.is_crowded(), "{:?}", engine.core().devices.room());
        pages.check_all(7);
        audit(&engine);
        assert_eq!(engine.counters().budget_exceeded, 0);
        // What is freed there is used again, first.
        drop(region);
        eventually("nothing is left", || (used(&engine, 0), used(&engine, 1)) == (0, 0));
        let (_region, pages) = paged_out(&engine, 4 * MIB / PAGE, 8);
        assert_eq!((used(&engine, 1), used(&engine, 0)), (0, pages.count as u32));
        pages.check_all(8);
        audit(&engine);
    }
}

#[test]
fn without_another_device_the_budget_is_exceeded_and_no_page_lost() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:128M"]);
        let mut region = engine.map(24 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(9);
        pages.check_all(9);
        assert!(engine.counters().budget_exceeded > 0);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
        // With room again reclaim goes on, and the debt is paid.
        region.discard(0..16 * MIB).unwrap();
        let rest = Pages { address: pages.address + 16 * MIB, count: 8 * MIB / PAGE };
        (0..rest.count).for_each(|page| pages.check(page + 16 * MIB / PAGE, 9));
        eventually("the debt is paid", || engine.usage().debt == 0);
        audit(&engine);
    }
}

#[test]
fn a_budget_that_grows_or_shrinks_takes_compressed_memory_along() {
    limit(60);
    let way = WAYS[0];
    let engine = engine_on(way, &["zram:128M,pri=1", "mem:128M"]);
    let (region, pages) = paged_out(&engine, 36 * MIB / PAGE, 3);
    let before = stored(&engine, "zram").pages;
    engine.set_budget(48 << 20).unwrap();
    pages.fill_all(4);
    region.page_out(0..region.len()).unwrap();
    let after = stored(&engine, "zram").pages;
    assert!(after > before + 1000, "{before} {after}");
    pages.check_all(4);
    audit(&engine);
    // What it leaves no room for moves on.
    engine.set_budget(24 << 20).unwrap();
    assert!(stored(&engine, "zram").pages < after - 1000);
    pages.check_all(4);
    audit(&engine);
    drop(region);
    let (_region, pages) = paged_out(&engine, 36 * MIB / PAGE, 5);
    pages.check_all(5);
    audit(&engine);
}

#[test]
fn a_budget_below_what_is_compressed_is_refused_where_it_cannot_move_on() {
    limit(60);
    let builder = Builder::new(48 << 20).arena_bytes(1 << 30);
    let engine = build(with_swap(builder, &["zram:128M"]));
    let (_region, pages) = paged_out(&engine, 30 * MIB / PAGE, 3);
    let refused = engine.set_budget(20 << 20);
    assert!(matches!(refused, Err(Error::BudgetStored(..))), "{refused:?}");
    pages.check_all(3);
    audit(&engine);
}

#[test]
fn pins_beside_compressed_memory_leave_room_for_the_program() {
    alone(60, || {
        for way in ways() {
            let stops = builder(way).on_full(OnFull::Stop);
            let engine = build(with_swap(stops, &["zram:128M,pri=10", "mem:128M"]));
            let (region, pages) = paged_out(&engine, 36 * MIB / PAGE, 3);
            let stored_pages = engine.usage().compressed;
            // Enough that so many pins have no room beside them.
            assert!(stored_pages > 1100, "{stored_pages}");
            let refused = region.pin(0..10 * MIB);
            // Whatever it answers, the program goes on.
            pages.check_all(3);
            pages.fill_all(4);
            pages.check_all(4);
            assert!(matches!(refused, Err(Error::PinTooLarge(..))), "{refused:?}");
            region.pin(0..5 * MIB).unwrap();
            pages.fill_all(5);
            pages.check_all(5);
            audit(&engine);
            region.unpin(0..5 * MIB).unwrap();
            drop(region);
            // What is pinned first cannot be had for compressed pages.
            let pinned = engine.map(10 * MIB).unwrap();
            pinned.pin(0..pinned.len()).unwrap();
            let (_region, pages) = paged_out(&engine, 36 * MIB / PAGE, 6);
            // Looked at before they come back, which leaves no copy there.
            assert!(used(&engine, 0) > 0, "some of it can");
            pages.check_all(6);
            let left = engine.usage().budget - (10 * MIB / PAGE) as u32;
            assert!(engine.usage().compressed <= left / 4 * 3, "{:?}", engine.usage());
            audit(&engine);
        }
    });
}

#[test]
fn a_device_that_had_no_memory_is_asked_again_when_the_budget_has_grown() {
    alone(60, || {
        for way in ways() {
            let stops = builder(way).on_full(OnFull::Stop);
            let engine = build(with_swap(stops, &["zram:128M"]));
            let region = engine.map(14 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(1);
            let _ = region.page_out(0..region.len());
            assert_eq!(engine.core().devices.room().free, 0, "it has no memory");
            engine.set_budget(32 << 20).unwrap();
            // Of one value each: they need a promise, and no memory.
            let more = engine.map(40 * MIB).unwrap();
            let same = Pages::of(&more);
            let fill = |page| same.fill_with(page, |_| page as u64);
            (0..same.count).for_each(fill);
            for page in 0..same.count {
                assert_eq!(same.wrong_word(page, |_| page as u64), None);
            }
            pages.check_all(1);
            assert!(stored(&engine, "zram").same_pages > 1000);
            assert_eq!(engine.counters().budget_exceeded, 0);
            audit(&engine);
        }
    });
}

#[test]
fn a_swapoff_takes_every_page_along_and_gives_the_memory_back() {
    limit(60);
    for way in ways() {
        for swap in SWAPS {
            let engine = engine_on(way, &[swap]);
            let region = engine.map(16 * MIB).unwrap();
            let pages = Pages::of(&region);
            all(pages, 5, fill);
            region.page_out(0..region.len()).unwrap();
            assert!(engine.usage().compressed > 0);
            swapon(&engine, "mem:64M").unwrap();
            swapoff(&engine, "zram").unwrap();
            all(pages, 5, check);
            audit(&engine);
            assert_eq!(engine.usage().compressed, 0);
            swapon(&engine, "zram:64M,pri=7").unwrap();
            all(pages, 6, fill);
            region.page_out(0..region.len()).unwrap();
            assert!(stored(&engine, "zram").pages > 0);
            all(pages, 6, check);
            audit(&engine);
        }
    }
}

#[test]
fn a_child_has_every_page_while_both_sides_write() {
    alone(60, || {
        for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
            let engine = engine_on(way, &[swap]);
            let region = engine.map(16 * MIB).unwrap();
            let pages = Pages::of(&region);
            all(pages, 1, fill);
            region.page_out(0..8 * MIB).unwrap();
            let side = |first: u64| {
                for stamp in [first, first + 1] {
                    for page in 0..pages.count {
                        // Every third stays as it was before the fork.
                        let before = if stamp == first || page % 3 == 0 { 1 } else { first };
                        check(pages, page, before);
                        if page % 3 != 0 {
                            fill(pages, page, stamp);
                        }
                    }
                }
                (0..pages.count).for_each(|page| {
                    check(pages, page, if page % 3 == 0 { 1 } else { first + 1 });
                });
                audit(&engine);
            };
            let child = fork(&engine, || {
                assert_eq!(used(&engine, 0) as u64, stored(&engine, "zram").pages);
                let grandchild = fork(&engine, || side(30));
                side(20);
                join(grandchild);
                assert_eq!(engine.core().devices.list().count(), 1);
            });
            side(10);
            join(child);
            assert_eq!(engine.counters().fork_slots_copied, 0);
            all(pages, 1, |pages, page, stamp| {
                check(pages, page, if page % 3 == 0 { stamp } else { 11 });
            });
        }
    });
}

#[test]
fn a_parked_program_keeps_compressed_pages_only() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:64M"]);
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 3, fill);
        // Some may be on their way by the background reclaimer.
        eventually("nothing but compressed pages is kept", || {
            let stayed = engine.page_out_all();
            let usage = engine.usage();
            (stayed.pinned, stayed.others) == (0, 0)
                && (usage.resident, usage.cached, usage.free, usage.debt) == (0, 0, 0, 0)
                && usage.spare + usage.compressed == usage.budget
        });
        all(pages, 3, check);
        audit(&engine);
    }
}

#[test]
fn a_page_that_is_damaged_in_memory_is_lost_and_never_wrong() {
    alone(40, || {
        for way in ways() {
            for algorithm in ["lz4", "zstd"] {
                let swap = format!("faulty:zram:64M,algo={algorithm},torn=1,seed=3");
                let engine = engine_on(way, &[&swap]);
                let region = engine.map(2 * MIB).unwrap();
                let pages = Pages::of(&region);
                all(pages, 3, fill);
                region.page_out(0..region.len()).unwrap();
                engine.page_out_all();
                // Half of what was written is not there.
                let lost = (0..pages.count).filter(|page| is_lost(pages, *page)).count();
                assert!(lost > 0 && lost < pages.count, "{lost}");
                assert_eq!(engine.counters().pages_lost as usize, lost);
            }
        }
    });
}

/// Threads of the standard library have an alternate stack of SIGSTKSZ, and a guard page below it.
#[test]
fn a_signal_handler_compresses_on_the_smallest_stack() {
    const THREADS: usize = 4;
    limit(60);
    for way in [WAYS[1], WAYS[3]] {
        let engine = engine_on(way, &["zram:64M,algo=zstd,level=12"]);
        let region = engine.map(18 * MIB).unwrap();
        let pages = Pages::of(&region);
        let mut stamp = 1;
        // Until faults have written out themselves.
        while engine.counters().pgsteal_direct == 0 {
            std::thread::scope(|scope| {
                for thread in 0..THREADS {
                    scope.spawn(move || {
                        let own = || (thread..pages.count).step_by(THREADS);
                        own().for_each(|page| fill(pages, page, stamp));
                        own().for_each(|page| check(pages, page, stamp));
                    });
                }
            });
            stamp += 1;
        }
        assert!(engine.counters().zswpin > 0 && engine.counters().zswpout > 0);
        audit(&engine);
    }
}
