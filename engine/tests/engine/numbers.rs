//! The numbers of slots: as many devices as there are numbers for, large ones that take two shares of them, and forked
//! children, who need numbers for devices of their own.
use crate::support::*;
use std::sync::atomic::{AtomicUsize, Ordering};
use userswap::internals::SlotSpan;
use userswap::{Engine, Region};
use userswap_policy::banks::BANK_SLOTS;
use userswap_policy::devices::{DEVICES_MAX, Placement};

/// More than a bank of slots.
const LARGE: &str = "mem:300G";

/// Which device a page is on, by index, and its slot there.
fn place(engine: &Engine, pages: Pages, page: usize) -> Option<(usize, u32)> {
    let core = engine.core();
    let slot = match core.pages.state(core.arena.page_of(pages.address) + page as u32) {
        PageState::Swapped { slot } | PageState::Cached { slot: Some(slot), .. } => slot,
        _ => return None,
    };
    let device = core.devices.device_of(slot);
    Some((usize::from(device.id().0), device.number_of(slot)))
}

/// Where all pages of a region are, once those that were busy have left too.
fn places(engine: &Engine, region: &Region) -> Vec<(usize, u32)> {
    let pages = Pages::of(region);
    let mut places = Vec::new();
    eventually("every page is on a device", || {
        region.page_out(0..region.len()).unwrap();
        places = (0..pages.count).filter_map(|page| place(engine, pages, page)).collect();
        places.len() == pages.count
    });
    places
}

/// Has everything on all devices in turns: without an own node and a priority.
fn many(way: Way, spec: &str, count: usize) -> Engine {
    let swap = vec![spec; count];
    let engine = build(with_swap(builder(way).arena_bytes(2 << 30), &swap));
    engine.core().devices.set_placement(Placement::Spread);
    engine
}

fn holding_of(device: &Device) -> Holding {
    device.store().lock().holding
}

fn refusal(engine: &Engine, spec: &str) -> String {
    let said = swapon(engine, spec).unwrap_err().to_string();
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// Checks and changes a third of the pages, one at a time, which have the stamp 1.
fn check_and_change(pages: Pages, first: usize, mut random: Random, goes_on: impl Fn(u64) -> bool) {
    let mut stamps = vec![1; pages.count / 3];
    let mut step = 1;
    while goes_on(step) {
        step += 1;
        let index = random.below(stamps.len());
        pages.check(first + index, stamps[index]);
        if step % 2 == 0 {
            stamps[index] = step;
            pages.fill(first + index, step);
        }
    }
    (0..stamps.len()).for_each(|index| pages.check(first + index, stamps[index]));
}

/// Threads check and change their pages while one device after the other goes and comes.
fn sixty_four(way: Way) {
    limit(100);
    let engine = many(way, "mem:2M", DEVICES_MAX);
    let said = refusal(&engine, "mem:2M");
    assert_eq!(said, "there are 64 swap devices already: swap one off first");
    let (region, pages) = paged_out(&engine, 64 * MIB / PAGE, 1);
    let mut on = [0; DEVICES_MAX];
    places(&engine, &region).iter().for_each(|(device, _)| on[*device] += 1);
    assert!(on.iter().all(|pages| *pages > 0), "all devices have pages: {on:?}");
    let (wanted, done) = (rounds(80), AtomicUsize::new(0));
    let seed = seed();
    let goes_on = |step| done.load(Ordering::Relaxed) < wanted || step < 200;
    std::thread::scope(|scope| {
        for (task, first) in (0..pages.count).step_by(pages.count / 3).take(3).enumerate() {
            let random = Random::new(seed + task as u64);
            scope.spawn(move || check_and_change(pages, first, random, goes_on));
        }
        let name_of = |index: usize| match index % DEVICES_MAX {
            0 => "mem".to_owned(),
            index => format!("mem#{}", index + 1),
        };
        for round in 0..wanted {
            swapoff(&engine, name_of(round)).unwrap_or_else(|error| panic!("{round}: {error}"));
            swapon(&engine, "mem:2M").unwrap();
            done.fetch_add(1, Ordering::Relaxed);
        }
    });
    let counters = engine.counters();
    assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "seed {seed} {counters:?}");
    audit(&engine);
    drop(region);
    engine.core().devices.set_mode(engine.core().devices.mode());
    assert_eq!(engine.usage().slots_used, 0);
}

#[test]
fn sixty_four_devices_come_and_go_under_load_by_message_and_move() {
    sixty_four(WAYS[0]);
}

