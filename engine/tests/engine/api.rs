//! What a program can ask for, and what it may rely on: content, budget, slots and counters.
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use userswap::{Engine, Error, Snapshot};

fn resident_bytes() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * PAGE
}

fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").unwrap().count()
}

#[test]
fn slices_and_typed_views_show_the_same_bytes() {
    limit(50);
    let engine = engine(WAYS[0]);
    let mut region = engine.map(10_001).unwrap();
    assert_eq!((region.len(), region.is_empty()), (10_001, false));
    assert!(region.as_slice().iter().all(|byte| *byte == 0));
    assert_eq!(region.as_typed::<u64>().len(), 1250);
    region.as_typed_mut::<u32>()[1] = 0x0403_0201;
    assert_eq!(region.as_slice()[4..8], [1, 2, 3, 4]);
    region.as_mut_slice()[10_000] = 9;
    region.page_out(0..10_001).unwrap();
    assert_eq!((region.as_slice()[10_000], region.as_slice()[5]), (9, 2));
    let empty = engine.map(0).unwrap();
    assert!(empty.is_empty() && empty.as_slice().is_empty());
    audit(&engine);
}

#[test]
fn ranges_outside_a_region_are_refused() {
    limit(50);
    let engine = engine(WAYS[0]);
    let mut region = engine.map(3 * PAGE).unwrap();
    let end = region.len();
    #[expect(clippy::reversed_empty_ranges, reason = "a program may get this wrong")]
    for wrong in [0..end + 1, end + 1..end + 1, 2..1, usize::MAX - 1..usize::MAX] {
        assert!(matches!(region.discard(wrong.clone()), Err(Error::OutOfRange(..))), "{wrong:?}");
        assert!(matches!(region.prefetch(wrong.clone()), Err(Error::OutOfRange(..))), "{wrong:?}");
        assert!(matches!(region.page_out(wrong.clone()), Err(Error::OutOfRange(..))), "{wrong:?}");
        assert!(matches!(region.pin(wrong.clone()), Err(Error::OutOfRange(..))), "{wrong:?}");
        assert!(matches!(region.unpin(wrong.clone()), Err(Error::OutOfRange(..))), "{wrong:?}");
    }
    assert!(matches!(engine.map(2 << 30), Err(Error::ArenaFull(_))));
}

#[test]
fn whole_pages_are_discarded_and_partial_ones_kept() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let seed = seed();
        let mut random = Random::new(seed);
        let mut region = engine.map(5 * PAGE + 100).unwrap();
        let length = region.len();
        for _ in 0..rounds(100) {
            region.as_mut_slice().fill(7);
            if random.below(2) == 0 {
                region.page_out(0..length).unwrap();
            }
            let first = random.below(length + 1);
            let bytes = first..first + random.below(length + 1 - first);
            region.discard(bytes.clone()).unwrap();
            for index in 0..length {
                let page = index / PAGE;
                let whole = page * PAGE..((page + 1) * PAGE).min(length);
                let gone =
                    bytes.start <= whole.start && whole.end <= bytes.end && !bytes.is_empty();
                let expected = if gone { 0 } else { 7 };
                assert_eq!(
                    region.as_slice()[index],
                    expected,
                    "byte {index} after discarding {bytes:?}"
                );
            }
        }
        audit(&engine);
    }
}

#[test]
fn discarding_writes_nothing_and_frees_slots() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let mut region = engine.map(48 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        assert!(engine.usage().slots_used > 8000, "{:?}", engine.usage());
        // What is under way may end; then no further write may come.
        eventually("no page is being written", || engine.usage().writing == 0);
        let before = engine.counters();
        region.discard(0..region.len()).unwrap();
        let after = engine.counters();
        assert!(after.pswpout <= before.pswpout + 1024, "{before:?} {after:?}");
        assert_eq!(after.pgdrop - before.pgdrop, pages.count as u64);
        eventually("all slots are free", || engine.usage().slots_used == 0);
        pages.check_all(0);
        audit(&engine);
    }
}

