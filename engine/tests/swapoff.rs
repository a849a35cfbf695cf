//! swapoff on the real engine: the vectors O1 to O10 of the specification, with what they mean here, and what
//! else can happen to it.
#![allow(clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_code)]
mod support;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use support::*;
use userswap::internals::PageState;
use userswap::internals::SlotMode;
use userswap::internals::{Proceed, Progress, SwapoffMethod};
use userswap::{Builder, Engine, Error, Region};
use userswap::{FaultMode, Transfer};

fn with_memory(way: (FaultMode, Transfer), ram_mib: usize, mem: &[&str]) -> Engine {
    let builder = Builder::new((ram_mib * MIB) as u64).arena_bytes(1 << 30);
    let builder = builder.fault(way.0).transfer(way.1);
    let add = |builder: Builder, spec: &&str| builder.swap(spec.parse().unwrap());
    mem.iter().fold(builder, add).build().unwrap()
}

fn go_on(_: Progress) -> Proceed {
    Proceed::GoOn
}

fn swapoff(engine: &Engine, name: &str) -> Result<(), Error> {
    engine.core().swapoff(Path::new(name), &mut go_on)
}

/// A region of filled pages that are all on the devices, and nowhere else.
fn paged_out(engine: &Engine, pages: usize, stamp: u64) -> (Region, Pages) {
    let region = engine.map(pages * PAGE).unwrap();
    let pages = Pages::of(&region);
    (0..pages.count).for_each(|page| pages.fill(page, stamp));
    region.page_out(0..region.len()).unwrap();
    (region, pages)
}

fn check(pages: Pages, stamp: u64) {
    (0..pages.count).for_each(|page| pages.check(page, stamp));
}

fn priorities(engine: &Engine) -> Vec<i16> {
    let table = engine.core().devices.table();
    table.devices().map(|(_, device)| device.priority).collect()
}

/// Pages on each device; slots that wait in a CPU's buffer are nobody's.
fn used(engine: &Engine) -> Vec<usize> {
    let core = engine.core();
    let names = core.devices.list().map(|device| device.label().unwrap().name.clone());
    let mut used: Vec<(String, usize)> = names.map(|name| (name, 0)).collect();
    for page in 0..core.pages.pages() {
        let slot = match core.pages.state(page) {
            PageState::Swapped { slot } => slot,
            PageState::Cached { slot: Some(slot), .. }
            | PageState::Resident { slot: Some(slot), .. } => slot,
            _ => continue,
        };
        let name = core.devices.describe(slot).0.name.clone();
        used.iter_mut().find(|(of, _)| *of == name).unwrap().1 += 1;
    }
    used.into_iter().map(|(_, used)| used).collect()
}

fn count_present(pages: Pages) -> usize {
    pages.present().into_iter().filter(|present| *present).count()
}

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
        check(pages, 7);
        audit(&engine);
        drop(region);
    }
}

