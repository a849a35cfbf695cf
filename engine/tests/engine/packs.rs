//! Pages that moved on compressed share slots of the device behind: what comes back, what is free again, and what a slot
//! that is damaged or fails takes with it.
use crate::demotion::{SWAPS, assert_nothing_lost, use_while};
use crate::support::*;
use crate::zram::{all, check, fill, stored, used};
use std::collections::HashMap;
use std::fs::File;
use std::os::unix::fs::FileExt;
use userswap::{Engine, Region};

/// Pages that share slots of a device, and these slots.
pub fn packed(engine: &Engine, device: usize) -> (u32, u32) {
    let devices = &engine.core().devices;
    let packed = devices.packed_on(devices.list().nth(device).unwrap());
    (packed.pages, packed.slots)
}

fn packs(engine: &Engine) -> usize {
    engine.core().devices.list_all().filter(|device| device.is_packed()).count()
}

/// Pages of every kind, all of which are on the second device, but those of zeros, which are nowhere.
fn parked(engine: &Engine, pages: usize, stamp: u64) -> (Region, Pages) {
    let region = engine.map(pages * PAGE).unwrap();
    let pages = Pages::of(&region);
    all(pages, stamp, fill);
    eventually("all pages are on the device behind", || {
        engine.page_out_all();
        (0..pages.count).all(|page| match state(engine, pages, page) {
            PageState::Swapped { slot } => place(engine, slot).0 == 1,
            state => state == PageState::Untouched,
        })
    });
    (region, pages)
}

fn state(engine: &Engine, pages: Pages, page: usize) -> PageState {
    let core = engine.core();
    core.pages.state(core.arena.page_of(pages.address) + page as u32)
}

/// The device that a slot is on, by index, and the number of the one there, which others may share.
fn place(engine: &Engine, slot: Slot) -> (usize, u32) {
    let devices = &engine.core().devices;
    let under = devices.under(slot);
    let id = devices.device_of(under).id();
    let index = devices.list().position(|device| device.id() == id).unwrap();
    (index, devices.number_of(under))
}

/// The pages on each slot.
fn by_slot(engine: &Engine, pages: Pages) -> HashMap<u32, Vec<usize>> {
    let mut by_slot = HashMap::<u32, Vec<usize>>::new();
    for page in 0..pages.count {
        if let PageState::Swapped { slot } = state(engine, pages, page) {
            by_slot.entry(place(engine, slot).1).or_default().push(page);
        }
    }
    by_slot
}

#[test]
fn pages_share_slots_and_come_back_one_by_one_and_together() {
    limit(60);
    for (way, swap) in ways().zip(SWAPS.into_iter().cycle()) {
        let engine = engine_on(way, swap);
        let (region, pages) = parked(&engine, 3000, 4);
        let (shared, slots) = packed(&engine, 1);
        assert!(shared > 1000 && shared > slots * 2, "{shared} pages share {slots} slots");
        let largest = by_slot(&engine, pages).into_values().map(|pages| pages.len()).max();
        assert!(largest.unwrap() > 4, "pages of one value take eight bytes");
        assert_nothing_lost(&engine);
        // Far from each other, then in order: what comes together is unpacked from the same slots.
        (0..pages.count).rev().step_by(97).for_each(|page| check(pages, page, 4));
        all(pages, 4, check);
        assert_eq!(engine.counters().swap_read_errors, 0);
        // Some are written to: their slots go, those that others are on stay.
        (0..pages.count).step_by(2).for_each(|page| fill(pages, page, 5));
        engine.page_out_all();
        let stamp = |page: usize| if page.is_multiple_of(2) { 5 } else { 4 };
        (0..pages.count).for_each(|page| check(pages, page, stamp(page)));
        assert_nothing_lost(&engine);
        drop(region);
        assert_nothing_lost(&engine);
        assert_eq!((used(&engine, 0), used(&engine, 1), packed(&engine, 1)), (0, 0, (0, 0)));
    }
}

