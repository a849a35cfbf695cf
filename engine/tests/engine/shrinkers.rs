//! Shrinkers and accounts: a program's caches and its pages share one budget.
use crate::support::*;
#[path = "../../examples/object_cache/cache.rs"]
mod cache;

use cache::{Found, ObjectCache};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Barrier, Mutex};
use userswap::{Engine, Region};

const NODE: NodeId = NodeId(0);
/// The smallest budget.
const BUDGET: u32 = (16 * MIB / PAGE) as u32;

fn write(region: &mut Region, stamp: u64) {
    region.as_typed_mut::<u64>().iter_mut().step_by(WORDS).for_each(|word| *word = stamp);
}

/// While the gate is closed no page is on its way: what is taken is within the budget.
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

/// Runs `work` while another thread looks at the accounting again and again.
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
#[expect(clippy::too_many_lines, reason = "one story, told in order")]
fn a_cache_gives_way_to_pages_its_cold_objects_first_and_grows_again() {
    const OBJECTS: u64 = 3000;
    const HOT: usize = 10;
    limit(100);
    let engine = engine(WAYS[0]);
    let (cache, registration) = ObjectCache::new(&engine, OBJECTS as u32).unwrap();
    let mut region = engine.map(48 * MIB).unwrap();
    watched(&engine, || {
        for key in 0..OBJECTS {
            assert_eq!(cache.read(NODE, key), Found::Made);
        }
        assert_eq!(
            (cache.len(NODE), registration.scanned()),
            (OBJECTS as usize, userswap::Scanned::default())
        );
        for key in (0..OBJECTS).step_by(HOT) {
            assert_eq!(cache.read(NODE, key), Found::Hit);
        }
        write(&mut region, 7);
    });
    let userswap::Scanned { scanned, freed } = registration.scanned();
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

#[test]
fn what_is_charged_pages_cannot_have_and_is_given_back_in_full() {
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:64M"]);
    let account = engine.account();
    let mut region = engine.map(14 * MIB).unwrap();
    // A charge waits for a moment only, in which the reclaimer of a busy machine may not run.
    let is_charged = (0..20).any(|_| {
        write(&mut region, 1);
        account.charge(NODE, BUDGET / 2)
    });
    assert!(is_charged, "half of the pages leave for it");
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
    let engine = engine(WAYS[0]);
    engine.set_budget(32 * MIB as u64).unwrap();
    let (cache, _registration) = ObjectCache::new(&engine, 7000).unwrap();
    (0..6000).for_each(|key| _ = cache.read(NODE, key));
    assert!(cache.len(NODE) > 5000);
    engine.set_budget(16 * MIB as u64).unwrap();
    eventually("the debt is paid", || engine.usage().debt == 0);
    assert_within_budget(engine.core());
    audit(&engine);
}

#[test]
fn caches_give_way_before_the_budget_is_exceeded_for_full_devices() {
    limit(100);
    let engine = engine_on(WAYS[0], &["mem:4M"]);
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
    assert!(registration.scanned().freed > 0, "pages and device have no room beside it");
    assert_eq!(engine.counters().budget_exceeded, 0);
    audit(&engine);
}

#[test]
#[should_panic(expected = "no more is given back than was charged")]
fn more_than_was_charged_is_not_given_back() {
    limit(100);
    let engine = engine(WAYS[0]);
    let account = engine.account();
    assert!(account.charge(NODE, 2));
    account.uncharge(NODE, 3);
}

#[test]
fn a_shrinker_may_touch_managed_memory_however_faults_arrive() {
    for way in ways() {
        limit(100);
        let engine = engine(way);
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
        eventually("the shrinkers are asked", || {
            stamp += 1;
            write(&mut region, stamp);
            registration.scanned().scanned > 0
        });
        drop(registration);
        drop(region);
        audit(&engine);
    }
}

#[test]
fn a_dropped_registration_waits_for_its_scan_and_is_asked_no_more() {
    limit(100);
    let engine = engine(WAYS[0]);
    let begun = Arc::new(Barrier::new(2));
    let (inside, ended) = (begun.clone(), Arc::new(AtomicBool::new(false)));
    let end = ended.clone();
    let first = AtomicBool::new(true);
    let probe = Probe::new(move |_| {
        if first.swap(false, Ordering::SeqCst) {
            inside.wait();
            // Long enough for a drop that does not wait to come first, as a rule.
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
    let output = in_child(100, || {
        let engine = engine(WAYS[0]);
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
        eventually("the shrinkers are asked", || {
            stamp += 1;
            write(&mut region, stamp);
            broken.asked() == 1 && stopped.asked() > 2 && whole.asked() > 2
        });
        assert_eq!(broken.asked(), 1);
        assert_eq!(registrations[1].scanned(), userswap::Scanned::default());
        let userswap::Scanned { scanned, freed } = registrations[2].scanned();
        assert_eq!(scanned / 2, freed);
        let names: Vec<_> =
            engine.core().status().shrinkers.into_iter().map(|shrinker| shrinker.name).collect();
        assert_eq!(names, ["stopped", "whole"]);
    });
    let Some(output) = output else { return };
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let said = errors.matches("the shrinker broken panicked and will not be asked again");
    assert_eq!(said.count(), 1, "{errors}");
}

#[test]
fn a_cache_that_owns_the_engines_memory_ends_with_it() {
    limit(100);
    let engine = engine(WAYS[0]);
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
    eventually("the shrinkers are asked", || {
        stamp += 1;
        write(&mut region, stamp);
        taken.load(Ordering::SeqCst)
    });
    drop((engine, region));
    drop(registration);
}

#[test]
fn a_child_forked_during_a_scan_goes_on() {
    alone(100, || {
        let engine = engine(WAYS[1]);
        let scanning = Arc::new(AtomicBool::new(false));
        let (tell, go_on) = (scanning.clone(), Arc::new(AtomicBool::new(false)));
        let wait = go_on.clone();
        let probe = Probe::new(move |_| {
            tell.store(true, Ordering::SeqCst);
            eventually("the test lets it go on", || wait.load(Ordering::SeqCst));
            ShrinkResult::Freed(1)
        });
        let mut registration = Some(engine.register_shrinker("held", probe.clone()).unwrap());
        let mut region = engine.map(32 * MIB).unwrap();
        write(&mut region, 1);
        eventually("a scan is asked for", || scanning.load(Ordering::SeqCst));
        let child = fork(&engine, || {
            // The parent's scan never ends here; a new thread asks again.
            go_on.store(true, Ordering::SeqCst);
            let asked = probe.asked();
            let mut stamp = 1;
            eventually("the child's own scan", || {
                stamp += 1;
                write(&mut region, stamp);
                probe.asked() > asked
            });
            drop(registration.take());
        });
        join(child);
        go_on.store(true, Ordering::SeqCst);
        drop(registration);
        audit(&engine);
    });
}
