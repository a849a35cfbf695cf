//! What an engine tells of its time: how long threads stalled, how long faults took, what devices had to do.
use crate::faulty::{ENDLESS_NS, Healed, is_filling, set_patience, strike};
use crate::support::*;
use std::time::Instant;
use userswap::Engine;
use userswap::internals::status::{DeviceStatus, Status};

/// What a device needs for each request at least.
const LATENCY_NS: u64 = 2_000_000;

/// As [`LATENCY_NS`].
const SLOW: &str = "mem:64M,latency=2000";

/// Never answers from request number a million on, and says that this may pass.
const SILENT: &str = "faulty:mem:64M,error=ETIMEDOUT,outage=1000000:1000000,seed=1";

fn stall_ns(engine: &Engine) -> u64 {
    engine.core().status().stall_ns
}

fn device(engine: &Engine) -> DeviceStatus {
    engine.core().status().devices.swap_remove(0)
}

/// The stall grows no more; were a wait never ended it would.
fn nobody_stalls(engine: &Engine) {
    eventually("nobody stalls", || {
        let before = stall_ns(engine);
        std::thread::yield_now();
        let moment = Instant::now();
        while moment.elapsed().as_micros() < 100 {
            std::hint::spin_loop();
        }
        stall_ns(engine) == before
    });
}

#[test]
fn the_stall_is_the_time_in_which_threads_wait_for_the_device() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &[SLOW]);
        let (region, pages) = paged_out(&engine, 2 * MIB / PAGE, 5);
        region.random(0..region.len()).unwrap();
        nobody_stalls(&engine);
        let (before, began) = (engine.core().status(), Instant::now());
        (0..10).for_each(|page| pages.check(page * 37, 5));
        // The last thread goes on a moment before its fault is counted.
        eventually("all have ended", || {
            engine.core().status().fault_latency.count >= before.fault_latency.count + 10
        });
        nobody_stalls(&engine);
        let (after, took) = (engine.core().status(), began.elapsed().as_nanos() as u64);
        let stalled = after.stall_ns - before.stall_ns;
        assert_eq!(after.counters["pgmajfault"] - before.counters["pgmajfault"], 10, "{way:?}");
        assert!(stalled >= 10 * (LATENCY_NS - 1024), "{way:?}: {stalled}");
        assert!(stalled <= took, "{way:?}: {stalled} of {took}");
        let slept = after.fault_latency.sum_ns - before.fault_latency.sum_ns;
        assert!(slept >= 10 * LATENCY_NS, "{way:?}: {slept}");
        histogram_agrees(&after);
        // What is there is no reason to wait.
        (0..10).for_each(|page| pages.check(page * 37, 5));
        assert_eq!(stall_ns(&engine), after.stall_ns, "{way:?}");
        audit(&engine);
    }
}

/// The histogram, the percentiles and the counters are about the same faults.
fn histogram_agrees(status: &Status) {
    let told = &status.fault_latency;
    let within = |time_ns: u64| {
        told.buckets
            .iter()
            .filter(move |bucket| bucket.below_ns <= time_ns)
            .map(|bucket| bucket.count)
    };
    let all: u64 = within(u64::MAX).sum();
    assert!(told.count > 0 && all == told.count, "no fault took 17 s: {told:?}");
    assert!(told.count <= status.counters["pgfault"]);
    // Buckets of a quarter of a power are in one of a whole.
    let median = status.fault_latency_ns.p50;
    assert!(within(median.next_power_of_two()).sum::<u64>() * 2 >= told.count, "{told:?} {median}");
}

#[test]
fn threads_that_wait_at_once_stall_once() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &[SILENT]);
        set_patience(&engine, ENDLESS_NS);
        let (region, pages) = paged_out(&engine, MIB / PAGE, 5);
        region.random(0..region.len()).unwrap();
        strike(&engine);
        let (before, began) = (stall_ns(&engine), Instant::now());
        std::thread::scope(|scope| {
            let healed = Healed(&engine);
            for reader in 0..4 {
                scope.spawn(move || pages.check(reader * 50, 5));
            }
            eventually("all wait", || (0..4).all(|reader| is_filling(&engine, pages, reader * 50)));
            let waiting = stall_ns(&engine);
            eventually("it is counted while it lasts", || stall_ns(&engine) > waiting + LATENCY_NS);
            drop(healed);
        });
        let (stalled, took) = (stall_ns(&engine) - before, began.elapsed().as_nanos() as u64);
        assert!(stalled <= took + 1024, "{way:?}: {stalled} of {took}");
        nobody_stalls(&engine);
        audit(&engine);
    }
}