/// Here a child has slots of its own, copied at fork: each side reads its pages once and frees its slots.
#[test]
fn o2_parent_and_child_bring_their_pages_back_each_for_itself() {
    if !must_pass_in_child("o2_parent_and_child_bring_their_pages_back_each_for_itself", 40) {
        return;
    }
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 1000, 7);
    let ticket = engine.fork_prepare();
    // SAFETY: the child does what the engine promises to carry, and leaves by _exit.
    let child = unsafe { libc::fork() };
    let before = engine.counters().pswpin;
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        match child {
            0 => engine.fork_child(ticket).unwrap(),
            _ => engine.fork_parent(ticket),
        }
        swapoff(&engine, "mem").unwrap();
        check(pages, 7);
        assert_eq!((engine.counters().pswpin - before, engine.usage().slots_used), (1000, 0));
        (0..pages.count).for_each(|page| pages.fill(page, child as u64 + 1));
        check(pages, child as u64 + 1);
        audit(&engine);
    }));
    if child == 0 {
        // SAFETY: ends the child only.
        unsafe { libc::_exit(i32::from(outcome.is_err())) };
    }
    outcome.unwrap();
    let mut status = 0;
    // SAFETY: waits for our child.
    unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(status, 0);
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
    let outcome = engine.core().swapoff(Path::new("mem"), &mut |_| {
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
    check(pages, 7);
    (0..pages.count).for_each(|page| pages.fill(page, 8));
    check(pages, 8);
    assert_eq!(engine.counters().budget_exceeded, 0);
    audit(&engine);
}

#[test]
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
            let outcome = engine.core().swapoff(Path::new(&name), &mut |_| match left {
                0 => Proceed::Cancel,
                _ => {
                    left -= 1;
                    Proceed::GoOn
                }
            });
            match outcome {
                Err(Error::SwapoffCancelled) => {
                    assert_eq!((before, priorities(&engine)[0]), (vec![-2, -3], -3), "{round}");
                    // The other one is the lowest again.
                    assert!(matches!(
                        engine.core().swapoff(Path::new("mem#2"), &mut |_| Proceed::Cancel),
                        Err(Error::SwapoffCancelled) | Ok(())
                    ));
                }
                Ok(()) => engine.core().swapon(&"mem:64M".parse().unwrap()).unwrap(),
                Err(error) => panic!("round {round}: {error}"),
            }
            if engine.core().devices.list().count() < 2 || priorities(&engine) != [-2, -3] {
                break;
            }
            audit(&engine);
            check(pages, 7);
            region.page_out(0..region.len()).unwrap();
        }
        check(pages, 7);
        audit(&engine);
    }
}

#[test]
fn o5_cancelled_when_the_last_slot_is_free_it_has_succeeded() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 1000, 7);
    let mut asked = false;
    let outcome = engine.core().swapoff(Path::new("mem"), &mut |progress| {
        if progress.pages_left == 0 {
            asked = true;
            return Proceed::Cancel;
        }
        Proceed::GoOn
    });
    outcome.unwrap();
    assert!(asked && used(&engine).is_empty());
    check(pages, 7);
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
    check(pages, 7);
}

#[test]
fn o7_what_is_on_another_device_is_not_touched() {
    for way in WAYS {
        limit(30);
        let engine = with_memory(way, 16, &["mem:64M"]);
        // Without slots that wait for the next small request.
        engine.core().devices.set_mode(SlotMode::Shared);
        let (_one, ten) = paged_out(&engine, 10, 5);
        engine.core().swapon(&"mem:64M,pri=9".parse().unwrap()).unwrap();
        let (_two, pages) = paged_out(&engine, 1000, 7);
        assert_eq!(used(&engine), [10, 1000]);
        swapoff(&engine, "mem#2").unwrap();
        assert_eq!((used(&engine), count_present(ten), count_present(pages)), (vec![10], 0, 1000));
        assert_eq!(engine.counters().pswpin, 1000);
        check(pages, 7);
        check(ten, 5);
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
        let outcome = engine.core().swapoff(Path::new("mem"), &mut |_| {
            // In the middle of the walk.
            going.take();
            Proceed::GoOn
        });
        outcome.unwrap();
        assert!(going.is_none() && used(&engine).is_empty());
        check(pages, 7);
        audit(&engine);
    }
}

#[test]
fn o8_a_process_may_end_in_the_middle() {
    let name = "o8_a_process_may_end_in_the_middle";
    let Some(output) = in_child(name, 30) else {
        let engine = with_memory(WAYS[0], 32, &["mem:64M,throttle=4"]);
        let (region, _) = paged_out(&engine, 4000, 7);
        let begun = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                engine.core().swapoff(Path::new("mem"), &mut |_| {
                    begun.store(true, Ordering::Release);
                    Proceed::GoOn
                })
            });
            while !begun.load(Ordering::Acquire) {
                std::thread::yield_now();
            }
            // The only page that a fault waits for; then the process is gone.
            std::hint::black_box(region.as_slice()[4 * PAGE]);
            println!("1 passed");
            std::process::exit(0);
        });
        return;
    };
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
        (0..pages.count).for_each(|page| pages.fill(page, 3));
        // The reclaimer has nothing to do any more, and nobody else is there.
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
        check(pages, 3);
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
        check(pages, 7);
        audit(&engine);
    }
}

