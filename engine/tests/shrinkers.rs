//! Shrinkers and accounts: a program's caches and its pages share one budget.
#![allow(clippy::multiple_unsafe_ops_per_block)]
#![allow(unsafe_code)]
mod support;

#[path = "../examples/object_cache/cache.rs"]
mod cache;

use cache::{Found, ObjectCache};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use support::*;
use userswap::NodeId;
use userswap::internals::Core;
use userswap::{Engine, Region};
use userswap::{ShrinkRequest, ShrinkResult, Shrinker};

const NODE: NodeId = NodeId(0);
/// The smallest budget.
const BUDGET: u32 = (16 * MIB / PAGE) as u32;

fn write(region: &mut Region, stamp: u64) {
    region.as_typed_mut::<u64>().iter_mut().step_by(WORDS).for_each(|word| *word = stamp);
}

/// Behind a closed gate no page is on its way: what is taken is within the budget.
fn assert_within_budget(core: &Core) {
    core.gate.close();
    let held: Vec<_> = core
        .nodes
        .iter()
        .map(|node| {
            let state = node.lock();
            let held = state.pool.present() + state.resident + state.charged;
            (held <= state.budget && state.debt == 0 && state.is_balanced(), held, state.budget)
        })
        .collect();
    core.gate.open();
    assert!(held.iter().all(|(is_within, ..)| *is_within), "held, of budget: {held:?}");
}

/// Runs `work` while another thread looks at the books again and again.
fn watched(engine: &Engine, work: impl FnOnce()) {
    let (over, looks) = (AtomicBool::new(false), AtomicU64::new(0));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                assert_within_budget(engine.core());
                looks.fetch_add(1, Ordering::Relaxed);
                std::thread::yield_now();
            }
        });
        work();
        over.store(true, Ordering::Relaxed);
    });
    assert!(looks.into_inner() > 0);
}

#[test]
fn a_cache_gives_way_to_pages_its_cold_objects_first_and_grows_again() {
    const OBJECTS: u64 = 3000;
    const HOT: usize = 10;
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    let (cache, registration) = ObjectCache::new(&engine, OBJECTS as u32).unwrap();
    let mut region = engine.map(48 * MIB).unwrap();
    watched(&engine, || {
        for key in 0..OBJECTS {
            assert_eq!(cache.read(NODE, key), Found::Made);
        }
        assert_eq!((cache.len(NODE), registration.scanned_and_freed()), (OBJECTS as usize, (0, 0)));
        for key in (0..OBJECTS).step_by(HOT) {
            assert_eq!(cache.read(NODE, key), Found::Hit);
        }
        write(&mut region, 7);
    });
    let (scanned, freed) = registration.scanned_and_freed();
    assert!(freed > OBJECTS / 4 && freed <= scanned, "{freed} of {scanned} objects were freed");
    assert_eq!(cache.len(NODE), engine.usage().charged as usize, "each object is a page");
    // Every object was looked at in its turn: no hot one went while a cold one was left.
    let is_there = |key: &u64| cache.contains(NODE, *key);
    let cold = (0..OBJECTS).filter(|key| key % HOT as u64 != 0).filter(is_there).count();
    let hot = (0..OBJECTS).step_by(HOT).filter(is_there).count();
    assert!(
        cold == 0 || hot == OBJECTS as usize / HOT,
        "{hot} hot and {cold} cold objects are left"
    );
    let counters = engine.counters();
    assert_eq!((counters.slabs_scanned, counters.slabs_freed), (scanned, freed));
    assert_eq!(engine.core().status().shrinkers[0].objects_freed, freed);
    assert!(region.as_typed::<u64>().iter().step_by(WORDS).all(|word| *word == 7));
    drop(region);
    let before = cache.len(NODE);
    (0..OBJECTS).for_each(|key| _ = cache.read(NODE, key));
    assert!(cache.len(NODE) > before, "{} objects, {before} before", cache.len(NODE));
    audit(&engine);
    drop((registration, cache));
    assert_eq!(engine.usage().charged, 0);
    audit(&engine);
}

/// A cache without objects, which counts how it is asked; what `scan` does is the test's.
struct Probe<F> {
    asked: AtomicU64,
    scan: F,
}

impl<F: Fn(&mut ShrinkRequest) -> ShrinkResult + Send + Sync + 'static> Probe<F> {
    fn new(scan: F) -> Arc<Self> {
        Arc::new(Self { asked: AtomicU64::new(0), scan })
    }

    fn asked(&self) -> u64 {
        self.asked.load(Ordering::SeqCst)
    }
}

impl<F: Fn(&mut ShrinkRequest) -> ShrinkResult + Send + Sync> Shrinker for Probe<F> {
    fn count(&self, _: &ShrinkRequest) -> u64 {
        1_000_000
    }

