//! Devices that fail by a plan (`faulty:`): trouble that passes is outlasted, and what does not pass costs only the pages
//! that the device really lost, with both deliveries, both transfers and both ways of doing requests.
use crate::support::*;
use std::sync::atomic::Ordering;
use userswap::Engine;

const IO: [IoBackend; 2] = [IoBackend::Uring, IoBackend::Threads];

/// Long enough for a few tries, and short enough for many requests that are given up.
const HASTY_NS: u64 = 12_000_000;

/// Nobody waits that long: what ends is ended by the test.
pub const ENDLESS_NS: u64 = 86_400_000_000_000;

/// Runs `work` with an engine of every kind, on one device.
fn on_every_kind(swap: &str, work: impl Fn(&Engine)) {
    for way in ways() {
        for io in IO {
            println!("{way:?} {io:?} {swap}");
            let engine = build(with_swap(builder(way).io(io), &[swap]));
            work(&engine);
            audit(&engine);
        }
    }
}

pub fn set_patience(engine: &Engine, nanoseconds: u64) {
    engine.core().devices.set_patience_ns(nanoseconds);
}

/// Requests of the first device that something was done to.
fn mishaps(engine: &Engine) -> u64 {
    let device = engine.core().devices.list().next().unwrap();
    device.faulty().unwrap().mishaps.load(Ordering::Relaxed)
}

/// Ends an outage: the requests with the numbers of the plan are over.
pub fn heal(engine: &Engine) {
    let device = engine.core().devices.list().next().unwrap();
    device.faulty().unwrap().requests.store(u64::MAX / 2, Ordering::Relaxed);
}

/// Has the next request be the first of an outage that begins with number a million.
pub fn strike(engine: &Engine) {
    let device = engine.core().devices.list().next().unwrap();
    device.faulty().unwrap().requests.store(1_000_000, Ordering::Relaxed);
}

/// Uses pages at random, each with a stamp of its own; those that are lost stay so. Returns how many.
pub fn use_at_random(pages: Pages, operations: usize, seed: u64) -> u64 {
    let mut random = Random::new(seed);
    let mut stamps = vec![Some(0); pages.count];
    for step in 1..=operations as u64 {
        // Half of the time near the last page: streams and runs.
        let page = random.below(pages.count);
        for page in page..pages.count.min(page + 1 + random.below(2) * random.below(40)) {
            let Some(stamp) = stamps[page] else { continue };
            if is_lost(pages, page) {
                stamps[page] = None;
                continue;
            }
            pages.check(page, stamp);
            if random.below(2) == 0 {
                pages.fill(page, step);
                stamps[page] = Some(step);
            }
        }
    }
    let lost = (0..pages.count).filter(|page| match stamps[*page] {
        Some(_) if is_lost(pages, *page) => true,
        Some(stamp) => {
            pages.check(*page, stamp);
            false
        }
        None => true,
    });
    lost.count() as u64
}

#[test]
fn every_page_is_right_or_lost_and_counted_whatever_fails() {
    alone(60, || {
        let seed = seed();
        let plan = "read=0.001,write=0.01,bad=0.0005,torn=0.001,flip=0.001,short=0.01";
        on_every_kind(&format!("faulty:mem:96M,{plan},seed={seed}"), |engine| {
            set_patience(engine, HASTY_NS);
            let region = engine.map(48 * MIB).unwrap();
            // Each operation is of ten pages on average: a million in the long form.
            let lost = use_at_random(Pages::of(&region), rounds(1500), seed);
            let counters = engine.counters();
            println!("{} mishaps, {lost} lost, {counters:?}", mishaps(engine));
            assert!(mishaps(engine) > 10 && counters.swap_retries > 0, "{counters:?}");
            assert_eq!(lost, counters.pages_lost);
            assert_eq!(counters.budget_exceeded, 0);
        });
    });
}

#[test]
fn interruptions_and_short_transfers_are_taken_up_again() {
    on_every_kind("faulty:mem:64M,read=0.3,write=0.3,short=0.2,error=EINTR,seed=3", |engine| {
        limit(60);
        // Without any patience: nothing is waited for.
        set_patience(engine, 0);
        let (region, pages) = paged_out(engine, 12 * MIB / PAGE, 5);
        pages.check_all(5);
        drop(region);
        let counters = engine.counters();
        assert!(counters.swap_retries > 10, "{counters:?}");
        assert_eq!((counters.pages_lost, counters.swap_bad_slots), (0, 0));
    });
}

#[test]
fn trouble_that_passes_costs_no_page_and_no_slot() {
    // Beside each other: most of it is waiting.
    std::thread::scope(|scope| {
        for error in ["ETIMEDOUT", "ENOMEM", "EAGAIN", "EIO", "ENODEV"] {
            // The ways that it goes follow from the name.
            let thread = std::thread::Builder::new().name(error.to_owned());
            thread.spawn_scoped(scope, move || trouble_passes(error)).unwrap();
        }
    });
}

