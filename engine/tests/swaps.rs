//! swapon and swapoff while a program runs: nothing is lost, and everything is where it should be.
#![allow(clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_code)]
mod support;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use support::*;
use userswap::internals::PageState;
use userswap::internals::{Proceed, Progress};
use userswap::{Engine, Error};

fn with_memory(way: (userswap::FaultMode, userswap::Transfer), mem: &[&str]) -> Engine {
    let add = |builder: userswap::Builder, spec: &&str| builder.swap(spec.parse().unwrap());
    mem.iter().fold(builder(way), add).build().unwrap()
}

fn go_on(_: Progress) -> Proceed {
    Proceed::GoOn
}

fn names(engine: &Engine) -> Vec<String> {
    engine.core().devices.list().map(|device| device.label().unwrap().name.clone()).collect()
}

/// Pages of each device that page words name.
fn pages_on(engine: &Engine, name: &str) -> usize {
    let core = engine.core();
    let is_there = |page: &u32| {
        let slot = match core.pages.state(*page) {
            PageState::Swapped { slot } | PageState::Writing { slot, .. } => slot,
            PageState::Cached { slot: Some(slot), .. }
            | PageState::Resident { slot: Some(slot), .. } => slot,
            _ => return false,
        };
        core.devices.describe(slot).0.name == name
    };
    (0..core.pages.pages()).filter(is_there).count()
}

#[test]
fn a_device_is_emptied_onto_another_and_its_place_used_again() {
    for way in WAYS {
        limit(100);
        let engine = with_memory(way, &["mem:64M,pri=5", "mem:64M,pri=1"]);
        assert_eq!(names(&engine), ["mem", "mem#2"]);
        let region = engine.map(48 * MIB).unwrap();
        let pages = Pages::of(&region);
        (0..pages.count).for_each(|page| pages.fill(page, 3));
        assert!(pages_on(&engine, "mem") > 5000);
        let mut last = None;
        let mut watch = |progress: Progress| {
            last = Some(progress);
            Proceed::GoOn
        };
        engine.core().swapoff(Path::new("mem"), &mut watch).unwrap();
        assert_eq!(last.unwrap().pages_left, 0, "{last:?}");
        assert_eq!(names(&engine), ["mem#2"]);
        audit(&engine);
        (0..pages.count).for_each(|page| pages.check(page, 3));
        engine.core().swapon(&"mem:128M,pri=9".parse().unwrap()).unwrap();
        assert_eq!(names(&engine), ["mem", "mem#2"], "the lowest free record is used again");
        (0..pages.count).for_each(|page| pages.fill(page, 4));
        (0..pages.count).for_each(|page| pages.check(page, 4));
        assert!(pages_on(&engine, "mem") > 3000);
        assert_eq!(engine.counters().budget_exceeded, 0);
        audit(&engine);
    }
}

#[test]
fn the_last_device_goes_if_everything_fits_in_ram_and_stays_if_not() {
    limit(60);
    let engine = with_memory(WAYS[0], &["mem:64M"]);
    let mut region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    (0..pages.count).for_each(|page| pages.fill(page, 3));
    let refused = engine.core().swapoff(Path::new("mem"), &mut go_on);
    assert!(matches!(refused, Err(Error::NoRoomToSwapoff(..))), "{refused:?}");
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("mem holds") && text.lines().count() == 1, "{text}");
    audit(&engine);
    region.discard(6 * MIB..40 * MIB).unwrap();
    engine.core().swapoff(Path::new("mem"), &mut go_on).unwrap();
    assert_eq!((names(&engine).len(), engine.usage().slots), (0, 0));
    (0..6 * MIB / PAGE).for_each(|page| pages.check(page, 3));
    audit(&engine);
    let missing = engine.core().swapoff(Path::new("mem"), &mut go_on);
    assert!(matches!(missing, Err(Error::NoSuchDevice(..))));
    engine.core().swapon(&"mem:64M".parse().unwrap()).unwrap();
    (0..pages.count).for_each(|page| pages.fill(page, 5));
    (0..pages.count).for_each(|page| pages.check(page, 5));
    audit(&engine);
}