#[test]
fn a_run_of_pages_reads_fewer_slots_than_it_has_pages() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, SWAPS[0]);
        let region = engine.map(3000 * PAGE).unwrap();
        let pages = Pages::of(&region);
        // Of two values in turn, 40 bytes or so.
        let words = |page: usize| move |index: usize| ((page + 1) * (index % 2)) as u64;
        (0..pages.count).for_each(|page| pages.fill_with(page, words(page)));
        engine.page_out_all();
        let device = engine.core().devices.list().nth(1).unwrap();
        let read = || device.traffic.reads.bytes.load(std::sync::atomic::Ordering::Relaxed);
        let before = read();
        (0..pages.count).for_each(|page| assert_eq!(pages.wrong_word(page, words(page)), None));
        let slots = (read() - before) / PAGE as u64;
        assert!(slots < pages.count as u64 / 2, "{slots} slots were read for {}", pages.count);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn a_slot_that_is_damaged_loses_the_pages_that_share_it_and_no_other() {
    alone(60, || {
        for (way, option) in ways().zip(["", ",encrypt"].into_iter().cycle()) {
            let directory = tempfile::tempdir_in("/var/tmp").unwrap();
            let path = directory.path().join("swap");
            let swap = format!("{}:64M{option}", path.display());
            let engine = engine_on(way, &["zram:128M,pri=9", &swap]);
            let (region, pages) = parked(&engine, 1500, 6);
            let by_slot = by_slot(&engine, pages);
            let file = File::options().write(true).open(&path).unwrap();
            let mut may_be_lost = Vec::new();
            for (slot, on_slot) in by_slot.iter().filter(|(slot, _)| *slot % 7 == 0) {
                file.write_all_at(&[0xA5; 64], u64::from(*slot) * PAGE as u64 + 100).unwrap();
                may_be_lost.extend(on_slot);
            }
            let lost: Vec<usize> = (0..pages.count).filter(|page| is_lost(pages, *page)).collect();
            (0..pages.count)
                .filter(|page| !lost.contains(page))
                .for_each(|page| check(pages, page, 6));
            assert!(lost.iter().all(|page| may_be_lost.contains(page)), "{lost:?}");
            // Of what is not encrypted bytes can be damaged that no page has, or few.
            let expected =
                if option.is_empty() { may_be_lost.len() / 4 } else { may_be_lost.len() };
            assert!(lost.len() >= expected && expected > 30, "{} of {expected}", lost.len());
            assert_eq!(engine.counters().pages_lost, lost.len() as u64);
            audit(&engine);
            // Nothing is put there again.
            let is_bad = |on_slot: &&Vec<usize>| on_slot.iter().any(|page| lost.contains(page));
            let bad = by_slot.values().filter(is_bad).count() as u32;
            let device = engine.core().devices.list().nth(1).unwrap();
            let before = device.pages();
            drop(region);
            assert_eq!((used(&engine, 1), packed(&engine, 1)), (0, (0, 0)));
            // Some have gone with their last page before.
            let gone =
                by_slot.values().filter(|on_slot| on_slot.iter().all(|page| lost.contains(page)));
            assert_eq!(before + gone.count() as u32 - device.pages(), bad);
            audit(&engine);
        }
    });
}

#[test]
fn reads_that_fail_now_and_then_cost_no_page() {
    limit(60);
    for way in ways() {
        let engine = engine_on(
            way,
            &["zram:128M,pri=9", "faulty:mem:128M,read=0.1,short=0.05,error=EINTR,seed=4"],
        );
        let region = engine.map(40 * MIB).unwrap();
        use_while(&engine, Pages::of(&region), 3000, || {
            eventually("pages that share slots have come back", || {
                region.page_out(0..region.len()).unwrap();
                engine.counters().zswpwb > 2000 && packed(&engine, 1).0 > 100
            });
        });
        assert!(engine.counters().swap_retries > 0);
    }
}

#[test]
fn what_moved_on_from_a_device_that_is_gone_goes_on_with_the_next() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, SWAPS[0]);
        let (_region, pages) = parked(&engine, 1500, 2);
        for _ in 0..3 {
            swapoff(&engine, "zram").unwrap();
            swapon(&engine, "zram:128M,pri=9").unwrap();
            let more = engine.map(MIB).unwrap();
            all(Pages::of(&more), 3, fill);
            engine.page_out_all();
            all(Pages::of(&more), 3, check);
        }
        assert_eq!(packs(&engine), 1, "one for all that compress alike");
        all(pages, 2, check);
        swapon(&engine, "mem:128M").unwrap();
        swapoff(&engine, "mem").unwrap();
        all(pages, 2, check);
        assert_nothing_lost(&engine);
        assert_eq!(packs(&engine), 0);
    }
}

#[test]
fn what_compresses_by_itself_gets_pages_as_they_were() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["zram:64M,tier=0", "zram:64M,algo=zstd,tier=1"]);
        let region = engine.map(6 * MIB).unwrap();
        let pages = Pages::of(&region);
        all(pages, 3, fill);
        engine.page_out_all();
        assert!(engine.counters().swap_demoted > 500);
        assert_eq!(packed(&engine, 1), (0, 0));
        let stored = stored(&engine, "zram#2");
        assert!(stored.compressed_bytes < stored.pages * PAGE as u64 * 3 / 4, "{stored:?}");
        all(pages, 3, check);
        assert_nothing_lost(&engine);
    }
}

#[test]
fn a_fork_takes_no_pack_along_that_holds_nothing() {
    alone(60, || {
        let engine = engine_on(WAYS[0], SWAPS[0]);
        let (region, pages) = parked(&engine, 1500, 2);
        let child = fork(&engine, || {
            all(pages, 2, check);
            assert_eq!(packs(&engine), 1);
        });
        join(child);
        drop(region);
        let child = fork(&engine, || assert_eq!(packs(&engine), 0));
        join(child);
        assert_eq!(packs(&engine), 0);
        let (_region, pages) = parked(&engine, 1500, 3);
        all(pages, 3, check);
        assert_nothing_lost(&engine);
    });
}