#[test]
fn pages_paged_out_leave_and_come_back_right() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let region = engine.map(6 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(11);
        region.page_out(0..region.len()).unwrap();
        assert!(pages.present().iter().all(|present| !present));
        let usage = engine.usage();
        assert_eq!((usage.resident, usage.cached, usage.slots_used), (0, 0, pages.count as u64));
        (0..pages.count).rev().for_each(|page| pages.check(page, 11));
        audit(&engine);
    }
}

#[test]
fn prefetched_pages_are_there_without_a_fault() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let region = engine.map(4 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(12);
        region.page_out(0..region.len()).unwrap();
        region.prefetch(0..region.len()).unwrap();
        let before = engine.counters().pgmajfault;
        assert!(pages.present().iter().all(|present| *present), "4 MiB of 16 fit");
        pages.check_all(12);
        assert_eq!(engine.counters().pgmajfault, before);
        audit(&engine);
    }
}

#[test]
fn prefetching_more_than_fits_does_no_harm() {
    limit(50);
    let engine = engine(WAYS[0]);
    let region = engine.map(48 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(13);
    region.prefetch(0..region.len()).unwrap();
    pages.check_all(13);
    audit(&engine);
}

#[test]
fn pinned_pages_stay_while_everything_else_leaves() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let region = engine.map(8 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(21);
        region.page_out(0..region.len()).unwrap();
        region.pin(2 * MIB..6 * MIB).unwrap();
        region.pin(2 * MIB..3 * MIB).unwrap();
        let pressure = |stamp| {
            let other = engine.map(40 * MIB).unwrap();
            let others = Pages::of(&other);
            others.fill_all(stamp);
            region.page_out(0..region.len()).unwrap();
        };
        pressure(1);
        let mib = MIB / PAGE;
        assert!(pages.present()[2 * mib..6 * mib].iter().all(|present| *present));
        assert!(pages.present()[..2 * mib].iter().all(|present| !present));
        region.unpin(2 * MIB..6 * MIB).unwrap();
        pressure(2);
        let present = pages.present();
        assert!(present[2 * mib..3 * mib].iter().all(|present| *present), "pins nest");
        assert!(present[3 * mib..].iter().all(|present| !present), "unpinned pages leave");
        region.unpin(2 * MIB..3 * MIB).unwrap();
        pressure(3);
        assert!(pages.present().iter().all(|present| !present));
        pages.check_all(21);
        audit(&engine);
    }
}

#[test]
fn pins_beyond_the_budget_are_refused_also_together_and_after_shrinking() {
    alone(20, || {
        let engine = engine(WAYS[0]);
        let region = engine.map(64 * MIB).unwrap();
        assert!(matches!(region.pin(0..17 * MIB), Err(Error::PinTooLarge(..))));
        assert!(matches!(region.pin(0..16 * MIB), Err(Error::PinTooLarge(..))));
        region.pin(0..10 * MIB).unwrap();
        assert!(matches!(region.pin(16 * MIB..26 * MIB), Err(Error::PinTooLarge(..))));
        region.unpin(0..10 * MIB).unwrap();
        region.pin(16 * MIB..26 * MIB).unwrap();
        region.unpin(16 * MIB..26 * MIB).unwrap();
        engine.set_budget(32 << 20).unwrap();
        region.pin(0..20 * MIB).unwrap();
        // Shrinking below what is pinned cannot work; whatever it answers, the program must go on.
        let refused = engine.set_budget(16 << 20).is_err();
        println!("shrinking below the pinned pages is refused: {refused}");
        let other =
            Pages { address: Pages::of(&region).address + 24 * MIB, count: 24 * MIB / PAGE };
        if refused {
            other.fill_all(1);
            other.check_all(1);
        }
        region.unpin(0..20 * MIB).unwrap();
        engine.set_budget(16 << 20).unwrap();
        assert!(matches!(region.pin(0..20 * MIB), Err(Error::PinTooLarge(..))));
        audit(&engine);
    });
}

