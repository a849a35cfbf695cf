//! The vectors O1 to O10 of the specification, with what they mean here.
use super::{count_present, priorities, used, with_memory};
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Error;
use userswap::internals::Proceed;

#[test]
fn o1_everything_comes_back_and_the_device_goes() {
    for way in WAYS {
        limit(30);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let (region, pages) = paged_out(&engine, 1000, 7);
        assert_eq!((count_present(pages), used(&engine)), (0, vec![1000]));
        swapoff(&engine, "mem").unwrap();
        assert_eq!((count_present(pages), engine.usage().slots_used), (1000, 0));
        assert_eq!((used(&engine), engine.counters().pswpin), (vec![], 1000));
        pages.check_all(7);
        audit(&engine);
        drop(region);
    }
}

/// A child reads the slots of its parent: each side reads its pages once and frees its slots.
#[test]
fn o2_parent_and_child_bring_their_pages_back_each_for_itself() {
    alone(40, || {
        let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
        let (_region, pages) = paged_out(&engine, 1000, 7);
        let before = engine.counters().pswpin;
        let work = |name: &str, stamp| {
            swapoff(&engine, name).unwrap();
            pages.check_all(7);
            assert_eq!((engine.counters().pswpin - before, engine.usage().slots_used), (1000, 0));
            pages.fill_all(stamp);
            pages.check_all(stamp);
            audit(&engine);
        };
        let borrowed = format!("mem of {}", std::process::id());
        let child = fork(&engine, || work(&borrowed, 1));
        work("mem", 2);
        join(child);
    });
}

#[test]
fn o3_without_room_part_of_it_stays_in_memory_and_the_device_is_listed_again() {
    limit(60);
    let engine = with_memory(WAYS[0], 32, &["mem:20M", "mem:1M"]);
    let slots = (20 << 20) / PAGE - 1 + (1 << 20) / PAGE - 1;
    let (_region, pages) = paged_out(&engine, slots, 7);
    assert_eq!((priorities(&engine), count_present(pages)), (vec![-2, -3], 0));
    let mut told = 0;
    // There is room when it begins, and half of it is gone a moment later.
    let outcome = swapoff_with(&engine, "mem", &mut |_| {
        told += 1;
        if told == 1 {
            engine.set_budget(16 << 20).unwrap();
        }
        Proceed::GoOn
    });
    assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{outcome:?}");
    let resident = engine.usage().resident as usize;
    assert!((1000..4000).contains(&resident), "{resident}");
    assert_eq!(priorities(&engine), [-3, -2]);
    assert_eq!(engine.usage().slots, slots as u64);
    audit(&engine);
    pages.check_all(7);
    pages.fill_all(8);
    pages.check_all(8);
    assert_eq!(engine.counters().budget_exceeded, 0);
    audit(&engine);
}

#[test]
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn o4_cancelled_in_the_middle_again_and_again_nothing_is_lost() {
    for way in WAYS {
        limit(60);
        let engine = with_memory(way, 48, &["mem:64M", "mem:64M"]);
        let (region, pages) = paged_out(&engine, 8000, 7);
        let mut random = Random::new(seed());
        for round in 0..8 {
            let name = engine.core().devices.list().next().unwrap().label().unwrap().name.clone();
            let before = priorities(&engine);
            let mut left = random.below(20);
            let outcome = swapoff_with(&engine, &name, &mut |_| match left {
                0 => Proceed::Cancel,
                _ => {
                    left -= 1;
                    Proceed::GoOn
                }
            });
            match outcome {
                Err(Error::SwapoffCancelled) => {
                    assert_eq!(
                        (before, priorities(&engine)),
                        (vec![-2, -3], vec![-3, -2]),
                        "{round}"
                    );
                    // The other one is the lowest again.
                    assert!(matches!(
                        swapoff_with(&engine, "mem#2", &mut |_| Proceed::Cancel),
                        Err(Error::SwapoffCancelled) | Ok(())
                    ));
                }
                Ok(()) => swapon(&engine, "mem:64M").unwrap(),
                Err(error) => panic!("round {round}: {error}"),
            }
            if engine.core().devices.list().count() < 2 || priorities(&engine) != [-2, -3] {
                break;
            }
            audit(&engine);
            pages.check_all(7);
            region.page_out(0..region.len()).unwrap();
        }
        pages.check_all(7);
        audit(&engine);
    }
}

