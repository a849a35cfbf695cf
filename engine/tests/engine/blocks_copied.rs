//! Blocks where pages are copied: what the kernel keeps goes back with its mapping, and no byte is lost by that.
use crate::blocks::{Owner, engine_of_blocks};
use crate::support::*;

/// Where pages are copied, the mapping of each that a pipe holds goes back, beside threads that write.
#[test]
fn what_something_holds_goes_back_where_pages_are_copied() {
    alone(120, || {
        let engine = engine_of_blocks(WAYS[2]);
        let region = engine.map(48 * MIB).unwrap();
        let (pages, seed) = (Pages::of(&region), seed());
        // Whoever writes to them.
        let held = |owner: &mut Owner| {
            let any: Vec<usize> = (0..64).map(|_| owner.random.below(pages.count)).collect();
            hold(pages, &any)
        };
        std::thread::scope(|scope| {
            for number in 0..3 {
                let mut owner = Owner::new(pages, number, 3, seed);
                scope.spawn(move || {
                    let mut pipe = held(&mut owner);
                    for stamp in 1..=rounds(12_000) {
                        owner.step(stamp);
                        if stamp % 500 == 0 {
                            pipe = held(&mut owner);
                        }
                    }
                    drop(pipe);
                    owner.check_all();
                });
            }
        });
        let (counters, put_backs) = (engine.counters(), engine.core().put_backs.made());
        let (left, kept) = (counters.swpout_block, counters.swpout_block_kept);
        assert!(left > 2_000 && kept > 50 && put_backs > 50, "{put_backs} of {counters:?}");
        assert_eq!(counters.pages_lost, 0);
        audit(&engine);
        drop(region);
        audit(&engine);
    });
}

/// As many mappings as the process may have, but for so many: pages of one mapping that differ.
fn few_mappings_left(filler: &mapping::Mapping, left: usize) {
    let page = |index: usize| filler.address() + index * PAGE;
    let protect = |index, access| mapping::protect(page(index), PAGE, access).is_ok();
    let split = (1..filler.bytes() / PAGE - 1).step_by(2);
    let last = split.clone().take_while(|index| protect(*index, libc::PROT_READ)).last().unwrap();
    // Each takes two.
    split.filter(|index| *index <= last).rev().take(left.div_ceil(2)).for_each(|index| {
        assert!(protect(index, libc::PROT_NONE));
    });
}

#[test]
fn pages_that_are_kept_go_back_where_the_process_may_have_no_more_mappings() {
    alone(120, || {
        let engine = engine_of_blocks(WAYS[2]);
        let region = engine.map(48 * MIB).unwrap();
        let pages = Pages::of(&region);
        let mut owner = Owner::new(pages, 0, 1, seed());
        (1..=16_000).for_each(|stamp| owner.step(stamp));
        let filler = mapping::Mapping::new(200_000 * PAGE, mapping::Access::Reserved).unwrap();
        for left in [1, 2, 3, 4, 5, 6, 8, 12] {
            let any: Vec<usize> = (0..64).map(|_| owner.random.below(pages.count)).collect();
            let pipe = hold(pages, &any);
            few_mappings_left(&filler, left);
            (1..=3_000).for_each(|stamp| owner.step(stamp));
            drop(pipe);
            mapping::protect(filler.address(), filler.bytes(), libc::PROT_NONE).unwrap();
        }
        owner.check_all();
        let kept = engine.counters().swpout_block_kept;
        assert!(kept > 50 && engine.counters().pages_lost == 0, "{:?}", engine.counters());
        audit(&engine);
    });
}
