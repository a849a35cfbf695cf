//! Devices that come and go, and devices that fail: what stays, what is told, what is used again.
use super::{used, with_memory};
use crate::support::*;
use userswap::internals::{Proceed, Progress};
use userswap::{Engine, Error};

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
            | PageState::Clean { slot, .. }
            | PageState::Resident { slot: Some(slot), .. } => slot,
            _ => return false,
        };
        core.devices.describe(slot).0.name == name
    };
    (0..core.pages.pages()).filter(is_there).count()
}

#[test]
fn a_device_is_emptied_onto_another_and_its_record_used_again() {
    for way in WAYS {
        limit(100);
        let engine = with_memory(way, 16, &["mem:64M,pri=5", "mem:64M,pri=1"]);
        assert_eq!(names(&engine), ["mem", "mem#2"]);
        let region = engine.map(48 * MIB).unwrap();
        let pages = Pages::of(&region);
        pages.fill_all(3);
        assert!(pages_on(&engine, "mem") > 5000);
        let mut last = None;
        let mut watch = |progress: Progress| {
            last = Some(progress);
            Proceed::GoOn
        };
        swapoff_with(&engine, "mem", &mut watch).unwrap();
        assert_eq!(last.unwrap().pages_left, 0, "{last:?}");
        assert_eq!(names(&engine), ["mem#2"]);
        audit(&engine);
        pages.check_all(3);
        swapon(&engine, "mem:128M,pri=9").unwrap();
        assert_eq!(names(&engine), ["mem", "mem#2"], "the lowest free record is used again");
        pages.fill_all(4);
        pages.check_all(4);
        assert!(pages_on(&engine, "mem") > 3000);
        assert_eq!(engine.counters().budget_exceeded, 0);
        audit(&engine);
    }
}

#[test]
fn the_last_device_goes_if_everything_fits_in_ram_and_stays_if_not() {
    limit(60);
    let engine = with_memory(WAYS[0], 16, &["mem:64M"]);
    let mut region = engine.map(40 * MIB).unwrap();
    let pages = Pages::of(&region);
    pages.fill_all(3);
    let refused = swapoff(&engine, "mem");
    assert!(matches!(refused, Err(Error::NoRoomToSwapoff(..))), "{refused:?}");
    let text = refused.unwrap_err().to_string();
    assert!(text.contains("mem holds") && text.lines().count() == 1, "{text}");
    audit(&engine);
    region.discard(6 * MIB..40 * MIB).unwrap();
    swapoff(&engine, "mem").unwrap();
    assert_eq!((names(&engine).len(), engine.usage().slots), (0, 0));
    (0..6 * MIB / PAGE).for_each(|page| pages.check(page, 3));
    audit(&engine);
    let missing = swapoff(&engine, "mem");
    assert!(matches!(missing, Err(Error::NoSuchDevice(..))));
    swapon(&engine, "mem:64M").unwrap();
    pages.fill_all(5);
    pages.check_all(5);
    audit(&engine);
}

#[test]
fn pages_that_cannot_be_read_are_lost_and_the_device_goes_all_the_same() {
    alone(40, || {
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
            let index = 5 * PAGE as u64 + 100;
            std::os::unix::fs::FileExt::write_all_at(&file, &[0xA5; 64], index).unwrap();
            file.set_len(4 << 20).unwrap();
            swapoff(&engine, &path).unwrap();
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
            // The file is free: it can be used again at once, and only once.
            let again = format!("{}:64M", path.display());
            swapon(&engine, &again).unwrap();
            assert!(matches!(swapon(&engine, &again), Err(Error::Device(_))));
        }
    });
}

#[test]
fn where_no_device_takes_what_ram_cannot_hold_nothing_is_lost() {
    limit(60);
    let engine = with_memory(WAYS[0], 16, &["mem:64M,pri=5", "mem:64M,pri=1"]);
    let (_region, pages) = paged_out(&engine, 9000, 7);
    assert_eq!(used(&engine), [9000, 0]);
    // The other device refuses whatever is written to it.
    refuse_writes(&engine, 1);
    let outcome = swapoff(&engine, "mem");
    assert!(matches!(outcome, Err(Error::NoRoomInRam)), "{outcome:?}");
    audit(&engine);
    pages.check_all(7);
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
    assert!(counters.swap_write_errors > 0);
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