fn trouble_passes(error: &str) {
    let swap = format!("faulty:mem:64M,error={error},outage=1000000:12,seed=1");
    on_every_kind(&swap, |engine| {
        limit(60);
        let (region, pages) = paged_out(engine, 4 * MIB / PAGE, 5);
        strike(engine);
        pages.check_all(5);
        let counters = engine.counters();
        assert!(counters.swap_retries >= 6, "{counters:?}");
        strike(engine);
        pages.fill_all(6);
        region.page_out(0..region.len()).unwrap();
        let counters = engine.counters();
        assert!(counters.swap_write_errors >= 6, "{counters:?}");
        pages.check_all(6);
        assert_eq!((counters.pages_lost, counters.swap_bad_slots), (0, 0), "{counters:?}");
    });
}

#[test]
fn pages_on_bad_slots_are_lost_and_no_others() {
    alone(60, || {
        on_every_kind("faulty:mem:64M,bad=0.02,seed=9", |engine| {
            set_patience(engine, HASTY_NS);
            let (region, pages) = paged_out(engine, 4 * MIB / PAGE, 5);
            let core = engine.core();
            let first = core.arena.page_of(pages.address);
            let plan = core.devices.list().next().unwrap().faulty().unwrap().plan;
            let is_bad = |page: &usize| {
                let PageState::Swapped { slot } = core.pages.state(first + *page as u32) else {
                    panic!("page {page} was paged out")
                };
                plan.has_bad(core.devices.describe(slot).1, 1)
            };
            let bad: Vec<usize> = (0..pages.count).filter(is_bad).collect();
            assert!(bad.len() > 5, "{bad:?}");
            for page in 0..pages.count {
                assert_eq!(is_lost(pages, page), bad.contains(&page), "page {page} of {bad:?}");
                if !bad.contains(&page) {
                    pages.check(page, 5);
                }
            }
            assert_eq!(engine.counters().pages_lost, bad.len() as u64);
            drop(region);
        });
    });
}

#[test]
fn a_swapoff_of_a_device_with_bad_slots_loses_their_pages_only() {
    alone(60, || {
        for way in ways() {
            let engine = engine_on(way, &["faulty:mem:64M,bad=0.02,pri=5,seed=9", "mem:64M,pri=1"]);
            set_patience(&engine, HASTY_NS);
            let (region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
            swapoff(&engine, "mem").unwrap();
            let lost = (0..pages.count).filter(|page| {
                let lost = is_lost(pages, *page);
                if !lost {
                    pages.check(*page, 5);
                }
                lost
            });
            let lost = lost.count() as u64;
            assert!(lost > 5 && lost == engine.counters().pages_lost, "{lost}");
            audit(&engine);
            drop(region);
        }
    });
}

#[test]
fn a_write_that_arrives_in_part_is_found_by_its_checksum() {
    alone(60, || {
        on_every_kind("faulty:mem:64M,torn=0.5,seed=4", |engine| {
            let (region, pages) = paged_out(engine, 4 * MIB / PAGE, 5);
            let torn = mishaps(engine);
            let lost = (0..pages.count).filter(|page| {
                let lost = is_lost(pages, *page);
                if !lost {
                    pages.check(*page, 5);
                }
                lost
            });
            let lost = lost.count() as u64;
            assert!(torn > 0 && lost > 0 && lost < pages.count as u64, "{torn} {lost}");
            assert_eq!(lost, engine.counters().pages_lost);
            drop(region);
        });
    });
}

#[test]
fn a_bit_that_flips_on_its_way_is_read_again() {
    on_every_kind("faulty:mem:64M,outage=0:0,flip=0.001,seed=2", |engine| {
        let (region, pages) = paged_out(engine, 4 * MIB / PAGE, 5);
        // One page at a time, so that there are enough reads.
        let mut order: Vec<usize> = (0..pages.count).collect();
        let mut random = Random::new(7);
        (1..order.len()).for_each(|at| order.swap(at, random.below(at + 1)));
        while mishaps(engine) == 0 {
            order.iter().for_each(|page| pages.check(*page, 5));
            region.page_out(0..region.len()).unwrap();
        }
        let counters = engine.counters();
        assert!(counters.swap_read_errors > 0, "{counters:?}");
        assert_eq!(counters.pages_lost, 0);
    });
}

#[test]
fn a_device_that_fills_up_leaves_its_pages_to_the_next() {
    for way in ways() {
        limit(60);
        let engine = engine_on(way, &["faulty:mem:64M,full=6,pri=5,seed=1", "mem:64M,pri=1"]);
        let region = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&region);
        for pass in 1..3 {
            pages.fill_all(pass);
            pages.check_all(pass);
        }
        let counters = engine.counters();
        assert!(mishaps(&engine) > 0 && counters.swap_write_errors > 0, "{counters:?}");
        assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
        audit(&engine);
    }
}