    fn scan(&self, request: &mut ShrinkRequest) -> ShrinkResult {
        self.asked.fetch_add(1, Ordering::SeqCst);
        (self.scan)(request)
    }
}

/// Ends with the test's alarm if it does not come true.
fn wait_until(mut holds: impl FnMut() -> bool) {
    while !holds() {
        std::thread::yield_now();
    }
}

#[test]
fn what_is_charged_pages_cannot_have_and_is_given_back_in_full() {
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    let account = engine.account();
    let mut region = engine.map(14 * MIB).unwrap();
    write(&mut region, 1);
    assert!(account.charge(NODE, BUDGET / 2), "most of the pages have to leave for it");
    assert_within_budget(engine.core());
    audit(&engine);
    assert!(!account.try_charge(NODE, BUDGET) && !account.charge(NODE, BUDGET));
    assert_eq!((account.charged(NODE), engine.usage().charged), (BUDGET / 2, BUDGET / 2));
    watched(&engine, || write(&mut region, 2));
    account.uncharge(NODE, 100);
    assert_eq!(engine.usage().charged, BUDGET / 2 - 100);
    drop(account);
    assert_eq!(engine.usage().charged, 0);
    audit(&engine);
}

#[test]
fn a_budget_below_what_caches_hold_is_reached_when_they_have_shrunk() {
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    engine.set_budget(32 * MIB as u64).unwrap();
    let (cache, _registration) = ObjectCache::new(&engine, 7000).unwrap();
    (0..6000).for_each(|key| _ = cache.read(NODE, key));
    assert!(cache.len(NODE) > 5000);
    engine.set_budget(16 * MIB as u64).unwrap();
    wait_until(|| engine.usage().debt == 0);
    assert_within_budget(engine.core());
    audit(&engine);
}

#[test]
fn caches_give_way_before_the_budget_is_exceeded_for_full_devices() {
    limit(100);
    let device = "mem:4M".parse().unwrap();
    let engine = builder(WAYS[0]).swap(device).build().unwrap();
    let (core, account) = (engine.core().clone(), engine.account());
    assert!(account.charge(NODE, 3000));
    // A cache that gives nothing before it must.
    let probe = Probe::new(move |_| {
        let given = account.charged(NODE).min(100);
        if given == 0 || !core.shortage.devices_full.load(Ordering::Relaxed) {
            return ShrinkResult::Stop;
        }
        account.uncharge(NODE, given);
        ShrinkResult::Freed(given.into())
    });
    let registration = engine.register_shrinker("stubborn", probe).unwrap();
    let mut region = engine.map(14 * MIB).unwrap();
    write(&mut region, 3);
    assert!(registration.scanned_and_freed().1 > 0, "pages and device have no room beside it");
    assert_eq!(engine.counters().budget_exceeded, 0);
    audit(&engine);
}

#[test]
#[should_panic(expected = "no more is given back than was charged")]
fn more_than_was_charged_is_not_given_back() {
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    let account = engine.account();
    assert!(account.charge(NODE, 2));
    account.uncharge(NODE, 3);
}

#[test]
fn a_shrinker_may_touch_managed_memory_however_faults_arrive() {
    for way in WAYS {
        limit(100);
        let engine = builder(way).build().unwrap();
        let own = Arc::new(Mutex::new(engine.map(24 * MIB).unwrap()));
        write(&mut own.lock().unwrap(), 5);
        let touched = own.clone();
        let probe = Probe::new(move |_| {
            let region = touched.lock().unwrap();
            let words = region.as_typed::<u64>().iter().step_by(WORDS);
            assert!(words.into_iter().all(|word| *word == 5));
            ShrinkResult::Freed(0)
        });
        let registration = engine.register_shrinker("touches", probe.clone()).unwrap();
        let mut region = engine.map(32 * MIB).unwrap();
        let mut stamp = 0;
        wait_until(|| {
            stamp += 1;
            write(&mut region, stamp);
            registration.scanned_and_freed().0 > 0
        });
        drop(registration);
        drop(region);
        audit(&engine);
    }
}

#[test]
fn a_dropped_registration_waits_for_its_scan_and_is_asked_no_more() {
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    let begun = Arc::new(Barrier::new(2));
    let (inside, ended) = (begun.clone(), Arc::new(AtomicBool::new(false)));
    let end = ended.clone();
    let first = AtomicBool::new(true);
    let probe = Probe::new(move |_| {
        if first.swap(false, Ordering::SeqCst) {
            inside.wait();
            // Long enough for who does not wait to come first, as a rule.
            (0..1000).for_each(|_| std::thread::yield_now());
            end.store(true, Ordering::SeqCst);
        }
        ShrinkResult::Freed(1)
    });
    let registration = engine.register_shrinker("slow", probe.clone()).unwrap();
    let mut region = engine.map(32 * MIB).unwrap();
    write(&mut region, 1);
    begun.wait();
    drop(registration);
    assert!(ended.load(Ordering::SeqCst), "the scan had ended");
    let asked = probe.asked();
    write(&mut region, 2);
    assert_eq!((probe.asked(), Arc::strong_count(&probe)), (asked, 1));
}

