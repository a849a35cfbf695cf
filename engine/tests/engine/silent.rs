//! A device that takes no writes for a while, beside one that does: pages go to the other, those that are on it wait, and it
//! gets pages again when it answers.
use crate::faulty::{ENDLESS_NS, heal, set_patience, strike};
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;
use userswap::internals::status::DeviceState;

/// Two devices, the first of which answers nothing from a strike until it is healed; a write that is waited for never ends.
fn engine_beside_another(way: Way) -> Engine {
    let first = "faulty:mem:96M,pri=5,error=ETIMEDOUT,outage=1000000:1000000000,seed=1";
    let engine = engine_on(way, &[first, "mem:96M,pri=1"]);
    set_patience(&engine, ENDLESS_NS);
    engine
}

/// Of the first device.
fn state(engine: &Engine) -> DeviceState {
    engine.core().status().devices[0].state
}

#[test]
fn pages_go_elsewhere_and_those_that_are_on_it_wait() {
    alone(60, || {
        for way in one_way() {
            let engine = engine_beside_another(way);
            let (_region, waiting) = paged_out(&engine, 1000, 1);
            let other = engine.map(40 * MIB).unwrap();
            let pages = Pages::of(&other);
            let is_over = AtomicBool::new(false);
            strike(&engine);
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    waiting.check_all(1);
                    is_over.store(true, Ordering::Relaxed);
                });
                pages.fill_all(2);
                pages.check_all(2);
                assert_eq!(state(&engine), DeviceState::Silent);
                assert!(!is_over.load(Ordering::Relaxed), "{way:?}: what is on it waits");
                heal(&engine);
                eventually("it gets pages again", || {
                    pages.fill_all(3);
                    state(&engine) == DeviceState::On
                });
            });
            pages.check_all(3);
            waiting.check_all(1);
            let counters = engine.counters();
            assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
            assert!(counters.swap_bad_slots < 4000, "{counters:?}");
            audit(&engine);
        }
    });
}

#[test]
fn it_is_waited_for_where_the_others_are_full() {
    alone(60, || {
        // Sixty-four failures, the last of which are seconds apart.
        let first = "faulty:mem:96M,pri=5,error=ETIMEDOUT,outage=1000000:64,seed=1";
        let engine = engine_on(WAYS[0], &[first, "mem:4M,pri=1"]);
        set_patience(&engine, ENDLESS_NS);
        let region = engine.map(60 * MIB).unwrap();
        let pages = Pages::of(&region);
        strike(&engine);
        pages.fill_all(1);
        pages.check_all(1);
        let counters = engine.counters();
        assert!(counters.swap_write_errors > 0, "{counters:?}");
        assert_eq!((counters.pages_lost, counters.budget_exceeded), (0, 0), "{counters:?}");
        audit(&engine);
    });
}

#[test]
fn its_swapoff_ends_when_it_answers() {
    alone(60, || {
        let engine = engine_beside_another(WAYS[1]);
        let (_region, waiting) = paged_out(&engine, 1000, 1);
        let other = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&other);
        strike(&engine);
        pages.fill_all(2);
        assert_eq!(state(&engine), DeviceState::Silent);
        let name = engine.core().devices.list().next().unwrap().label().unwrap().name.clone();
        std::thread::scope(|scope| {
            let swapoff = scope.spawn(|| swapoff(&engine, &name));
            eventually("it has begun", || state(&engine) == DeviceState::GoingOff);
            heal(&engine);
            swapoff.join().unwrap().unwrap();
        });
        waiting.check_all(1);
        pages.check_all(2);
        assert_eq!(engine.core().devices.list().count(), 1);
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    });
}

#[test]
fn a_server_that_is_gone_keeps_no_page_from_another_device() {
    alone(60, || {
        let mut server = Redis::start(&[]);
        let engine = engine_on(WAYS[0], &[&server.spec("a:96M,pri=5"), "mem:96M,pri=1"]);
        set_patience(&engine, ENDLESS_NS);
        let (_region, _gone) = paged_out(&engine, 1000, 1);
        let other = engine.map(40 * MIB).unwrap();
        let pages = Pages::of(&other);
        server.kill();
        pages.fill_all(2);
        pages.check_all(2);
        let counters = engine.counters();
        assert_eq!((counters.swap_bad_slots, counters.budget_exceeded), (0, 0), "{counters:?}");
        assert_eq!(state(&engine), DeviceState::Silent);
        audit(&engine);
    });
}