#[test]
fn the_kernels_walks_bring_everything_back_too() {
    for way in WAYS {
        for method in [SwapoffMethod::Scaling, SwapoffMethod::Fixed] {
            limit(30);
            let engine = with_memory(way, 16, &["mem:64M"]);
            let (region, pages) = paged_out(&engine, 2500, 7);
            for page_cluster in ["0", "1", "3", "8"] {
                engine.set("page_cluster", page_cluster).unwrap();
                let before = engine.counters().pswpin;
                engine.core().swapoff_by(Path::new("mem"), method, &mut go_on).unwrap();
                assert_eq!(engine.counters().pswpin - before, 2500, "{way:?} {method}");
                assert_eq!((count_present(pages), engine.usage().slots_used), (2500, 0));
                check(pages, 7);
                audit(&engine);
                engine.core().swapon(&"mem:64M".parse().unwrap()).unwrap();
                region.page_out(0..region.len()).unwrap();
            }
        }
    }
}

#[test]
fn a_walk_moves_what_ram_cannot_hold_to_another_device() {
    limit(60);
    let engine = with_memory(WAYS[0], 16, &["mem:64M,pri=5", "mem:64M,pri=1"]);
    let (_region, pages) = paged_out(&engine, 9000, 7);
    for (name, method) in [("mem", SwapoffMethod::Scaling), ("mem#2", SwapoffMethod::Fixed)] {
        engine.core().swapoff_by(Path::new(name), method, &mut go_on).unwrap();
        engine.core().swapon(&"mem:64M".parse().unwrap()).unwrap();
        audit(&engine);
    }
    check(pages, 7);
    assert_eq!(engine.counters().budget_exceeded, 0);
}

/// Four threads check and change their pages while devices are emptied into each other, or only half.
fn under_load(way: (FaultMode, Transfer)) {
    limit(120);
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let file = directory.path().join("swap");
    let specs = [format!("{}:64M", file.display()), "mem:64M".to_owned()];
    let engine = with_memory(way, 16, &[&specs[0], &specs[1]]);
    let region = engine.map(36 * MIB).unwrap();
    let pages = Pages::of(&region);
    let rounds = AtomicU32::new(0);
    let seed = seed();
    let worker = |task: usize| {
        let mut random = Random::new(seed + task as u64);
        let own = pages.count / 4;
        let mut stamps = vec![0; own];
        let mut step = 0;
        while rounds.load(Ordering::Relaxed) < 12 || step < 200 {
            step += 1;
            let first = random.below(own - 8);
            for (place, stamp) in stamps.iter_mut().enumerate().skip(first).take(8) {
                let page = task * own + place;
                pages.check(page, *stamp);
                if step % 2 == 0 {
                    *stamp = step;
                    pages.fill(page, step);
                }
            }
        }
        (0..own).for_each(|place| pages.check(task * own + place, stamps[place]));
    };
    let (mut emptied, mut cancelled, mut failed) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        (0..4).for_each(|task| {
            let worker = &worker;
            scope.spawn(move || worker(task));
        });
        let mut random = Random::new(seed ^ 77);
        for round in 0..12 {
            let device = round % 2;
            let name = if device == 0 { file.clone() } else { "mem".into() };
            let mut patience = if round % 3 == 2 { random.below(30) } else { usize::MAX };
            let method = SwapoffMethod::ALL[round / 2 % 3];
            let outcome = engine.core().swapoff_by(&name, method, &mut |_| {
                patience = patience.saturating_sub(1);
                if patience == 0 { Proceed::Cancel } else { Proceed::GoOn }
            });
            match outcome {
                Ok(()) => {
                    emptied += 1;
                    engine.core().swapon(&specs[device].parse().unwrap()).unwrap();
                }
                Err(Error::SwapoffCancelled) => cancelled += 1,
                Err(error) => failed.push((round, error.to_string())),
            }
            rounds.fetch_add(1, Ordering::Relaxed);
        }
    });
    assert!(failed.is_empty(), "{way:?} {failed:?} {:?}", engine.counters());
    assert!(emptied >= 8, "{emptied} emptied, {cancelled} cancelled");
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{way:?} {counters:?}");
    audit(&engine);
    drop(region);
    assert_eq!(engine.usage().slots_used, 0);
}

