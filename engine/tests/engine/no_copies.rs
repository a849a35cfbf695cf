//! Compressed memory takes a part of the budget: what it has is not in RAM as well, and it is not called full before it is.
use crate::support::*;
use userswap::Builder;

#[test]
fn a_page_that_comes_back_leaves_no_copy_in_compressed_memory_and_one_elsewhere() {
    limit(60);
    for way in WAYS {
        // Each CPU may have a batch of 64 slots that are on their way back.
        for (swap, most) in [("zram:64M", 300), ("mem:64M", 1000)] {
            let engine = engine_on(way, &[swap]);
            let (_region, pages) = paged_out(&engine, 1000, 3);
            assert_eq!(used(&engine), 1000);
            pages.check_all(3);
            pages.check_all(3);
            let left = used(&engine);
            assert!(left <= most && (most < 1000 || left == most), "{way:?} {swap}: {left}");
            audit(&engine);
        }
    }
}

#[test]
fn compressed_memory_that_is_as_large_as_it_may_be_is_not_taken_for_full() {
    limit(60);
    for way in [WAYS[0], WAYS[1]] {
        let builder = Builder::new(64 << 20).fault(way.0).transfer(way.1).arena_bytes(1 << 30);
        let engine = build(with_swap(builder, &["zram:512M"]));
        let region = engine.map(100 * MIB).unwrap();
        let pages = Pages::of(&region);
        // Two to one: half of each page is noise.
        let word = |page: usize, index: usize| match index < WORDS / 2 {
            true => word(9, page, index),
            false => 0,
        };
        (0..pages.count).for_each(|page| pages.fill_with(page, |index| word(page, index)));
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let mut random = Random::new(thread);
                    for _ in 0..10_000 {
                        let (page, index) = (random.below(pages.count), random.below(WORDS));
                        assert_eq!(pages.read(page, index), word(page, index), "page {page}");
                    }
                });
            }
        });
        let counters = engine.counters();
        assert!(counters.pgmajfault > 10_000, "{counters:?}");
        assert_eq!(counters.budget_exceeded, 0, "{way:?} {counters:?}");
        audit(&engine);
    }
}