#[test]
fn a_cancelled_swapoff_leaves_the_device_in_use_with_the_lowest_priority() {
    limit(60);
    let engine = with_memory(WAYS[0], &["mem:64M", "mem:64M"]);
    let region = engine.map(48 * MIB).unwrap();
    let pages = Pages::of(&region);
    (0..pages.count).for_each(|page| pages.fill(page, 3));
    let priorities = || {
        let table = engine.core().devices.table();
        table.devices().map(|(_, device)| device.priority).collect::<Vec<_>>()
    };
    assert_eq!(priorities(), [-2, -3]);
    let cancelled = engine.core().swapoff(Path::new("mem"), &mut |_| Proceed::Cancel);
    assert!(matches!(cancelled, Err(Error::SwapoffCancelled)), "{cancelled:?}");
    assert_eq!(priorities(), [-3, -2], "as after a failed swapoff of the kernel's");
    audit(&engine);
    (0..pages.count).for_each(|page| pages.check(page, 3));
    (0..pages.count).for_each(|page| pages.fill(page, 4));
    (0..pages.count).for_each(|page| pages.check(page, 4));
    audit(&engine);
}

#[test]
fn devices_come_and_go_under_load_without_a_wrong_byte() {
    for way in WAYS {
        limit(120);
        let engine = with_memory(way, &["mem:64M", "mem:64M", "mem:64M"]);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        let (done, finished) = (AtomicU32::new(0), AtomicBool::new(false));
        let seed = seed();
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..3)
                .map(|task| {
                    let done = &done;
                    scope.spawn(move || {
                        let mut random = Random::new(seed + task as u64);
                        let own = pages.count / 3;
                        let mut stamps = vec![0; own];
                        let mut step = 0;
                        while done.load(Ordering::Relaxed) < 24 || step < 50 {
                            step += 1;
                            let first = random.below(own - 32);
                            for (place, stamp) in stamps.iter_mut().enumerate().skip(first).take(32)
                            {
                                let page = task * own + place;
                                pages.check(page, *stamp);
                                if step % 3 != 0 {
                                    *stamp = step;
                                    pages.fill(page, step);
                                }
                            }
                        }
                        (0..own).for_each(|place| pages.check(task * own + place, stamps[place]));
                    })
                })
                .collect();
            scope.spawn(|| {
                for round in 0..24 {
                    let name = ["mem", "mem#2", "mem#3"][round % 3];
                    let mut batches = 0;
                    let cancel = round % 4 == 3;
                    let outcome = engine.core().swapoff(Path::new(name), &mut |_| {
                        batches += 1;
                        if cancel && batches > 1 { Proceed::Cancel } else { Proceed::GoOn }
                    });
                    match outcome {
                        Ok(()) => engine.core().swapon(&"mem:64M".parse().unwrap()).unwrap(),
                        Err(Error::SwapoffCancelled) if cancel => {}
                        Err(error) => panic!("round {round}: {error}"),
                    }
                    done.fetch_add(1, Ordering::Relaxed);
                }
                finished.store(true, Ordering::Relaxed);
            });
            drop(workers);
        });
        assert!(finished.into_inner());
        audit(&engine);
        let counters = engine.counters();
        assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{way:?} {counters:?}");
        drop(region);
        assert_eq!(engine.usage().slots_used, 0);
    }
}

#[test]
fn a_damaged_slot_costs_its_page_only_when_its_device_goes() {
    limit(60);
    let directory = tempfile::tempdir_in("/var/tmp").unwrap();
    let path = directory.path().join("swap");
    let engine = with_memory(WAYS[0], &[&format!("{}:64M,pri=3", path.display()), "mem:64M"]);
    let region = engine.map(4 * MIB).unwrap();
    let pages = Pages::of(&region);
    (0..pages.count).for_each(|page| pages.fill(page, 6));
    region.page_out(0..region.len()).unwrap();
    let core = engine.core();
    let PageState::Swapped { slot } = core.pages.state(core.arena.page_of(pages.address) + 7)
    else {
        panic!("page 7 was paged out")
    };
    let file = std::fs::OpenOptions::new().write(true).open(&path).unwrap();
    let place = u64::from(core.devices.describe(slot).1) * PAGE as u64;
    std::os::unix::fs::FileExt::write_all_at(&file, &[0xA5; 64], place).unwrap();
    file.sync_all().unwrap();
    core.swapoff(&path, &mut go_on).unwrap();
    assert_eq!(engine.counters().pages_lost, 1);
    (0..pages.count).filter(|page| *page != 7).for_each(|page| pages.check(page, 6));
    assert_eq!(core.pages.state(core.arena.page_of(pages.address) + 7), PageState::Lost);
    audit(&engine);
    // The file is nobody's any more: it can be used again at once.
    core.swapon(&format!("{}:64M", path.display()).parse().unwrap()).unwrap();
    let twice = core.swapon(&format!("{}:64M", path.display()).parse().unwrap());
    assert!(matches!(twice, Err(Error::Device(_))), "{twice:?}");
}