#[test]
fn a_shrinker_that_panics_is_named_once_and_the_others_are_asked() {
    let name = "a_shrinker_that_panics_is_named_once_and_the_others_are_asked";
    if let Some(output) = in_child(name, 100) {
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{errors}");
        let said = errors.matches("the shrinker broken panicked and will not be asked again");
        assert_eq!(said.count(), 1, "{errors}");
        return;
    }
    let engine = builder(WAYS[0]).build().unwrap();
    let broken = Probe::new(|_| panic!("a mistake in the cache"));
    let stopped = Probe::new(|_| ShrinkResult::Stop);
    let whole = Probe::new(|request| ShrinkResult::Freed(request.nr_to_scan / 2));
    let registrations = [
        engine.register_shrinker("broken", broken.clone()).unwrap(),
        engine.register_shrinker("stopped", stopped.clone()).unwrap(),
        engine.register_shrinker("whole", whole.clone()).unwrap(),
    ];
    let mut region = engine.map(32 * MIB).unwrap();
    let mut stamp = 0;
    wait_until(|| {
        stamp += 1;
        write(&mut region, stamp);
        broken.asked() == 1 && stopped.asked() > 2 && whole.asked() > 2
    });
    assert_eq!(broken.asked(), 1);
    assert_eq!(registrations[1].scanned_and_freed(), (0, 0));
    let (scanned, freed) = registrations[2].scanned_and_freed();
    assert_eq!(scanned / 2, freed);
    let names: Vec<_> =
        engine.core().status().shrinkers.into_iter().map(|shrinker| shrinker.name).collect();
    assert_eq!(names, ["stopped", "whole"]);
}

#[test]
fn a_cache_that_owns_the_engines_memory_ends_with_it() {
    limit(100);
    let engine = builder(WAYS[0]).build().unwrap();
    let own = Mutex::new(Some(engine.map(MIB).unwrap()));
    let taken = Arc::new(AtomicBool::new(false));
    let tell = taken.clone();
    let probe = Probe::new(move |_| {
        drop(own.lock().unwrap().take());
        tell.store(true, Ordering::SeqCst);
        ShrinkResult::Stop
    });
    let registration = engine.register_shrinker("owner", probe).unwrap();
    let mut region = engine.map(32 * MIB).unwrap();
    let mut stamp = 0;
    wait_until(|| {
        stamp += 1;
        write(&mut region, stamp);
        taken.load(Ordering::SeqCst)
    });
    drop((engine, region));
    drop(registration);
}

#[test]
fn a_child_forked_during_a_scan_goes_on() {
    limit(100);
    let engine = builder(WAYS[1]).build().unwrap();
    let scanning = Arc::new(AtomicBool::new(false));
    let (tell, go_on) = (scanning.clone(), Arc::new(AtomicBool::new(false)));
    let wait = go_on.clone();
    let probe = Probe::new(move |_| {
        tell.store(true, Ordering::SeqCst);
        wait_until(|| wait.load(Ordering::SeqCst));
        ShrinkResult::Freed(1)
    });
    let registration = engine.register_shrinker("held", probe.clone()).unwrap();
    let mut region = engine.map(32 * MIB).unwrap();
    write(&mut region, 1);
    wait_until(|| scanning.load(Ordering::SeqCst));
    let blocked = userswap::internals::signal::Blocked::new();
    let ticket = engine.fork_prepare();
    // SAFETY: the child goes on with the books as they are, which is what this tests.
    let child = unsafe { libc::fork() };
    if child == 0 {
        limit(25);
        let work = std::panic::AssertUnwindSafe(|| {
            engine.fork_child(ticket).unwrap();
            drop(blocked);
            // The parent's scan never ends here; a new thread asks again.
            go_on.store(true, Ordering::SeqCst);
            let asked = probe.asked();
            let mut stamp = 1;
            wait_until(|| {
                stamp += 1;
                write(&mut region, stamp);
                probe.asked() > asked
            });
            drop(registration);
        });
        let code = i32::from(std::panic::catch_unwind(work).is_err());
        // SAFETY: ends the child without running what belongs to the parent.
        unsafe { libc::_exit(code) }
    }
    engine.fork_parent(ticket);
    drop(blocked);
    let mut status = 0;
    // SAFETY: waits for a child of this process.
    let waited = unsafe { libc::waitpid(child, &mut status, 0) };
    assert_eq!(waited, child);
    assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 0, "{status:#x}");
    go_on.store(true, Ordering::SeqCst);
    drop(registration);
    audit(&engine);
}
