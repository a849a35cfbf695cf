//! Pages that come in by ones and twos are copied, also where free frames lie scattered: they are given back many at a
//! time, and no page of any thread or child is another's afterwards.
use crate::support::*;
use std::thread;
use userswap::internals::scattered;
use userswap::{Builder, FaultMode, ReadaheadPolicy};

/// Two threads read and write single pages at random; what was written when is in the page.
fn used_by_ones(pages: Pages, uses: usize) {
    thread::scope(|scope| {
        for half in 0..2 {
            scope.spawn(move || {
                let mut random = Random::new(seed());
                let mut stamps = vec![1; pages.count / 2];
                for stamp in 2..uses as u64 {
                    let index = random.below(stamps.len());
                    let page = index * 2 + half;
                    pages.check(page, stamps[index]);
                    if random.below(2) == 0 {
                        pages.fill(page, stamp);
                        stamps[index] = stamp;
                    }
                }
                for (index, stamp) in stamps.into_iter().enumerate() {
                    pages.check(index * 2 + half, stamp);
                }
            });
        }
    });
}

#[test]
fn pages_that_come_alone_are_copied_where_free_frames_lie_scattered() {
    for way in [WAYS[0], WAYS[1]] {
        let engine = build(
            Builder::new(32 * MIB as u64)
                .fault(way.0)
                .transfer(way.1)
                .arena_bytes(1 << 30)
                .readahead(ReadaheadPolicy::Off),
        );
        let (region, pages) = paged_out(&engine, 48 * MIB / PAGE, 1);
        used_by_ones(pages, rounds(20_000));
        let counters = engine.counters();
        let (came, copied) = (counters.pgmajfault + counters.pgfault_cached, counters.pgcopy);
        println!("{way:?}: {came} pages came, {copied} were copied");
        // By message some come protected against writing, which are copied as well, and not counted.
        if way.0 == FaultMode::Signal && scattered::is_supported() {
            assert!(copied >= came - came / 50, "{copied} of {came} pages were copied");
        }
        pages.fill_all(5);
        let child = fork(&engine, || {
            check_at_random(pages, 5);
            audit(&engine);
        });
        check_at_random(pages, 5);
        join(child);
        pages.check_all(5);
        audit(&engine);
        drop(region);
    }
}

fn check_at_random(pages: Pages, stamp: u64) {
    let mut random = Random::new(seed());
    for _ in 0..rounds(2000) {
        pages.check(random.below(pages.count), stamp);
    }
}