#[test]
fn o5_cancelled_when_the_last_slot_is_free_it_has_succeeded() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 1000, 7);
    let mut asked = false;
    let outcome = swapoff_with(&engine, "mem", &mut |progress| {
        if progress.pages_left == 0 {
            asked = true;
            return Proceed::Cancel;
        }
        Proceed::GoOn
    });
    outcome.unwrap();
    assert!(asked && used(&engine).is_empty());
    pages.check_all(7);
    audit(&engine);
}

#[test]
fn o6_what_is_not_swapped_on_is_refused() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 10, 7);
    let refused = swapoff(&engine, "/no/such/device");
    assert!(matches!(refused, Err(Error::NoSuchDevice(..))), "{refused:?}");
    assert_eq!((used(&engine), priorities(&engine)), (vec![10], vec![-2]));
    pages.check_all(7);
}

#[test]
fn o7_what_is_on_another_device_is_not_touched() {
    for way in WAYS {
        limit(30);
        let engine = with_memory(way, 16, &["mem:64M"]);
        // Without slots that wait for the next small request.
        engine.core().devices.set_mode(SlotMode::Shared);
        let (_one, ten) = paged_out(&engine, 10, 5);
        swapon(&engine, "mem:64M,pri=9").unwrap();
        let (_two, pages) = paged_out(&engine, 1000, 7);
        assert_eq!(used(&engine), [10, 1000]);
        swapoff(&engine, "mem#2").unwrap();
        assert_eq!((used(&engine), count_present(ten), count_present(pages)), (vec![10], 0, 1000));
        assert_eq!(engine.counters().pswpin, 1000);
        pages.check_all(7);
        ten.check_all(5);
        audit(&engine);
    }
}

#[test]
fn o8_memory_that_goes_meanwhile_takes_its_slots_along() {
    for way in WAYS {
        limit(30);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let (_stays, pages) = paged_out(&engine, 500, 7);
        let mut going = Some(paged_out(&engine, 2500, 9).0);
        let outcome = swapoff_with(&engine, "mem", &mut |_| {
            // In the middle of the walk.
            going.take();
            Proceed::GoOn
        });
        outcome.unwrap();
        assert!(going.is_none() && used(&engine).is_empty());
        pages.check_all(7);
        audit(&engine);
    }
}

#[test]
fn o8_a_process_may_end_in_the_middle() {
    let output = in_child(30, || {
        let engine = with_memory(WAYS[0], 32, &["mem:64M,throttle=16"]);
        let (region, _) = paged_out(&engine, 4000, 7);
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                swapoff_with(&engine, "mem", &mut |_| {
                    begun.store(true, Ordering::Release);
                    Proceed::GoOn
                })
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // The only page that a fault waits for; then the process is gone.
            std::hint::black_box(region.as_slice()[4 * PAGE]);
            std::process::exit(0);
        });
    });
    let Some(output) = output else { return };
    assert!(output.status.success(), "{} {output:?}", output.status);
}

#[test]
fn o9_what_is_only_cached_is_not_read() {
    let mut cached_in_all = 0;
    for way in WAYS {
        limit(30);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        // The reclaimer has nothing to do any more, and no other thread is there.
        while engine.usage().writing > 0 {
            std::thread::yield_now();
        }
        engine.set_budget(64 << 20).unwrap();
        let core = engine.core();
        let count = |of: fn(&PageState) -> bool| {
            (0..core.pages.pages()).filter(|page| of(&core.pages.state(*page))).count()
        };
        let swapped = count(|state| matches!(state, PageState::Swapped { .. }));
        cached_in_all += count(|state| matches!(state, PageState::Cached { .. }));
        let before = engine.counters().pswpin;
        swapoff(&engine, "mem").unwrap();
        let read = engine.counters().pswpin - before;
        assert_eq!(read, swapped as u64, "{way:?}");
        pages.check_all(3);
        audit(&engine);
    }
    assert!(cached_in_all > 0);
}

/// A page that a fault reads is not read again by the walk, and the other way round.
#[test]
fn o10_a_page_that_a_fault_is_reading_is_read_once() {
    for way in WAYS {
        limit(60);
        // Slow enough that faults and walk meet.
        let engine = with_memory(way, 16, &["mem:64M,throttle=40"]);
        let (_region, pages) = paged_out(&engine, 2000, 7);
        let before = engine.counters();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut random = Random::new(seed());
                (0..300).for_each(|_| pages.check(random.below(pages.count), 7));
            });
            swapoff(&engine, "mem").unwrap();
        });
        let after = engine.counters();
        assert_eq!(after.pswpin - before.pswpin, 2000, "{way:?} {after:?}");
        pages.check_all(7);
        audit(&engine);
    }
}
