//! Pages move on from compressed memory to the devices behind it: the oldest, while everything else goes on, and none is
//! lost or changed by it.
use crate::packs::packed;
use crate::support::*;
use crate::zram::{all, check, fill, stored, used};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use userswap::Engine;

/// More than the budget of 16 MiB leaves to compressed pages, with another device behind it.
pub const SWAPS: [&[&str]; 2] =
    [&["zram:128M,pri=9", "mem:128M"], &["zram:128M,pri=9,algo=zstd", "mem:128M,encrypt"]];

/// Pages of these that are on a compressed device.
pub fn compressed(engine: &Engine, pages: Pages) -> usize {
    let core = engine.core();
    let is_compressed = |page: &usize| {
        let range = core.range_at(pages.at(*page) as usize, PAGE);
        match core.pages.state(range.first) {
            PageState::Swapped { slot } => core.devices.device_of(slot).is_compressed(),
            _ => false,
        }
    };
    (0..pages.count).filter(is_compressed).count()
}

pub fn moved(engine: &Engine) -> u64 {
    engine.counters().zswpwb
}

pub fn assert_nothing_lost(engine: &Engine) {
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
    audit(engine);
}

#[test]
fn pages_that_are_not_used_make_room_for_those_that_are() {
    limit(60);
    let mut past = 0;
    // Often enough that there is not always room.
    for way in WAYS {
        for swap in SWAPS {
            let engine = engine_on(way, swap);
            // What does not compress: 1,280 pages, of the 2,048 that there is room for.
            let cold = engine.map(5 * MIB).unwrap();
            let cold = Pages::of(&cold);
            cold.fill_all(1);
            let region = engine.map(22 * MIB).unwrap();
            let hot = Pages::of(&region);
            let mut stamp = 1;
            eventually("cold pages have moved on", || {
                stamp += 1;
                hot.fill_all(stamp);
                hot.check_all(stamp);
                moved(&engine) > 0 && compressed(&engine, cold) == 0
            });
            // Those in RAM have no copy there.
            region.page_out(0..region.len()).unwrap();
            let there = stored(&engine, "zram").pages;
            assert!(there > 500, "{way:?} {swap:?}: hot ones are there in their place: {there}");
            eventually("what went past compressed memory is counted", || {
                let counters = engine.counters();
                let compressed = counters.zswpout + counters.zswpwb;
                counters.pswpout == compressed + counters.zswp_rejected
            });
            past += engine.counters().zswp_rejected;
            cold.check_all(1);
            hot.check_all(stamp);
            assert_nothing_lost(&engine);
        }
    }
    assert!(past > 0, "there was not always room");
}

/// Checks a page, and drops it, fills it or leaves it; returns its stamp then, 0 for one that holds nothing.
fn use_page(
    engine: &Engine,
    pages: Pages,
    (page, stamp): (usize, u64),
    random: &mut Random,
) -> u64 {
    check_stamped(pages, page, stamp);
    match random.below(8) {
        0 => {
            let address = pages.at(page) as usize;
            engine.core().drop_range(engine.core().range_at(address, PAGE));
            0
        }
        1..5 => {
            let stamp = 1 + random.below(1000) as u64;
            fill(pages, page, stamp);
            stamp
        }
        _ => stamp,
    }
}

fn check_stamped(pages: Pages, page: usize, stamp: u64) {
    match stamp {
        0 => assert_eq!(pages.read(page, 7), 0, "page {page} was dropped"),
        stamp => check(pages, page, stamp),
    }
}

/// Threads that each own a part of all pages use them at random, until `others` has ended; then all pages are right.
pub fn use_while(engine: &Engine, pages: Pages, steps: usize, others: impl FnOnce()) {
    const THREADS: usize = 3;
    let (seed, done) = (seed(), &AtomicBool::new(false));
    let work = &|thread: usize| {
        let own: Vec<usize> = (thread..pages.count).step_by(THREADS).collect();
        let mut stamps = vec![0; own.len()];
        let mut random = Random::new(seed + thread as u64);
        let mut step = 0;
        while step < steps || !done.load(Ordering::Relaxed) {
            step += 1;
            let index = random.below(own.len());
            stamps[index] = use_page(engine, pages, (own[index], stamps[index]), &mut random);
        }
        own.iter().zip(&stamps).for_each(|(page, stamp)| check_stamped(pages, *page, *stamp));
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..THREADS).map(|thread| scope.spawn(move || work(thread))).collect();
        others();
        done.store(true, Ordering::Relaxed);
        workers.into_iter().for_each(|worker| worker.join().unwrap());
    });
    assert_nothing_lost(engine);
}