#[test]
fn four_threads_find_every_byte_by_message_and_move() {
    under_load(WAYS[0]);
}

#[test]
fn four_threads_find_every_byte_by_signal_and_move() {
    under_load(WAYS[1]);
}

#[test]
fn four_threads_find_every_byte_by_message_and_copy() {
    under_load(WAYS[2]);
}

#[test]
fn four_threads_find_every_byte_by_signal_and_copy() {
    under_load(WAYS[3]);
}

#[test]
fn pages_that_cannot_be_read_are_lost_and_the_device_goes_all_the_same() {
    let name = "pages_that_cannot_be_read_are_lost_and_the_device_goes_all_the_same";
    if !must_pass_in_child(name, 40) {
        return;
    }
    for way in WAYS {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("swap");
        let engine = with_memory(way, 16, &[&format!("{}:64M", path.display())]);
        let (_region, pages) = paged_out(&engine, 1500, 7);
        let core = engine.core();
        let first = core.arena.page_of(pages.address);
        let slot_of = |page: usize| {
            let PageState::Swapped { slot } = core.pages.state(first + page as u32) else {
                panic!("page {page} was paged out")
            };
            core.devices.describe(slot).1
        };
        // One slot is changed, and of the file only 4 MiB are left.
        let damaged = (0..pages.count).find(|page| slot_of(*page) == 5).unwrap();
        let lost: Vec<usize> = (0..pages.count)
            .filter(|page| *page == damaged || slot_of(*page) as usize >= 4 * MIB / PAGE)
            .collect();
        let file = std::fs::File::options().write(true).open(&path).unwrap();
        let place = 5 * PAGE as u64 + 100;
        std::os::unix::fs::FileExt::write_all_at(&file, &[0xA5; 64], place).unwrap();
        file.set_len(4 << 20).unwrap();
        core.swapoff(&path, &mut go_on).unwrap();
        assert_eq!(engine.counters().pages_lost, lost.len() as u64, "{way:?}");
        assert!((100..1400).contains(&lost.len()), "{}", lost.len());
        for page in 0..pages.count {
            match lost.contains(&page) {
                true => assert_eq!(core.pages.state(first + page as u32), PageState::Lost),
                false => pages.check(page, 7),
            }
        }
        assert!(used(&engine).is_empty());
        audit(&engine);
    }
}

#[test]
fn where_no_device_takes_what_ram_cannot_hold_nothing_is_lost() {
    limit(60);
    let engine = with_memory(WAYS[0], 16, &["mem:64M,pri=5", "mem:64M,pri=1"]);
    let (_region, pages) = paged_out(&engine, 9000, 7);
    assert_eq!(used(&engine), [9000, 0]);
    // The other device refuses whatever is written to it.
    let null = std::fs::File::open("/dev/null").unwrap();
    let fd = engine.core().devices.list().nth(1).unwrap().descriptor();
    userswap::internals::fd::replace(fd, std::os::fd::AsRawFd::as_raw_fd(&null)).unwrap();
    let outcome = swapoff(&engine, "mem");
    assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{outcome:?}");
    audit(&engine);
    check(pages, 7);
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
    assert!(counters.swap_write_errors > 0);
}

#[test]
fn a_program_that_needs_the_room_gets_the_device_back() {
    for way in WAYS {
        limit(60);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let (_region, pages) = paged_out(&engine, 3000, 7);
        let more = engine.map(20 * MIB).unwrap();
        let more = Pages::of(&more);
        let begun = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                (0..more.count).for_each(|page| more.fill(page, 8));
            });
            engine.core().swapoff(Path::new("mem"), &mut |_| {
                begun.store(true, Ordering::Release);
                // Nothing is read before the program has filled RAM.
                while engine.counters().allocstall == 0 {
                    std::thread::yield_now();
                }
                Proceed::GoOn
            })
        });
        assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{way:?} {outcome:?}");
        assert_eq!(engine.counters().budget_exceeded, 0, "{way:?}");
        check(pages, 7);
        check(more, 8);
        audit(&engine);
    }
}