#[test]
fn faults_of_many_threads_go_on_with_all_that_may_be_pinned_pinned() {
    alone(40, || {
        for way in ways() {
            let engine = engine(way);
            let held = engine.map(16 * MIB).unwrap();
            let mut mib = 16;
            while held.pin(0..mib * MIB).is_err() {
                mib -= 1;
            }
            assert!(mib >= 8, "half of the budget can be pinned");
            let region = engine.map(32 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(31);
            std::thread::scope(|scope| {
                for thread in 0..12 {
                    scope.spawn(move || {
                        let share = pages.count / 12;
                        (thread * share..(thread + 1) * share)
                            .for_each(|page| pages.check(page, 31));
                        let mut random = Random::new(thread as u64 + 1);
                        (0..300).for_each(|_| pages.check(random.below(pages.count), 31));
                    });
                }
            });
            println!("{way:?}: {mib} MiB pinned");
            audit(&engine);
        }
    });
}

/// Hammers a region while the budget goes up and down, and watches the process from outside.
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn budget_is_kept(way: Way) {
    let base = resident_bytes();
    let engine = engine(way);
    let region = engine.map(96 * MIB).unwrap();
    let pages = Pages::of(&region);
    let done = AtomicBool::new(false);
    let most = |budget: usize| base + budget * MIB + 32 * MIB + budget * MIB / 100;
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let done = &done;
            scope.spawn(move || {
                let half = pages.count / 2;
                let mut pass = 0;
                while !done.load(Ordering::Relaxed) {
                    pass += 1;
                    for page in (thread * half..(thread + 1) * half).step_by(3) {
                        pages.check(page, pass - 1);
                        pages.fill(page, pass);
                        if done.load(Ordering::Relaxed) {
                            return;
                        }
                    }
                }
            });
        }
        for budget in [16, 48, 16, 32, 24, 16] {
            engine.set_budget((budget * MIB) as u64).unwrap();
            eventually("the budget is kept", || {
                let usage = engine.usage();
                usage.debt == 0 && usage.budget as usize == budget * MIB / PAGE
            });
            for _ in 0..60 {
                let resident = resident_bytes();
                if resident > most(budget) {
                    done.store(true, Ordering::Relaxed);
                    panic!(
                        "{resident} bytes resident, {} allowed; {:?}",
                        most(budget),
                        engine.usage()
                    );
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
        done.store(true, Ordering::Relaxed);
    });
    audit(&engine);
    assert_eq!(engine.counters().budget_exceeded, 0);
}

#[test]
fn the_budget_is_kept_while_it_changes_by_message_and_move() {
    alone(40, || {
        budget_is_kept(WAYS[0]);
    });
}

#[test]
fn the_budget_is_kept_while_it_changes_by_signal_and_move() {
    alone(40, || {
        budget_is_kept(WAYS[1]);
    });
}

#[test]
fn the_budget_is_kept_while_it_changes_by_message_and_copy() {
    alone(40, || {
        budget_is_kept(WAYS[2]);
    });
}

#[test]
fn budgets_out_of_bounds_are_refused_and_change_nothing() {
    limit(50);
    let engine = engine(WAYS[0]);
    assert!(matches!(engine.set_budget(15 << 20), Err(Error::BudgetTooSmall(_))));
    for wrong in [1 << 40, u64::MAX] {
        assert!(matches!(engine.set_budget(wrong), Err(Error::BudgetTooLarge(..))));
    }
    assert_eq!(engine.usage().budget as usize, 16 * MIB / PAGE);
}

#[test]
fn more_engines_than_a_signal_handler_looks_through_are_refused() {
    alone(40, || {
        let mut engines: Vec<Engine> = (0..8).map(|_| engine(WAYS[1])).collect();
        let before = threads();
        assert!(matches!(builder(WAYS[1]).build(), Err(Error::TooManyEngines(8))));
        assert_eq!(threads(), before, "what was refused left nothing");
        let by_message = engine(WAYS[0]);
        engines.pop();
        engines.push(engine(WAYS[1]));
        for engine in engines.iter().chain([&by_message]) {
            let region = engine.map(20 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.fill_all(7);
            pages.check_all(7);
        }
    });
}

#[test]
fn regions_by_the_ten_thousand_come_and_go() {
    limit(50);
    let engine = engine(WAYS[0]);
    let mut regions: Vec<_> = (0..rounds(15_000)).map(|_| engine.map(2 * PAGE).unwrap()).collect();
    for (number, region) in regions.iter_mut().enumerate().step_by(7) {
        region.as_typed_mut::<u64>()[700] = number as u64 + 1;
    }
    for (number, region) in regions.iter().enumerate().filter(|(number, _)| number % 21 < 9) {
        let expected = if number % 7 == 0 { number as u64 + 1 } else { 0 };
        assert_eq!(region.as_typed::<u64>()[700], expected, "region {number}");
    }
    // In an order that leaves holes everywhere.
    let mut random = Random::new(5);
    while !regions.is_empty() {
        regions.swap_remove(random.below(regions.len()));
    }
    eventually("writes under way give their slots back", || engine.usage().slots_used == 0);
    assert_eq!(engine.core().arena.used_pages(), 0);
    let whole = engine.map(1 << 30).unwrap();
    assert_eq!(whole.as_slice()[12345], 0, "the holes have become one again");
    audit(&engine);
}

#[test]
fn memory_of_a_dropped_region_reads_as_zeros_in_the_next_one() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        for round in 1..4 {
            let region = engine.map(40 * MIB).unwrap();
            let pages = Pages::of(&region);
            pages.check_all(0);
            pages.fill_all(round);
        }
        eventually("writes under way give their slots back", || engine.usage().slots_used == 0);
        audit(&engine);
    }
}