#[test]
fn threads_see_their_own_pages_only_while_others_move_on() {
    limit(60);
    for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
        let engine = engine_on(way, swap);
        let region = engine.map(48 * MIB).unwrap();
        let mut random = Random::new(seed());
        use_while(&engine, Pages::of(&region), 4_000, || {
            let before = moved(&engine);
            // Whatever reclaim does not bring there by itself.
            eventually("pages have moved on", || {
                let first = random.below(40 * MIB / PAGE) * PAGE;
                region.page_out(first..first + 4 * MIB).unwrap();
                moved(&engine) > before + 2500
            });
        });
        assert!(packed(&engine, 1).0 > 200, "{:?}", packed(&engine, 1));
        drop(region);
        assert_nothing_lost(&engine);
        assert_eq!((used(&engine, 0), used(&engine, 1)), (0, 0));
    }
}

#[test]
fn either_device_can_leave_while_pages_move_on() {
    limit(60);
    for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
        let engine = engine_on(way, swap);
        let region = engine.map(40 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 2000, || {
            for _ in 0..rounds(1) {
                for spec in swap {
                    let before = moved(&engine);
                    eventually("pages have moved on", || {
                        region.page_out(0..region.len()).unwrap();
                        moved(&engine) > before + 500
                    });
                    swapon(&engine, "mem:128M").unwrap();
                    let name = spec.split(':').next().unwrap();
                    swapoff(&engine, name).unwrap();
                    swapon(&engine, spec).unwrap();
                    swapoff(&engine, "mem#2").unwrap();
                }
            }
        });
    }
}

#[test]
fn both_sides_of_a_fork_have_every_page_while_others_move_on() {
    alone(60, || {
        for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
            let engine = engine_on(way, swap);
            let region = engine.map(30 * MIB).unwrap();
            let pages = Pages::of(&region);
            all(pages, 1, fill);
            let side = |stamp: u64| {
                let before = moved(&engine);
                for page in 0..pages.count {
                    check(pages, page, 1);
                    // Every third stays as it was before the fork.
                    if !page.is_multiple_of(3) {
                        fill(pages, page, stamp);
                    }
                }
                eventually("pages move on here as well", || {
                    let after = |page: usize| if page.is_multiple_of(3) { 1 } else { stamp };
                    (0..pages.count).for_each(|page| check(pages, page, after(page)));
                    let more = engine.map(6 * MIB).unwrap();
                    Pages::of(&more).fill_all(stamp);
                    more.page_out(0..more.len()).unwrap();
                    moved(&engine) > before
                });
                let packed =
                    (0..engine.core().devices.list().count()).map(|of| packed(&engine, of));
                assert!(packed.map(|(pages, _)| pages).sum::<u32>() > 50);
                assert_nothing_lost(&engine);
            };
            region.page_out(0..region.len()).unwrap();
            let child = fork(&engine, || {
                let grandchild = fork(&engine, || side(30));
                side(20);
                join(grandchild);
            });
            side(10);
            join(child);
        }
    });
}

#[test]
fn a_parked_program_keeps_nothing_compressed_that_another_device_has_room_for() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, SWAPS[0]);
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 5, fill);
        engine.page_out_all();
        assert_eq!(stored(&engine, "zram").pages, 0);
        // Slabs that stay for the next pages are a mebibyte.
        assert!(engine.usage().compressed <= 256, "{:?}", engine.usage());
        assert_nothing_lost(&engine);
        all(pages, 5, check);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn with_no_room_behind_pages_stay_where_they_are() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:128M,pri=9", "mem:4M"]);
        let (region, pages) = paged_out(&engine, 15 * MIB / PAGE, 4);
        for stamp in 5..8 {
            pages.check_all(stamp - 1);
            pages.fill_all(stamp);
            let _ = region.page_out(0..region.len());
        }
        engine.page_out_all();
        pages.check_all(7);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}