#[test]
fn sixty_four_devices_come_and_go_under_load_by_signal_and_copy() {
    sixty_four(WAYS[3]);
}

#[test]
fn a_large_device_keeps_every_page_on_both_sides_of_its_banks_border() {
    limit(60);
    for way in [WAYS[0], WAYS[3]] {
        let engine = engine_on(way, &["mem:64M,pri=1", "mem:300G,pri=9", LARGE]);
        // The small one leaves a gap in the numbers, and comes back to it.
        swapoff(&engine, "mem").unwrap();
        swapon(&engine, "mem:64M").unwrap();
        let core = engine.core();
        let large = core.devices.list().nth(1).unwrap();
        // All but the last slots of its first bank are taken.
        core.devices.set_mode(SlotMode::Shared);
        let mut taken = Vec::new();
        while taken
            .last()
            .is_none_or(|span: &SlotSpan| large.number_of(span.first) + 1024 < BANK_SLOTS)
        {
            let span = core.devices.allocate(256, NodeId(0)).unwrap();
            assert_eq!(core.devices.device_of(span.first).id(), large.id());
            taken.push(span);
        }
        let (region, pages) = paged_out(&engine, 4000, 5);
        let places = places(&engine, &region);
        let beyond = places.iter().filter(|(_, number)| *number >= BANK_SLOTS).count();
        assert!((1..4000).contains(&beyond), "{beyond} pages of 4000 are in the second bank");
        assert!(places.iter().all(|(device, _)| *device == 1), "{places:?}");
        taken.into_iter().for_each(|span| core.devices.free(span));
        audit(&engine);
        pages.check_all(5);
        (0..pages.count).step_by(3).for_each(|page| pages.fill(page, 5));
        region.page_out(0..region.len()).unwrap();
        swapoff(&engine, "mem#2").unwrap();
        audit(&engine);
        pages.check_all(5);
        assert_eq!(engine.counters().pages_lost, 0);
    }
}

#[test]
fn a_device_that_finds_no_numbers_is_refused_and_a_smaller_one_is_not() {
    limit(60);
    let large = vec![LARGE; 31];
    let engine = engine_on(WAYS[0], &large);
    swapon(&engine, "mem:4M").unwrap();
    let expected = "no room for a device of 300G: all devices may have 16T together, in parts of 256G: \
                    give it a SIZE of 256G or less, or swap one off";
    assert_eq!(refusal(&engine, LARGE), expected);
    let (_region, pages) = paged_out(&engine, 8000, 5);
    swapon(&engine, "mem:256G").unwrap();
    assert!(refusal(&engine, "mem:4M").starts_with("no room for a device of 4M:"));
    // Two that are neighbours make room for a large one, two that are not do not.
    swapoff(&engine, "mem").unwrap();
    swapon(&engine, "mem:4M").unwrap();
    swapoff(&engine, "mem#32").unwrap();
    assert_eq!(refusal(&engine, LARGE), expected);
    swapoff(&engine, "mem#33").unwrap();
    swapon(&engine, LARGE).unwrap();
    pages.check_all(5);
    assert_eq!(engine.counters().pages_lost, 0);
    audit(&engine);
}

#[test]
fn a_child_has_copies_of_what_it_finds_no_numbers_for() {
    alone(60, || {
        for (spec, count, copied) in [("mem:2M", 40, 16), (LARGE, 20, 8), ("mem:2M", 24, 0)] {
            let engine = many(WAYS[0], spec, count);
            let (region, pages) = paged_out(&engine, 40 * MIB / PAGE, 1);
            let on = places(&engine, &region);
            let child = fork(&engine, || {
                let core = engine.core();
                let own = |device: &&Device| holding_of(device) == Holding::Own;
                let lent = count - copied;
                assert_eq!(core.devices.list().count(), count + lent);
                assert_eq!(core.devices.list().filter(own).count(), count);
                // What it writes goes to its own devices, and the parent's stay as they are.
                (0..pages.count).step_by(2).for_each(|page| pages.fill(page, 2));
                (0..pages.count).for_each(|page| pages.check(page, 2 - page as u64 % 2));
                audit(&engine);
            });
            let is_copied = |(device, _): &&(usize, u32)| *device >= count - copied;
            let expected = on.iter().filter(is_copied).count() as u64;
            assert_eq!(engine.counters().fork_slots_copied, expected, "{spec}");
            pages.check_all(1);
            join(child);
            audit(&engine);
            assert_eq!(engine.counters().pages_lost, 0);
        }
    });
}
