//! Discarding scattered pages: by the span, mapped or not. What is discarded reads as zeros, what is not stays, and pages that
//! other threads touch meanwhile are one or the other.
use crate::support::*;
use std::sync::atomic::{AtomicBool, Ordering};
use userswap::Engine;

/// Every third page of a region, half of which are on a device by then.
fn scattered(pages: Pages) -> impl Iterator<Item = usize> {
    (0..pages.count).step_by(3)
}

#[test]
fn scattered_pages_are_forgotten_in_one_go_and_their_neighbours_stay() {
    limit(60);
    for way in ways() {
        let engine = engine_on(way, &["mem:256M"]);
        let region = &mut engine.map(96 * MIB).unwrap();
        let pages = Pages::of(region);
        scattered(pages).for_each(|page| pages.fill(page, 3));
        // Some are in RAM, some on their second chance, most on the device; the first ones are back.
        scattered(pages).take(1_000).for_each(|page| pages.check(page, 3));
        let spare = || engine.core().nodes.iter().map(|node| node.lock().spare).sum::<u32>();
        let (dropped, before) = (3_000, spare());
        region.discard(0..dropped * PAGE).unwrap();
        assert!(spare() > before + 300, "{way:?}: {before} and {}", spare());
        for page in scattered(pages) {
            pages.check(page, if page < dropped { 0 } else { 3 });
        }
        (0..dropped).for_each(|page| pages.check(page, 0));
        audit(&engine);
        region.discard(0..region.len()).unwrap();
        audit(&engine);
    }
}

/// Fills twenty of sixty-four pages that are the owner's, looks at them, and forgets all sixty-four, again and again, all in
/// the first `half` pages.
fn fill_and_forget(engine: &Engine, (pages, half): (Pages, usize), owner: usize, seed: u64) {
    let mut random = Random::new(seed ^ (owner as u64 + 1) << 20);
    for stamp in 1..=rounds(400) {
        let first = random.below(half / 2 - 64) * 2;
        let mine = (0..32).filter(|index| index % 3 != 0).map(|index| first + 2 * index + owner);
        mine.clone().for_each(|page| pages.fill(page, stamp));
        for page in mine {
            let found = pages.read(page, 5);
            assert!(found == word(stamp, page, 5) || found == 0, "page {page} has {found:#x}");
        }
        let core = engine.core();
        core.drop_range(core.range_at(pages.at(first) as usize, 64 * PAGE));
    }
}

#[test]
fn pages_that_threads_fill_while_others_are_forgotten_are_theirs_or_zero() {
    limit(120);
    for way in ways() {
        let engine = engine_on(way, &["mem:256M"]);
        let region = engine.map(48 * MIB).unwrap();
        let (pages, seed, over) = (Pages::of(&region), seed(), AtomicBool::new(false));
        // Each thread has every second page of the first half; the second half is written in between, to be swapped.
        let half = pages.count / 2;
        std::thread::scope(|scope| {
            let pressing = scope.spawn(|| {
                let mut stamp = 0;
                while !over.load(Ordering::Relaxed) {
                    stamp += 1;
                    (half..pages.count).step_by(5).for_each(|page| pages.fill(page, stamp));
                }
            });
            let engine = &engine;
            let owns =
                |owner| scope.spawn(move || fill_and_forget(engine, (pages, half), owner, seed));
            let owners = [owns(0), owns(1)];
            owners.into_iter().for_each(|owner| owner.join().unwrap());
            over.store(true, Ordering::Relaxed);
            pressing.join().unwrap();
        });
        engine.core().drop_range(engine.core().range_at(pages.at(0) as usize, half * PAGE));
        (0..half).for_each(|page| pages.check(page, 0));
        assert_eq!(engine.counters().pages_lost, 0);
        audit(&engine);
    }
}