#[test]
fn what_the_next_device_refuses_stays_compressed() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, SWAPS[0]);
        refuse_writes(&engine, 1);
        let region = engine.map(16 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 3, fill);
        region.page_out(0..6 * MIB).unwrap();
        let before = stored(&engine, "zram").pages;
        assert!(before > 500);
        engine.page_out_all();
        let counters = engine.counters();
        assert!(counters.swap_write_errors > 0 && counters.swap_bad_slots > 0);
        assert_eq!(counters.zswpwb, 0);
        assert!(stored(&engine, "zram").pages >= before);
        all(pages, 3, check);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}

#[test]
fn requests_of_the_next_device_that_fail_now_and_then_cost_no_page() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:128M,pri=9", "faulty:mem:128M,write=0.05,seed=5"]);
        let region = engine.map(40 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 3000, || {
            eventually("pages have moved on", || {
                region.page_out(0..region.len()).unwrap();
                moved(&engine) > 2000
            });
        });
    }
}

/// A fork waits for whoever moves pages on.
#[test]
fn bad_spots_of_a_device_in_front_hold_nobody_up() {
    limit(60);
    let front = "faulty:mem:24M,bad=0.02,seed=9,tier=0";
    let engine = engine_on(WAYS[0], &[front, "mem:128M,tier=1"]);
    let region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(1);
    let mut longest = Duration::ZERO;
    eventually("pages have moved on", || {
        region.page_out(0..region.len()).unwrap();
        // What a fork does first: nobody is inside then.
        let begun = Instant::now();
        engine.core().gate.close();
        engine.core().gate.open();
        longest = longest.max(begun.elapsed());
        engine.counters().swap_demoted > 1000
    });
    assert!(longest < Duration::from_secs(3), "a fork waits for {longest:?}");
    assert!(engine.counters().swap_read_errors > 0);
}

#[test]
fn pages_move_from_tier_to_tier() {
    limit(60);
    let chains: [&[&str]; 2] = [
        &["mem:128M,tier=2,pri=9", "mem:4M,tier=1", "zram:128M,tier=0"],
        &["mem:128M,tier=1,encrypt", "mem:20M,tier=0,encrypt"],
    ];
    for (way, chain) in ways().zip(chains.into_iter().cycle()) {
        let engine = engine_on(way, chain);
        let region = engine.map(60 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 4000, || {
            eventually("pages have moved on from each tier", || {
                region.page_out(0..region.len()).unwrap();
                let counters = engine.counters();
                let from_memory = chain.len() < 3 || counters.zswpwb > 800;
                from_memory && counters.swap_demoted > counters.zswpwb + 800
            });
        });
        let tier_of = |device: &Device| device.tier().unwrap();
        let tiers: Vec<u8> = engine.core().devices.list().map(tier_of).collect();
        drop(region);
        assert_nothing_lost(&engine);
        // Where there is room everywhere the lowest tier is asked.
        let (_region, pages) = paged_out(&engine, 300, 7);
        let lowest = tiers.iter().position(|tier| *tier == 0).unwrap();
        assert_eq!(used(&engine, lowest), 300);
        pages.check_all(7);
    }
}