#[test]
fn reading_ahead_stalls_nobody_until_a_thread_comes_for_it() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &[SILENT]);
        set_patience(&engine, ENDLESS_NS);
        let (region, pages) = paged_out(&engine, MIB / PAGE, 5);
        nobody_stalls(&engine);
        let before = engine.core().status();
        strike(&engine);
        std::thread::scope(|scope| {
            let healed = Healed(&engine);
            region.will_need(0..region.len() / 2).unwrap();
            eventually("it is read ahead", || is_filling(&engine, pages, 7));
            eventually("and asked for again", || engine.counters().swap_retries > 2);
            assert_eq!(stall_ns(&engine), before.stall_ns, "{way:?}: no thread waits for it");
            scope.spawn(move || pages.check(7, 5));
            eventually("it waits for that", || stall_ns(&engine) > before.stall_ns + LATENCY_NS);
            drop(healed);
        });
        let counters = engine.counters();
        assert_eq!(
            counters.pgmajfault, before.counters["pgmajfault"],
            "{way:?}: nothing more was read"
        );
        assert!(counters.fault_busy > before.counters["fault_busy"], "{way:?}");
        nobody_stalls(&engine);
        audit(&engine);
    }
}

#[test]
fn a_thread_that_finds_no_room_stalls() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &[SILENT]);
        set_patience(&engine, ENDLESS_NS);
        let region = engine.map(20 * MIB).unwrap();
        let pages = Pages::of(&region);
        strike(&engine);
        std::thread::scope(|scope| {
            let healed = Healed(&engine);
            scope.spawn(move || pages.fill_all(5));
            eventually("it has to make room", || engine.counters().allocstall > 0);
            let waiting = stall_ns(&engine);
            eventually("nothing leaves", || stall_ns(&engine) > waiting + LATENCY_NS);
            assert_eq!(engine.counters().pgmajfault, 0, "{way:?}");
            drop(healed);
        });
        nobody_stalls(&engine);
        pages.check_all(5);
        audit(&engine);
    }
}

#[test]
fn a_device_counts_what_it_transfers_and_the_time_that_takes() {
    for way in ways() {
        for io in [IoBackend::Uring, IoBackend::Threads] {
            limit(50);
            let engine = build(with_swap(builder(way).io(io), &[SLOW]));
            let (region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
            let written = device(&engine);
            assert_eq!(written.writes.bytes, engine.counters().pswpout * PAGE as u64, "{way:?}");
            assert!(written.writes.requests > 0 && written.reads.requests == 0, "{written:?}");
            assert!(written.busy_ns >= LATENCY_NS, "{written:?}");
            // In order, read ahead, and here and there: all ways of reading.
            (0..512).for_each(|page| pages.check(page, 5));
            region.random(0..region.len()).unwrap();
            (512..1024).step_by(50).for_each(|page| pages.check(page, 5));
            region.prefetch(0..region.len()).unwrap();
            eventually("all reads have ended", || {
                let (seen, counters) = (device(&engine), engine.counters());
                seen.reads.requests == counters.swap_reads && counters.pswpin >= 1024
            });
            let seen = device(&engine);
            assert!(seen.reads.bytes >= engine.counters().pswpin * PAGE as u64, "{seen:?}");
            assert_eq!((seen.reads.errors, seen.writes.errors), (0, 0));
            assert!(seen.busy_ns >= written.busy_ns + LATENCY_NS, "{seen:?}");
            eventually("it is idle", || device(&engine).busy_ns == device(&engine).busy_ns);
            audit(&engine);
        }
    }
}

#[test]
fn a_request_that_fails_is_an_error_of_its_device_and_transfers_nothing() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &["faulty:mem:64M,read=0.3,write=0.3,error=EINTR,seed=3"]);
        let (_region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
        pages.check_all(5);
        let (seen, counters) = (device(&engine), engine.counters());
        assert!(seen.reads.errors > 0 && seen.writes.errors > 0, "{way:?} {seen:?}");
        assert_eq!(seen.reads.errors, counters.swap_read_errors, "{way:?}");
        assert_eq!(seen.writes.errors, counters.swap_write_errors, "{way:?}");
        assert_eq!(seen.writes.bytes, counters.pswpout * PAGE as u64, "{way:?}");
        audit(&engine);
    }
}

#[test]
fn a_swapoff_is_of_the_device_it_empties() {
    for way in ways() {
        limit(50);
        let engine = engine_on(way, &["mem:32M,pri=5", "mem:64M,pri=1"]);
        let (_region, pages) = paged_out(&engine, 4 * MIB / PAGE, 5);
        let first = device(&engine);
        assert_eq!(first.writes.bytes, engine.counters().pswpout * PAGE as u64);
        swapoff(&engine, &first.name).unwrap();
        swapon(&engine, "mem:32M,pri=7").unwrap();
        let status = engine.core().status();
        let read: u64 = status.devices.iter().map(|device| device.reads.bytes).sum();
        assert_eq!(read, 0, "the first device's numbers went with it: {status:?}");
        pages.check_all(5);
        audit(&engine);
    }
}