#[test]
fn pinned_pages_stay_where_they_are_and_give_their_slots_up() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (region, pages) = paged_out(&engine, 1000, 7);
    region.pin(0..100 * PAGE).unwrap();
    swapoff(&engine, "mem").unwrap();
    check(pages, 7);
    region.unpin(0..100 * PAGE).unwrap();
    assert!(used(&engine).is_empty());
    audit(&engine);
}

/// Keeps the calling thread on one CPU.
fn stay_on(cpu: usize) {
    // SAFETY: all zero is an empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: a set of this thread's own.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: the set lives, and its size is given.
    assert_eq!(unsafe { libc::sched_setaffinity(0, size_of_val(&set), &set) }, 0);
}

/// A node full of pinned pages has nothing to offer; the others have.
#[test]
fn pages_go_to_whichever_node_has_room() {
    limit(60);
    let builder = Builder::new(64 << 20).fake_numa(2).arena_bytes(1 << 30);
    let builder = builder.swap("mem:128M,pri=5".parse().unwrap());
    let engine = builder.swap("mem:128M,pri=1".parse().unwrap()).build().unwrap();
    let pinned = engine.map(36 * MIB).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            stay_on(std::thread::available_parallelism().unwrap().get() - 1);
            pinned.pin(0..pinned.len()).unwrap();
        });
    });
    let (_region, pages) = paged_out(&engine, 60 * MIB / PAGE, 7);
    swapoff(&engine, "mem").unwrap();
    assert_eq!(engine.counters().budget_exceeded, 0);
    check(pages, 7);
    pinned.unpin(0..pinned.len()).unwrap();
    audit(&engine);
}

/// As above, but the last slot is free when the program asks.
#[test]
fn a_program_that_needs_the_room_gets_the_device_back_even_when_it_is_empty() {
    for way in WAYS {
        limit(60);
        let engine = with_memory(way, 16, &["mem:64M"]);
        let (_region, pages) = paged_out(&engine, 1500, 7);
        let more = engine.map(20 * MIB).unwrap();
        let more = Pages::of(&more);
        let begun = AtomicBool::new(false);
        let outcome = std::thread::scope(|scope| {
            scope.spawn(|| {
                while !begun.load(Ordering::Acquire) {
                    std::thread::yield_now();
                }
                (0..more.count).for_each(|page| more.fill(page, 8));
            });
            engine.core().swapoff(Path::new("mem"), &mut |progress| {
                begun.fetch_or(progress.pages_left == 0, Ordering::Release);
                // Looked for in vain so often, the device is asked for.
                while begun.load(Ordering::Relaxed) && engine.counters().allocstall < 10 {
                    std::thread::yield_now();
                }
                Proceed::GoOn
            })
        });
        assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{way:?} {outcome:?}");
        assert_eq!(engine.counters().budget_exceeded, 0, "{way:?}");
        check(pages, 7);
        check(more, 8);
        audit(&engine);
    }
}

#[test]
fn a_watcher_that_panics_leaves_the_device_in_use() {
    limit(30);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let (_region, pages) = paged_out(&engine, 2000, 7);
    let ends = std::panic::AssertUnwindSafe(|| {
        engine.core().swapoff(Path::new("mem"), &mut |_| panic!("as it was meant to"))
    });
    assert!(std::panic::catch_unwind(ends).is_err());
    check(pages, 7);
    audit(&engine);
    swapoff(&engine, "mem").unwrap();
    check(pages, 7);
}

/// What would be refused leaves no file behind.
#[test]
fn a_device_on_a_node_that_does_not_exist_is_not_made() {
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let engine = with_memory(WAYS[0], 16, &["mem:16M"]);
    let path = directory.path().join("new");
    let spec = format!("{}:16M,node=9", path.display()).parse().unwrap();
    assert!(matches!(engine.core().swapon(&spec), Err(Error::NoNode(9, _))));
    assert!(!path.exists());
}