#[test]
fn pages_that_are_read_come_back_to_a_tier_that_has_room_again() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["mem:24M,tier=0", "mem:128M,tier=1"]);
        let (first, _) = paged_out(&engine, 5500, 1);
        let (region, pages) = paged_out(&engine, 6000, 2);
        drop(first);
        let before = used(&engine, 0);
        assert!(before < 4500, "{before}");
        // Only read: they would go back to where they came from for nothing.
        pages.check_all(2);
        region.page_out(0..region.len()).unwrap();
        let (promoted, now) = (engine.counters().swap_promoted, used(&engine, 0));
        assert!(promoted > 500 && now > before + 500, "{promoted} {before} {now}");
        pages.check_all(2);
        // It is full: what comes and goes in order makes nothing move on.
        let before = engine.counters().swap_demoted;
        for _ in 0..3 {
            pages.check_all(2);
        }
        region.page_out(0..region.len()).unwrap();
        let demoted = engine.counters().swap_demoted - before;
        assert!(demoted < 1000, "{demoted}");
        drop(region);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn what_two_tiers_have_no_room_for_is_on_a_server() {
    limit(60);
    let server = Redis::start(&[]);
    for way in ways() {
        let far = server.spec("a:64M,tier=2");
        let engine = engine_on(way, &["zram:8M,tier=0", "mem:16M,tier=1", &far]);
        let (region, pages) = paged_out(&engine, 48 * MIB / PAGE, 3);
        let in_use = [0, 1, 2].map(|device| used(&engine, device));
        assert!(in_use.iter().all(|slots| *slots > 500), "{way:?}: {in_use:?}");
        assert!(server.slots() as usize >= pages.count - 24 * MIB / PAGE, "{way:?}: {in_use:?}");
        write_thirds(pages, 3);
        check_thirds(pages, 0..pages.count, 3);
        assert_nothing_lost(&engine);
        drop(region);
        let is_empty = || used(&engine, 2) == 0 && server.slots() == 0;
        eventually("what is free is deleted", is_empty);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn a_child_has_its_own_devices_in_the_tiers_of_its_parents() {
    alone(60, || {
        let engine = engine_on(WAYS[0], &["mem:20M,tier=0", "mem:128M,tier=1"]);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(1);
        region.page_out(0..region.len()).unwrap();
        eventually("pages move on", || engine.counters().swap_demoted > 0);
        let side = |stamp: u64| {
            let before = engine.counters().swap_demoted;
            pages.check_all(1);
            pages.fill_all(stamp);
            eventually("pages move on", || {
                region.page_out(0..region.len()).unwrap();
                engine.counters().swap_demoted > before
            });
            pages.check_all(stamp);
            assert_nothing_lost(&engine);
        };
        let child = fork(&engine, || side(20));
        side(10);
        join(child);
    });
}

#[test]
fn tiers_that_devices_cannot_have_together_are_refused_by_name() {
    let refusal = |swap: &[&str]| {
        let refused = with_swap(builder(WAYS[0]), swap).build();
        refused.err().expect("it is refused").to_string()
    };
    let missing = refusal(&["zram:64M,tier=0", "mem:64M"]);
    assert!(missing.starts_with("\"mem:64M\" has no tier"), "{missing}");
    let gap = refusal(&["zram:64M,tier=0", "mem:64M,tier=2"]);
    assert!(gap.contains("tier=2") && gap.contains("of tier 1"), "{gap}");
    let engine = engine_on(WAYS[0], &["mem:64M,tier=0"]);
    for (spec, named) in [("mem:64M", "has no tier"), ("mem:64M,tier=2", "of tier 1")] {
        let refused = swapon(&engine, spec).unwrap_err().to_string();
        assert!(refused.contains(named), "{refused}");
    }
    swapon(&engine, "mem:64M,tier=1").unwrap();
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    let refused = swapon(&engine, "mem:64M,tier=0").unwrap_err().to_string();
    assert!(refused.contains("leave tier= out"), "{refused}");
}

/// So few slots in front that a page is often given the one back that it had, while its copy is still being written.
#[test]
fn a_page_that_is_on_its_slot_again_with_other_content_stays_there() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:40K,pri=9", "mem:64M,latency=10000"]);
        engine.core().devices.set_mode(SlotMode::Shared);
        let region = engine.map(9 * PAGE).unwrap();
        let pages = Pages::of(&region);
        let (mut stamps, mut random) = ([0; 9], Random::new(seed()));
        eventually("many pages have moved on", || {
            let page = random.below(pages.count);
            pages.check(page, stamps[page]);
            stamps[page] += 1;
            pages.fill(page, stamps[page]);
            region.page_out(page * PAGE..(page + 1) * PAGE).unwrap();
            moved(&engine) > 300
        });
        (0..pages.count).for_each(|page| pages.check(page, stamps[page]));
        assert_nothing_lost(&engine);
    }
}