#[test]
fn a_device_that_has_gone_is_waited_for_once_and_not_for_every_page() {
    alone(60, || {
        on_every_kind("faulty:mem:64M,gone=1000000,seed=1", |engine| {
            let (region, pages) = paged_out(engine, 2 * MIB / PAGE, 5);
            set_patience(engine, 60 * HASTY_NS);
            strike(engine);
            assert!((0..pages.count).all(|page| is_lost(pages, page)));
            let counters = engine.counters();
            assert_eq!(counters.pages_lost, pages.count as u64);
            // Each request once more at once; but for the first there are no pauses.
            let requests = counters.swap_reads + counters.pages_lost;
            assert!(counters.swap_retries < requests + 20, "{counters:?}");
            let device = engine.core().devices.list().next().unwrap();
            assert!(device.is_given_up.load(Ordering::Relaxed));
            drop(region);
        });
    });
}

/// The number of the state in which a page is waited for.
pub fn is_filling(engine: &Engine, pages: Pages, page: usize) -> bool {
    let core = engine.core();
    let index = core.arena.page_of(pages.address) + page as u32;
    matches!(core.pages.state(index), PageState::Filling { .. })
}

/// Heals an engine's device when it goes.
pub struct Healed<'a>(pub &'a Engine);

impl Drop for Healed<'_> {
    fn drop(&mut self) {
        heal(self.0);
    }
}

#[test]
fn while_one_device_is_waited_for_faults_on_others_are_served() {
    for way in ways() {
        for io in IO {
            limit(60);
            // Room for what the CPUs' caches of slots keep as well.
            let swap =
                ["faulty:mem:18M,error=ETIMEDOUT,outage=1000000:1000000,pri=5,seed=1", "mem:64M"];
            let engine = build(with_swap(builder(way).io(io), &swap));
            set_patience(&engine, ENDLESS_NS);
            let (first, slow) = paged_out(&engine, 15 * MIB / PAGE, 5);
            let (second, quick) = paged_out(&engine, 8 * MIB / PAGE, 6);
            strike(&engine);
            std::thread::scope(|scope| {
                // Also when an assertion fails, or the readers would be waited for.
                let healed = Healed(&engine);
                // More pages than threads that stand in for an io_uring.
                let readers: Vec<_> =
                    (0..6).map(|reader| scope.spawn(move || slow.check(reader * 500, 5))).collect();
                let all_wait = || (0..6).all(|reader| is_filling(&engine, slow, reader * 500));
                eventually("the device is asked again and again", || {
                    engine.counters().swap_retries > 20 && all_wait()
                });
                // Those before may have found room on the first device.
                (1024..quick.count).for_each(|page| quick.check(page, 6));
                assert!(all_wait(), "{way:?}");
                drop(healed);
                readers.into_iter().for_each(|reader| reader.join().unwrap());
            });
            slow.check_all(5);
            assert_eq!(engine.counters().pages_lost, 0);
            audit(&engine);
            drop((first, second));
        }
    }
}

#[test]
fn an_engine_ends_while_a_device_is_waited_for() {
    for way in ways() {
        for io in IO {
            limit(60);
            let swap = "faulty:mem:64M,error=EAGAIN,outage=0:1000000,seed=1";
            let engine = build(with_swap(builder(way).io(io), &[swap]));
            set_patience(&engine, ENDLESS_NS);
            // Reclaim begins long before a thread has to wait for it.
            settings::set(engine.core(), "watermark_scale", "1000").unwrap();
            let region = engine.map(57 * MIB / 4).unwrap();
            Pages::of(&region).fill_all(5);
            eventually("writes wait", || engine.counters().swap_retries > 3);
            // Nobody is left who could want the pages; without that, this would wait for a day.
            drop((region, engine));
        }
    }
}

/// Two threads wait for one page of a device that does not answer.
fn wait_for_what_does_not_come(way: Way) {
    let engine = engine_on(way, &["faulty:mem:64M,error=ETIMEDOUT,outage=1000000:1000000,seed=1"]);
    set_patience(&engine, ENDLESS_NS);
    let (_region, pages) = paged_out(&engine, MIB / PAGE, 5);
    strike(&engine);
    engine.core().waits.limit_ns.store(20_000_000, Ordering::Relaxed);
    engine.core().wake_watchdog();
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..2).map(|_| scope.spawn(move || pages.check(100, 5))).collect();
        eventually("both wait", || engine.core().waits.list().count() == 1);
        eventually("it is reported, and again", || engine.counters().faults_stuck > 2);
        heal(&engine);
        readers.into_iter().for_each(|reader| reader.join().unwrap());
    });
    let before = engine.counters().faults_stuck;
    pages.check_all(5);
    assert!(engine.counters().faults_stuck <= before + 1, "nobody waits any more");
}

fn says_who_waits(output: Option<std::process::Output>) {
    let Some(output) = output else { return };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    let line = said.lines().find(|line| line.contains(" has waited for ")).expect(&said);
    for part in ["userswap: thread ", " s for page ", "Filling: it is read, slot ", " of mem"] {
        assert!(line.contains(part), "{line}");
    }
    assert!(said.contains("; 1 more wait"), "{said}");
}

#[test]
fn a_fault_that_waits_for_too_long_is_reported_by_message() {
    says_who_waits(in_child(30, || wait_for_what_does_not_come(WAYS[0])));
}

#[test]
fn a_fault_that_waits_for_too_long_is_reported_by_signal() {
    says_who_waits(in_child(30, || wait_for_what_does_not_come(WAYS[1])));
}