#[test]
fn pages_of_zeros_leave_without_slots() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(1);
        pages.fill_all(0);
        region.page_out(0..region.len()).unwrap();
        eventually("no slot is used", || {
            region.page_out(0..region.len()).unwrap();
            engine.usage().slots_used == 0
        });
        assert!(engine.counters().swpout_zero > 5000, "{:?}", engine.counters());
        pages.check_all(0);
        audit(&engine);
    }
}

#[test]
fn clean_pages_leave_without_writes_and_changed_ones_with() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        let mut region = engine.map(4 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(1);
        region.page_out(0..region.len()).unwrap();
        pages.check_all(1);
        let before = engine.counters();
        region.page_out(0..region.len()).unwrap();
        let after = engine.counters();
        assert_eq!(after.pswpout, before.pswpout, "{way:?}");
        let clean = |counters: &Snapshot| counters.swpout_clean + counters.swpout_dropped;
        assert_eq!(clean(&after) - clean(&before), pages.count as u64);
        // One bit in the last byte of every tenth page.
        for page in (0..pages.count).step_by(10) {
            region.as_typed_mut::<u64>()[(page + 1) * WORDS - 1] ^= 1 << 63;
        }
        region.page_out(0..region.len()).unwrap();
        assert_eq!(engine.counters().pswpout - after.pswpout, pages.count.div_ceil(10) as u64);
        for page in (0..pages.count).step_by(10) {
            region.as_typed_mut::<u64>()[(page + 1) * WORDS - 1] ^= 1 << 63;
        }
        pages.check_all(1);
        audit(&engine);
    }
}

#[test]
fn pages_used_again_soon_are_found_on_their_second_chance() {
    for way in ways() {
        limit(50);
        let engine = engine(way);
        // Fits, but not above the watermark that keeps pages available.
        let region = engine.map(15 * MIB + 640 * 1024).unwrap();
        let pages = Pages::of(&region);
        for pass in 1..6 {
            pages.check_all(pass - 1);
            pages.fill_all(pass);
        }
        let counters = engine.counters();
        assert!(counters.pgfault_cached > 0, "{counters:?}");
        audit(&engine);
    }
}

#[test]
fn a_region_outlives_its_engine_and_nothing_stays() {
    alone(40, || {
        for way in ways() {
            let before = threads();
            for round in 0..rounds(6) {
                let engine = engine(way);
                let region = engine.map(24 * MIB).unwrap();
                let pages = Pages::of(&region);
                // The reclaimer is in the middle of its work when the engine goes.
                (0..pages.count).step_by(2).for_each(|page| pages.fill(page, round + 1));
                drop(engine);
                (0..pages.count).step_by(2).for_each(|page| pages.check(page, round + 1));
            }
            eventually("all threads have ended", || threads() == before);
        }
        let resident = resident_bytes();
        assert!(resident < 40 * MIB, "{resident} bytes are left of many engines");
    });
}
